r"""What commands write: data and talk with control characters made visible, whatever names, files and servers hold.

A name may hold an escape sequence that renames the terminal's window or clears it, or a mark of direction that turns a
line around. Commands print by `echo` and `echo_json` alone, so that none of it reaches the terminal as it is:

    line        by `echo`: every control character and mark of direction is written as `\x1b`, `\n` or `\u202e`
    JSON        by `echo_json`: likewise, but as JSON escapes, so that the values are the same
    the rest    progress bars, warnings, click's own messages, tracebacks: the streams themselves are wrapped

Letters of every script, accents, and the joiners within emoji stay as they are.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

import click

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""C0, DEL and C1, marks of direction (Unicode's Bidi_Control), separators of lines, and lone surrogates, which no
stream takes; all but tab and newline."""

_IN_LINE = re.compile(rf"[{_UNSAFE}\t\n]")
_IN_STREAM = re.compile(rf"[{_UNSAFE}]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

_OF_A_BAR = re.compile(r"\r|(?:\x1b\[A)+\Z")
"""What a progress bar writes before a line, or alone, to write over its last one."""


def visible(text: str) -> str:
    """A text as one line, with every control character and mark of direction written out."""
    return text if text.isprintable() else _IN_LINE.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    character = found.group()
    if character < " ":
        return _NAMED.get(character) or f"\\x{ord(character):02x}"
    return _as_json_escape(found)  # which may stand within JSON


def _as_json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def echo(*lines: str, err: bool = False) -> None:
    """Print lines; one that holds a newline stays one line.

    Args:
        lines: What is printed, each as `visible` makes it.
        err: On stderr, for talk; data goes to stdout.
    """
    click.echo("\n".join(map(visible, lines)), err=err)


def echo_json(record: object) -> None:
    """Print a line of JSON on stdout."""
    click.echo(_IN_STREAM.sub(_as_json_escape, json.dumps(record, ensure_ascii=False)))


def confirm(question: str, *, abort: bool = True) -> bool:
    """Ask on stderr.

    Raises:
        click.Abort: If nobody is there, or the answer is no and that is to end the command.
    """
    return click.confirm(visible(question), abort=abort, err=True)


def show_usage_error(error: click.ClickException) -> None:
    """Print click's own message, with what the user typed made visible."""
    message = visible(error.format_message())
    error.format_message = lambda: message  # type: ignore[method-assign]
    error.show()


def start_logging(*, verbose: bool) -> None:
    """Let the libraries speak on stderr: warnings, or all that happens."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


class _LineFormatter(logging.Formatter):
    """A record as one line, its traceback below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        return visible(super().formatMessage(record))


class VisibleStream:
    """A text stream through which no control character goes but tab, newline, and what a progress bar needs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)  # no way past `write`
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        bar = _OF_A_BAR.match(text)
        start = bar.end() if bar else 0
        shown = text[:start] + _IN_STREAM.sub(_written_out, text[start:])
        try:
            self._stream.write(shown)
        except UnicodeEncodeError:  # a terminal that is not for UTF-8
            self._stream.write(_NOT_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], shown))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)


@contextmanager
def visible_streams() -> Iterator[None]:
    """Wrap stdout and stderr until the program exits; a traceback of what went wrong is still to go through them."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast("TextIO", VisibleStream(sys.stdout))
    sys.stderr = cast("TextIO", VisibleStream(sys.stderr))
    try:
        yield
    except SystemExit:
        sys.stdout, sys.stderr = before
        raise
