"""Control characters in the output of commands are made visible, by one function in one place."""

from __future__ import annotations

import ast
import io
import json
import logging
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tqdm import tqdm

from pearl_qdrant.cli.common import terminal
from pearl_qdrant.cli.common.terminal import VisibleStream, echo, echo_json, visible

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
        ("a\bb\rc\nd\te\x00", r"a\x08b\rc\nd\te\x00"),
        ("\x7f\x9b2J\x85", r"\u007f\u009b2J\u0085"),
        ("\u202egpj.exe\u2066\u2069", r"\u202egpj.exe\u2066\u2069"),
        ("\u200e\u200f\u061c\u2028\u2029\ud800", r"\u200e\u200f\u061c\u2028\u2029\ud800"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    """Escape sequences, bells, backspaces, line ends and direction marks are shown as escapes."""
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Zürich, Zu\u0308rich, N\u0303andu\u0301",
        "👩\u200d🔬 and 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "أحمد بن حنبل",
        "שלום עולם",
        "می\u200cخواهم",
        "กรุงเทพ 東京 서울",
        "C:\\new\\table",
        "soft\u00adhyphen",
    ],
)
def test_names_of_every_script_stay_readable(text: str) -> None:
    """Accents, emoji joiners and right-to-left letters are not control characters."""
    assert visible(text) == text


@settings(max_examples=examples(500), deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=[])))
def test_no_control_character_is_left(text: str) -> None:
    """Any text is shown as one line without control characters, and escaping it again changes nothing."""
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


def test_a_newline_in_a_name_starts_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Each line that a command prints stays one line, whatever it contains."""
    echo("first", "sec\nond")
    echo("talk\x07", err=True)

    captured = capsys.readouterr()
    assert captured.out == "first\nsec\\nond\n"
    assert captured.err == "talk\\x07\n"


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


def test_a_terminal_without_utf_8_gets_escapes() -> None:
    """Letters that its encoding lacks are written as JSON escapes; nothing fails."""
    raw = io.BytesIO()
    stream = VisibleStream(io.TextIOWrapper(raw, encoding="latin-1"))

    stream.write('{"name": "Zürich"}\n')
    stream.write('{"name": "Łódź 🦄"}\n')
    stream.flush()

    assert [json.loads(line)["name"] for line in raw.getvalue().decode("latin-1").splitlines()] == [
        "Zürich",
        "Łódź 🦄",
    ]


def test_tracebacks_are_escaped() -> None:
    """If a command fails with a traceback, the values in it are escaped too."""
    program = (
        "from pearl_qdrant.cli.common.terminal import visible_streams\n"
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
    """Functions that a module calls, as written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_commands_print_only_by_echo_and_echo_json() -> None:
    """A new command is as safe as the others, since no module prints in another way."""
    ways = {"click.echo", "click.secho", "click.confirm", "click.prompt", "click.echo_via_pager", "print"}
    modules = {path.name: set(calls(ast.parse(path.read_text("utf-8")))) for path in CLI.rglob("*.py")}

    assert ways & modules.pop("terminal.py") == {"click.echo", "click.confirm", "click.prompt"}
    assert len(modules) > 15
    assert {name: ways & called for name, called in modules.items() if ways & called} == {}
    assert not any(one.startswith(("sys.stdout.write", "sys.stderr.write")) for m in modules.values() for one in m)
