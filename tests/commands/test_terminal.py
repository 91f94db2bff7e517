"""Control characters in what commands print: made visible, by one function, in one place."""

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
from hypothesis import given, settings
from hypothesis import strategies as st
from tqdm import tqdm

from pearl_qdrant.cli.common import terminal
from pearl_qdrant.cli.common.terminal import VisibleStream, echo, echo_json, visible

CLI = Path(terminal.__file__).parents[1]


def is_unsafe(character: str) -> bool:
    """Whether a character may do something to a terminal, or to the order of a line."""
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
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    """Escape sequences, bells, backspaces, line ends and marks of direction are shown as what they are."""
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
    """Accents, joiners of emoji, and letters written from right to left are no control characters."""
    assert visible(text) == text


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=[])))
def test_no_character_that_does_something_is_left(text: str) -> None:
    """Of any text at all, what is shown holds none, is one line, and is shown the same when shown again."""
    shown = visible(text)

    assert not any(map(is_unsafe, shown))
    assert visible(shown) == shown
    harmless = "".join(character for character in text if not is_unsafe(character))
    assert visible(harmless) == harmless


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=[])))
def test_json_says_the_same_and_does_nothing_to_a_terminal(text: str) -> None:
    """A line of JSON is one line without control characters, and read back it is what was written."""
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


def test_lines_of_ours_are_lines_and_those_of_a_name_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    """What a command prints as several lines stands on several lines, whatever stands in them."""
    echo("first", "sec\nond")
    echo("talk\x07", err=True)

    captured = capsys.readouterr()
    assert captured.out == "first\nsec\\nond\n"
    assert captured.err == "talk\\x07\n"


def test_a_log_record_is_one_line() -> None:
    """What libraries log, a server's answer for one, is made visible too."""
    record = logging.LogRecord("x", logging.WARNING, "", 0, "got %s", ("a\x1b[31m\nERROR all is lost",), None)

    assert terminal._LineFormatter("%(levelname)s %(message)s").format(record) == (
        r"WARNING got a\x1b[31m\nERROR all is lost"
    )


def test_a_progress_bar_still_moves() -> None:
    """A bar writes over its own line, and what it is named after is made visible."""
    out = io.StringIO()

    with tqdm(total=2, desc="a\x1b[31m\u202e", file=VisibleStream(out), ascii=True) as bar:  # type: ignore[arg-type]
        bar.update(2)

    assert out.getvalue().startswith("\r")
    assert r"a\x1b[31m\u202e: 100%" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_a_terminal_that_is_not_for_utf_8_gets_what_it_can_show() -> None:
    """Letters that it lacks are escaped, as JSON has it, and nothing fails."""
    raw = io.BytesIO()
    stream = VisibleStream(io.TextIOWrapper(raw, encoding="latin-1"))

    stream.write('{"name": "Zürich"}\n')
    stream.write('{"name": "Łódź 🦄"}\n')
    stream.flush()

    assert [json.loads(line)["name"] for line in raw.getvalue().decode("latin-1").splitlines()] == [
        "Zürich",
        "Łódź 🦄",
    ]


def test_a_traceback_does_nothing_to_a_terminal() -> None:
    """Should a command fail in a way that nobody thought of, its values are made visible as well."""
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
    """What is called in a module, as it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_commands_print_in_one_way_alone() -> None:
    """Every command prints by `echo` and `echo_json`, so that a new one is as safe as the others."""
    ways = {"click.echo", "click.secho", "click.confirm", "click.prompt", "click.echo_via_pager", "print"}
    modules = {path.name: set(calls(ast.parse(path.read_text("utf-8")))) for path in CLI.rglob("*.py")}

    assert ways & modules.pop("terminal.py") == {"click.echo", "click.confirm"}
    assert len(modules) > 15
    assert {name: ways & called for name, called in modules.items() if ways & called} == {}
    assert not any(one.startswith(("sys.stdout.write", "sys.stderr.write")) for m in modules.values() for one in m)
