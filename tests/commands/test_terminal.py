"""Control characters in the output of commands are made visible, by one function in one place.
Every command with a hostile base: no name in it controls the terminal or forges a line.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from cli_runner import Outcome, Run, leaves
from edge_cases import copy_files
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from linker_base import fill
from qdrant_double import QdrantDouble
from tiny_models import make_pearl
from tqdm import tqdm

from pearl_qdrant import Entity
from pearl_qdrant.cli import cli, terminal
from pearl_qdrant.cli.terminal import VisibleStream, echo_json, visible
from pearl_qdrant.cli.training import COMMANDS
from pearl_qdrant.progress import counting_bar, skip_stored
from pearl_qdrant.store import open_store

CLI = Path(terminal.__file__).parents[1]


def is_unsafe(character: str) -> bool:
    """Whether a character can control a terminal or change the direction of a line."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or (
        unicodedata.bidirectional(character) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
        or character in "\u061c\u200e\u200f"
    )


@pytest.mark.parametrize(
    "text, shown",
    [
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("\x7f\x9b2J\x85", r"\u007f\u009b2J\u0085"),
        ("\u202egpj.exe\u2066\u2069", r"\u202egpj.exe\u2066\u2069"),
        ("\u200e\u200f\u061c\u2028\u2029\ud800", r"\u200e\u200f\u061c\u2028\u2029\ud800"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    """Escape sequences, bells, backspaces, line ends and direction marks are shown as escapes."""
    assert visible(text) == shown


READABLE = (
    "Zürich, Zu\u0308rich, N\u0303andu\u0301, أحمد بن حنبل, שלום עולם, می\u200cخواهم, กรุงเทพ 東京 서울, "
    "👩\u200d🔬 and 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f, soft\u00adhyphen, C:\\new\\table"
)
"""Names of every script."""


@settings(max_examples=examples(500), deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=[])))
@example(READABLE)
def test_no_control_character_is_left(text: str) -> None:
    """Any text is shown as one line without control characters, and escaping it again changes nothing; accents, joiners
    of emoji and letters from right to left are none.
    """
    shown = visible(text)

    assert not any(map(is_unsafe, shown))
    assert visible(shown) == shown
    harmless = "".join(character for character in text if not is_unsafe(character))
    assert visible(harmless) == harmless


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=[])))
def test_json_keeps_its_values_without_control_characters(text: str) -> None:
    """JSON is printed as one line without control characters, and gives the same value when read back."""
    out = io.StringIO()
    before, sys.stdout = sys.stdout, cast("io.TextIOWrapper", VisibleStream(out))  # type: ignore[arg-type]
    try:
        echo_json({"name": text})
    finally:
        sys.stdout = before

    line = out.getvalue()
    assert line.endswith("\n")
    assert not any(map(is_unsafe, line[:-1]))
    assert json.loads(line) == {"name": text}


def test_a_log_record_is_one_line() -> None:
    """Log messages of libraries are escaped too, for example answers of a server."""
    record = logging.LogRecord("x", logging.WARNING, "", 0, "got %s", ("a\x1b[31m\nERROR all is lost",), None)

    assert terminal._LineFormatter("%(levelname)s %(message)s").format(record) == (
        r"WARNING got a\x1b[31m\nERROR all is lost"
    )


def test_a_progress_bar_still_moves() -> None:
    """A bar overwrites its own line, and its label is escaped."""
    out = io.StringIO()

    with tqdm(total=2, desc="a\x1b[31m\u202e", file=VisibleStream(out), ascii=True) as bar:  # type: ignore[arg-type]
        bar.update(2)

    assert out.getvalue().startswith("\r")
    assert r"a\x1b[31m\u202e: 100%" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_a_progress_bar_is_shown_where_the_terminal_has_no_columns() -> None:
    """Terminals of editors and containers say that they have 0 columns and rows; the bar is shown in 80."""
    pty = pytest.importorskip("pty")
    code = (
        "from pearl_qdrant.progress import counting_bar\nwith counting_bar('encode', ' names', 2) as bar: bar.update(2)"
    )
    own, other = pty.openpty()  # has no size until one is set
    try:
        subprocess.run([sys.executable, "-c", code], stderr=other, check=True)
        shown = os.read(own, 10_000).decode()
    finally:
        os.close(own)
        os.close(other)

    assert "encode: 100%" in shown
    assert max(map(len, shown.split("\r"))) == 80


def test_what_was_stored_before_says_nothing_of_the_rate() -> None:
    """After a resume the time left is that of the names that are left, at the rate of those that were written."""
    with counting_bar("encode", " names", 100, disable=False) as bar:
        clock = bar.start_t
        bar._time = lambda: clock
        clock += 50
        skip_stored(bar, 60)
        clock += 10
        bar.update(10)
        shown = str(bar)

    assert "70.0/100 [00:10<00:30, 1.00 names/s]" in shown


def test_a_terminal_without_utf_8_gets_escapes() -> None:
    """Letters that its encoding lacks are written as JSON escapes; nothing fails."""
    raw = io.BytesIO()
    stream = VisibleStream(io.TextIOWrapper(raw, encoding="latin-1"))

    stream.write('{"name": "Zürich"}\n')
    stream.write('{"name": "Łódź 🦄"}\n')
    stream.flush()

    assert [json.loads(line)["name"] for line in raw.getvalue().decode("latin-1").splitlines()] == ["Zürich", "Łódź 🦄"]


def test_tracebacks_are_escaped() -> None:
    """If a command fails with a traceback, the values in it are escaped too."""
    program = (
        "from pearl_qdrant.cli.terminal import visible_streams\n"
        "with visible_streams():\n"
        "    print('out \\x1b[31m', flush=True)\n"
        "    raise RuntimeError('err \\x1b[31m \\u202e')"
    )

    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, encoding="utf-8")

    assert done.returncode == 1
    assert done.stdout == "out \\x1b[31m\n"
    assert r"RuntimeError: err \x1b[31m \u202e" in done.stderr
    assert not any(is_unsafe(c) for c in done.stderr if c != "\n")


def calls(tree: ast.AST) -> Iterator[str]:
    """Functions that a module calls whose last name is one of a way to print, as written."""
    last = {"echo", "secho", "confirm", "prompt", "echo_via_pager", "print", "write", "writelines"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in last:
            yield ast.unparse(node.func)


def test_commands_print_only_by_echo_and_echo_json() -> None:
    """A new command is as safe as the others, since no module prints in another way."""
    ways = {"click.echo", "click.secho", "click.confirm", "click.prompt", "click.echo_via_pager", "print"}
    modules = {path.name: set(calls(ast.parse(path.read_text("utf-8")))) for path in CLI.rglob("*.py")}

    assert ways & modules.pop("terminal.py") == {"click.echo", "click.confirm", "click.prompt"}
    assert len(modules) > 15
    assert {name: ways & called for name, called in modules.items() if ways & called} == {}
    assert not any(one.startswith(("sys.stdout.write", "sys.stderr.write")) for m in modules.values() for one in m)


EVIL = "\x1b]0;owned\x07\x1b[2J\b\x9b31m\u202egpj.exe\u2066\u200f\x7f\r\x85\u2028\nforged line"
UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def names(prefix: str) -> str:
    """A name with an honest start."""
    return f"{prefix} {EVIL}"


ENTITIES = [
    Entity(names("id"), names("Acme"), (names("Big Acme"),), (names("firm"),), ("ORG",), names("It makes things")),
    Entity("twin", names("Acme"), ("Twin",), ("firm",), ("ORG",), extra={"source": names("src")}),
    Entity("plain", "Plain Thing", ("Thing",)),
]


TABLES = ("resolve", "crosswalk")
"""Commands that print tab-separated rows."""


def check(outcome: Outcome, *, is_table: bool = False) -> None:
    """Check that neither stream has an unsafe character or a line from the base, nor a row of a table more cells."""
    out = outcome.out
    if is_table:
        assert len({line.count("\t") for line in out.splitlines()}) == 1
        out = out.replace("\t", " ")
    for stream in (out, outcome.err):
        assert UNSAFE.findall(stream) == []
        assert [line for line in stream.splitlines() if line.lstrip().startswith("forged")] == []


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, a model, bases and texts that all contain control characters."""
    folder = tmp_path_factory.mktemp("hostile")
    make_pearl(folder / "model", name=names("model"))
    config = json.loads((folder / "model" / "pearl.json").read_bytes())
    (folder / "model" / "pearl.json").write_text(json.dumps({**config, "training": {EVIL: EVIL}}), encoding="utf-8")
    fill(folder / "store", "base", str(folder / "model"), ENTITIES)
    store = open_store(folder / "store")
    base = store.open("base")
    evil = {"kb_version": names("v"), "created_by": names("by"), "type_map_version": names("t")}
    base.write_manifest(base.manifest.model_copy(update=evil))
    store.close()
    calibration = {"slope": 1.0, "nil_bias": 0.0, "threshold": 0.1, "fitted_on": EVIL, EVIL: 1}
    gone = {"model": names("model"), "kb": names("kb"), "calibration": calibration}
    for name, changed in (("gone", gone), ("demo", {})):
        manifest = copy_files(folder / "store" / "base", folder / "store" / name) / "manifest.json"
        kept = json.loads(manifest.read_bytes())
        manifest.write_text(json.dumps({**kept, "collection": name, **changed}), encoding="utf-8")
    rows = [
        "id\tname\ttype\taliases",
        f"e1\tAc{EVIL[:20]}me\tORG|{EVIL[:9]}\tAlias{EVIL[7:20]}",
        f"\tno id {EVIL[:9]}\t\t",
    ]
    (folder / "base.tsv").write_text("\n".join(rows), encoding="utf-8")
    (folder / "text.txt").write_text(f"We saw {names('Acme')} and Twin and Plain Thing.", encoding="utf-8")
    (folder / "mentions.txt").write_text("Twin\nAcme" + EVIL.replace("\n", "") + "\n", encoding="utf-8")
    (folder / "pairs.tsv").write_text(f"Acme\t{EVIL.splitlines()[0]}\n" * 60, encoding="utf-8")
    return folder


@pytest.fixture
def ask(run: Run, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line with the hostile store, in its folder."""
    monkeypatch.setenv("PEARL_QDRANT_STORE", str(hostile / "store"))
    monkeypatch.chdir(hostile)
    return run


TWICE = ("--collection", "base", "--threshold", "0")

SHOWN: list[tuple[str, ...]] = [
    ("link", names("Acme"), "Twin", *TWICE, "--explain"),
    ("link", names("Acme"), *TWICE, "--explain", "--json"),
    ("annotate", "--file", "text.txt", *TWICE, "--set", "include_nil=yes", "--set", "on_tie=first"),
    ("annotate", f"We saw {names('Twin')}.", *TWICE, "--markup", "markdown"),
    ("entities", "show", names("id"), "--collection", "base"),
    ("collections", "list"),
    ("collections", "show", "base"),
    ("collections", "show", "gone"),  # a calibration in a manifest may have further fields
    ("models", "show", "model"),
    ("models", "list"),
    ("doctor", "--model", "model"),
    ("ingest", "base.tsv", "--model", "model", "--collection", "loaded", "--max-errors", "9"),
    ("ingest", "base.tsv", "--dry-run", "--json"),
    ("resolve", "mentions.txt", "--collection", "base", "--set", "model=model"),
    ("crosswalk", "base.tsv", "base"),
    ("demo",),
]
"""Commands that show contents of the base."""

REFUSED: list[tuple[str, ...]] = [
    ("link", "x", "--collection", "gone"),
    ("link", "x", "--limit", EVIL),
    ("link", "x", f"--{EVIL}"),
    ("link", "--file", f"none{EVIL}"),
    ("annotate", "x", "--type", EVIL, "--collection", "base"),
    ("calibrate", "--collection", "base", "--labelled", "pairs.tsv"),
    ("learn", "--collection", "base", "--labelled", "pairs.tsv"),
    ("learn", "--collection", "base", "--undo", EVIL),
    ("entities", "show", names("none"), "--collection", "base"),
    ("entities", "add", "--id", "x", "--name", "\udcff", "--collection", "base"),
    ("entities", "delete", names("none"), "--collection", "base", "--yes"),
    ("collections", "delete", names("c"), "--yes"),
    ("collections", "delete", "gone"),
    ("collections", "finalize", names("c")),
    ("collections", "verify", "gone"),
    ("collections", "push", names("c"), "--to", "copy"),
    ("collections", "pull", names("c"), "--from", "store"),
    ("collections", "prune", names("c"), "--yes"),
    ("reencode", names("c"), "--rollback"),
    ("reencode", "base", "--model", f"/none/{EVIL}"),
    ("models", "export", f"/none/{EVIL}", "out"),
    ("doctor", "--model", "model", "--store", f"http://{EVIL}"),
    ("evaluate", "--data", "base.tsv", "--task", EVIL),
    ("ingest", f"/none/{EVIL}"),
    ("ingest", "base.tsv", "--max-errors", "0"),
    ("ingest", "base.tsv", "--collection", EVIL),
    *(("train", name, f"/none/{EVIL}", "out") for name in COMMANDS),
    ("train", "corpus", f"/none/{EVIL}", "--out", "corpus"),
    ("train", "ulr", f"/none/{EVIL}", "out", "--text", f"/none/{EVIL}"),
    ("train", "refresh", f"/none/{EVIL}", "--out", "model2"),
    ("demo", "--store", f"ftp://{EVIL}"),
    ("serve", "--collection", names("c"), "--store", f"/none/{EVIL}", "--api-keys", f"/none/{EVIL}"),
    ("mcp", "--collection", names("c")),
    ("resolve", f"/none/{EVIL}"),
    ("crosswalk", "base.tsv", names("c")),
    (EVIL,),
]
"""Commands that fail and show why."""


@pytest.mark.parametrize("words", SHOWN, ids=lambda words: " ".join(words)[:30])
def test_contents_of_a_base_are_shown_escaped(ask: Run, words: tuple[str, ...]) -> None:
    """Names, ids, types, descriptions and values of the manifest are escaped, as text and as JSON."""
    outcome = ask(*words)

    assert outcome.status == 0, outcome.err
    assert words[0] not in ("annotate", "demo") or "1b]0;owned" in outcome.out, "no name is shown"
    assert words[-1] != "gone" or r"fitted_on \x1b]0;owned" in outcome.out
    check(outcome, is_table=words[0] in TABLES)


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words)[:30])
def test_wrong_values_are_shown_escaped(ask: Run, words: tuple[str, ...]) -> None:
    """An error shows the wrong value, escaped."""
    outcome = ask(*words)

    assert outcome.status != 0
    assert outcome.err or outcome.out
    check(outcome)


def test_json_gives_the_names_unchanged(ask: Run) -> None:
    """A program that reads the lines gets the original name, and in words no part of it is dropped."""
    (entity,) = ask("entities", "show", names("id"), "--collection", "base", "--json").lines()
    (link,) = ask("link", names("Acme"), *TWICE, "--json").lines()

    assert (entity["entity_id"], entity["canonical_name"]) == (names("id"), names("Acme"))
    assert link["mention"] == names("Acme")
    shown = ask("entities", "show", names("id"), "--collection", "base").out
    assert r"canonical_name  Acme \x1b]0;owned\x07\x1b[2J\x08\u009b31m\u202egpj.exe" in shown
    assert r"\nforged line" in shown


def test_every_command_is_in_the_lists() -> None:
    """A new command needs an entry above."""
    tried = SHOWN + REFUSED

    assert [one for one in leaves(cli) if not any(f"{' '.join(words)} ".startswith(f"{one} ") for words in tried)] == []


def test_names_from_a_hostile_server_are_escaped(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of collections on a server, and its error messages, are escaped."""
    from qdrant_client import models

    with QdrantDouble() as server:
        monkeypatch.setenv("PEARL_QDRANT_STORE", server.url)
        server.client.create_collection(
            names("c"), vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT)
        )
        server.client.create_collection(
            "other", vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT)
        )
        listed = run("collections", "list")
        as_json = run("collections", "list", "--json")
        unnamed = run("link", "x")
        found = run("doctor", "--model", str(model))

    assert r"c \x1b]0;owned" in listed.out
    states = [(line["collection"], line["state"]) for line in as_json.lines()]
    assert sorted(states) == [(names("c"), "unusable"), ("other", "unusable")]
    assert r"c \x1b]0;owned" in unnamed.err
    for outcome in (listed, as_json, unnamed, found):
        check(outcome)
