"""Every command with a hostile base: no name in it controls the terminal or forges a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli_runner import Outcome, Run
from edge_cases import copy_files
from linker_base import fill
from qdrant_double import QdrantDouble
from tiny_models import make_pearl

from pearl_qdrant import Entity
from pearl_qdrant.cli import cli
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import LinkCalibration

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
    store = EdgeStore(folder / "store")
    base = store.open("base")
    evil = {"kb_version": names("v"), "created_by": names("by"), "type_map_version": names("t")}
    base.write_manifest(base.manifest.model_copy(update=evil))
    store.close()
    copy_files(folder / "store" / "base", folder / "store" / "gone")
    manifest = folder / "store" / "gone" / "manifest.json"
    changed = {**json.loads(manifest.read_bytes()), "collection": "gone", "model": names("model"), "kb": names("kb")}
    manifest.write_text(json.dumps(changed), encoding="utf-8")
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

SHOWN: list[tuple[int, tuple[str, ...]]] = [
    (0, ("link", names("Acme"), "Twin", *TWICE)),
    (0, ("link", names("Acme"), "Twin", *TWICE, "--explain")),
    (0, ("link", names("Acme"), *TWICE, "--explain", "--json")),
    (0, ("link", "--file", "mentions.txt", *TWICE)),
    (0, ("annotate", "--file", "text.txt", *TWICE, "--nil", "--on-tie", "first")),
    (0, ("annotate", "--file", "text.txt", *TWICE, "--json")),
    (0, ("annotate", names("Twin"), *TWICE, "--context", names("context"))),
    (0, ("entities", "show", names("id"), "--collection", "base")),
    (0, ("entities", "show", names("id"), "--collection", "base", "--json")),
    (0, ("collections", "list")),
    (0, ("collections", "show", "base")),
    (0, ("collections", "show", "base", "--json")),
    (0, ("collections", "show", "gone")),
    (0, ("models", "show", "model")),
    (0, ("models", "show", "model", "--json")),
    (0, ("models", "list")),
    (0, ("doctor", "--model", "model")),
    (0, ("doctor", "--model", "model", "--json")),
    (0, ("ingest", "base.tsv", "--model", "model", "--collection", "loaded")),
    (0, ("ingest", "base.tsv", "--dry-run", "--json")),
    (0, ("resolve", "mentions.txt", "--collection", "base", "--model", "model")),
    (0, ("crosswalk", "base.tsv", "base")),
    (0, ("demo", "--collection", "base")),
]
"""Commands that show contents of the base."""

REFUSED: list[tuple[str, ...]] = [
    ("link", "x", "--collection", "gone"),
    ("link", "x", "--collection", "base", "--type", names("type")),
    ("link", "x", "--limit", EVIL),
    ("link", "x", f"--{EVIL}"),
    ("link", "--file", f"none{EVIL}"),
    ("link", "x", "--model", names("m"), "--collection", "base"),
    ("annotate", "x", "--collection", names("c")),
    ("annotate", "x", "--type", EVIL, "--collection", "base"),
    ("calibrate", "--collection", "base", "--pairs", "pairs.tsv"),
    ("calibrate", "--collection", "base", "--pairs", f"none{EVIL}"),
    ("learn", "--collection", "base", "--labelled", "pairs.tsv"),
    ("learn", "--collection", "base", "--undo", EVIL),
    ("learn", "--collection", names("c"), "--list"),
    ("entities", "show", names("none"), "--collection", "base"),
    ("entities", "add", "--id", "x", "--name", "\udcff", "--collection", "base"),
    ("entities", "delete", names("none"), "--collection", "base", "--yes"),
    ("entities", "delete", names("none"), "--collection", "base"),
    ("collections", "show", names("c")),
    ("collections", "delete", names("c"), "--yes"),
    ("collections", "delete", "gone"),
    ("collections", "finalize", names("c")),
    ("collections", "verify", "gone"),
    ("collections", "verify", "gone", "--json"),
    ("collections", "push", names("c"), "--to", "copy"),
    ("collections", "pull", names("c"), "--from", "store"),
    ("collections", "prune", names("c"), "--yes"),
    ("reencode", names("c"), "--rollback"),
    ("reencode", "base", "--model", f"/none/{EVIL}"),
    ("models", "show", f"/none/{EVIL}"),
    ("models", "export", f"/none/{EVIL}", "out", "--torch"),
    ("doctor", "--model", names("m")),
    ("doctor", "--store", f"http://{EVIL}"),
    ("evaluate", "--data", f"/none/{EVIL}"),
    ("evaluate", "--data", "base.tsv", "--task", EVIL),
    ("ingest", f"/none/{EVIL}"),
    ("ingest", "base.tsv", "--max-errors", "0"),
    ("ingest", "base.tsv", "--collection", EVIL),
    ("train", "corpus", f"/none/{EVIL}", "--out", "corpus"),
    ("train", "paraphrase", "--corpus", f"/none/{EVIL}"),
    ("train", "synonyms", "--corpus", f"/none/{EVIL}"),
    ("train", "love", "--corpus", f"/none/{EVIL}"),
    ("train", "ulr", f"/none/{EVIL}", "out", "--text", f"/none/{EVIL}"),
    ("train", "ngrams", f"/none/{EVIL}", "out"),
    ("train", "average", f"/none/{EVIL}", f"/none/{EVIL}"),
    ("train", "export", f"/none/{EVIL}"),
    ("train", "negatives", "--corpus", f"/none/{EVIL}"),
    ("train", "fit", "--corpus", f"/none/{EVIL}"),
    ("train", "head", f"/none/{EVIL}"),
    ("train", "refresh", f"/none/{EVIL}", "--out", "model2"),
    ("serve", "--collection", names("c"), "--store", f"/none/{EVIL}", "--api-keys", f"/none/{EVIL}"),
    ("mcp", "--collection", names("c")),
    ("resolve", f"/none/{EVIL}"),
    ("crosswalk", "base.tsv", names("c")),
    (EVIL,),
]
"""Commands that fail and show why."""


@pytest.mark.parametrize(
    "status, words", SHOWN, ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else ""
)
def test_contents_of_a_base_are_shown_escaped(ask: Run, status: int, words: tuple[str, ...]) -> None:
    """Names, ids, types, descriptions and values of the manifest are escaped, as text and as JSON."""
    outcome = ask(*words)

    assert outcome.status == status, outcome.err
    check(outcome, is_table=words[0] in TABLES)


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words)[:30])
def test_wrong_values_are_shown_escaped(ask: Run, words: tuple[str, ...]) -> None:
    """An error shows the wrong value, escaped."""
    outcome = ask(*words)

    assert outcome.status != 0
    assert outcome.err or outcome.out
    check(outcome)


def test_json_gives_the_names_unchanged(ask: Run) -> None:
    """A program that reads the lines gets the original name."""
    (entity,) = ask("entities", "show", names("id"), "--collection", "base", "--json").lines()
    (link,) = ask("link", names("Acme"), *TWICE, "--json").lines()

    assert (entity["entity_id"], entity["canonical_name"]) == (names("id"), names("Acme"))
    assert link["mention"] == names("Acme")


def test_names_are_shown_in_full(ask: Run) -> None:
    """No part of a name is dropped."""
    shown = ask("entities", "show", names("id"), "--collection", "base").out

    assert r"canonical_name  Acme \x1b]0;owned\x07\x1b[2J\x08\u009b31m\u202egpj.exe" in shown
    assert r"\nforged line" in shown


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that is not a group, by its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


def test_every_command_is_in_the_lists() -> None:
    """A new command needs an entry above."""
    tried = [words for _, words in SHOWN] + REFUSED

    assert [" ".join(one) for one in commands(cli) if not any(words[: len(one)] == one for words in tried)] == []


def test_names_from_a_hostile_server_are_escaped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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
        found = run("doctor")

    assert r"c \x1b]0;owned" in listed.out
    states = [(line["collection"], line["state"]) for line in as_json.lines()]
    assert sorted(states) == [(names("c"), "unusable"), ("other", "unusable")]
    assert r"c \x1b]0;owned" in unnamed.err
    for outcome in (listed, as_json, unnamed, found):
        check(outcome)


def test_a_calibration_from_a_manifest_is_shown_escaped(ask: Run, hostile: Path) -> None:
    """A calibration in a manifest may have extra fields with any text."""
    store = EdgeStore(hostile / "store")
    base = store.open("base")
    fitted = LinkCalibration.model_validate(
        {"slope": 1.0, "nil_bias": 0.0, "threshold": 0.1, "fitted_on": EVIL, EVIL: 1}
    )
    before = base.manifest
    base.write_manifest(before.model_copy(update={"calibration": fitted}))
    store.close()

    outcome = ask("collections", "show", "base")
    store = EdgeStore(hostile / "store")
    store.open("base").write_manifest(before)
    store.close()

    assert r"fitted_on \x1b]0;owned" in outcome.out
    check(outcome)
