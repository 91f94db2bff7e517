r"""Output of commands, with control characters made visible.

Names, files and servers may hold an escape sequence that renames or clears the terminal's window, or a direction mark
that reverses a line. Commands print only by `echo`, `echo_row` and `echo_json`, so that these never reach the terminal:

    line        by `echo`: every control character and direction mark is written as `\x1b`, `\n` or `\u202e`
    TSV         by `echo_row`: the same, but for the tabs between cells
    JSON        by `echo_json`: the same, but as JSON escapes, so that the values stay the same
    the rest    progress bars, warnings, click's own messages, tracebacks: the streams are wrapped

Letters of every script, accents, and the joiners within emoji are not changed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO, cast

import click

from pearl_qdrant.errors import InputError, PearlQdrantError

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""C0, DEL and C1 without tab and newline, direction marks (Unicode's Bidi_Control), line separators, and lone
surrogates, which no stream takes."""

_IN_LINE = re.compile(rf"[{_UNSAFE}\t\n]")
_IN_STREAM = re.compile(rf"[{_UNSAFE}]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

_BAR_PREFIX = re.compile(r"\r|(?:\x1b\[A)+\Z")
"""Written by a progress bar before a line, or alone, to replace its last line."""


def visible(text: str) -> str:
    """Return a text as one line, with every control character and direction mark escaped."""
    return text if text.isprintable() else _IN_LINE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    if character < " ":
        return _NAMED.get(character) or f"\\x{ord(character):02x}"
    return _as_json_escape(found)  # it may be within JSON


def _as_json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def echo(*lines: str, err: bool = False) -> None:
    """Print lines; a newline within one is escaped.

    Args:
        lines: The lines, printed as `visible` makes them.
        err: Print on stderr, for messages; data goes to stdout.
    """
    click.echo("\n".join(map(visible, lines)), err=err)


def echo_row(row: str) -> None:
    """Print a row of tab-separated cells on stdout; other control characters are escaped."""
    click.echo("\t".join(map(visible, row.split("\t"))))


def echo_json(record: object) -> None:
    """Print a record as one line of JSON on stdout."""
    click.echo(_IN_STREAM.sub(_as_json_escape, json.dumps(record, ensure_ascii=False)))


def echo_result(record: object, *lines: str, as_json: bool) -> None:
    """Print a result on stdout: as one line of JSON, or in words."""
    if as_json:
        echo_json(record)
    else:
        echo(*lines)


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[str] = ()) -> list[str]:
    """Lines of a table with aligned columns, the header first; none if there are no rows.

    Args:
        rows: Cells as text; control characters are made visible.
        numbers: The columns that are aligned on the right.
    """
    lines = [list(columns), *([visible(cell) for cell in row] for row in rows)]
    if len(lines) == 1:
        return []
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    forms = [f"{{:{'>' if column in numbers else '<'}{width}}}" for column, width in zip(columns, widths, strict=True)]
    return ["  ".join(forms).format(*line).rstrip() for line in lines]


def ask(question: str) -> str:
    """Ask on stderr for a line, which may be empty."""
    return str(click.prompt(visible(question), default="", err=True, show_default=False))


def confirm(question: str, *, abort: bool = True) -> bool:
    """Ask on stderr. Raises click.Abort if nobody can answer, or if the answer is no and `abort` is set."""
    try:
        return click.confirm(visible(question), abort=abort, err=True)
    except InputError as error:  # standard input is closed
        raise click.Abort from error


def show_usage_error(error: click.ClickException) -> None:
    """Print click's own message, with control characters in the user's input made visible."""
    message = visible(error.format_message())
    error.format_message = lambda: message  # type: ignore[method-assign]
    error.show()


def start_logging(*, verbose: bool) -> None:
    """Show log messages on stderr: warnings, or everything."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


class _LineFormatter(logging.Formatter):
    """Formats a record as one line, with its traceback below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        return visible(super().formatMessage(record))


class OutputError(PearlQdrantError):
    """Standard output is closed, or cannot be written."""


class VisibleStream:
    """A text stream that lets no control characters pass, except tab, newline and those of a progress bar.

    Where standard output cannot be written, that is an `OutputError`; messages that cannot be are lost.
    """

    def __init__(self, stream: TextIO, *, is_error: bool = False) -> None:
        self._stream = stream
        self._is_error = is_error

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)  # so that nothing can bypass `write`
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        bar = _BAR_PREFIX.match(text)
        start = bar.end() if bar else 0
        shown = text[:start] + _IN_STREAM.sub(_escape, text[start:])
        with self._told():
            try:
                self._stream.write(shown)
            except UnicodeEncodeError:  # the terminal does not use UTF-8
                self._stream.write(_NOT_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], shown))
        return len(text)

    def flush(self) -> None:
        with self._told():
            self._stream.flush()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn errors of the stream, other than that its reader is gone, into an `OutputError`."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            if not self._is_error:
                raise OutputError(f"Standard output cannot be written: {error.strerror or error}.") from error

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)


class ClosedInput:
    """Takes the place of a standard input that is closed: using it is an error in words."""

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> NoReturn:
        raise InputError("-", None, "standard input is closed. Give a file, or a pipe")


@contextmanager
def visible_streams() -> Iterator[None]:
    """Wrap stdout and stderr until the program exits. After an error they stay wrapped, for the traceback.

    A stream that is closed is replaced: without that, the next file that is opened would get its number.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)  # writing what is closed stays an error
    if sys.stdin is None:
        sys.stdin = cast("TextIO", ClosedInput())
    sys.stdout = cast("TextIO", VisibleStream(sys.stdout or os.fdopen(1, "w", closefd=False)))
    sys.stderr = cast("TextIO", VisibleStream(sys.stderr or os.fdopen(2, "w", closefd=False), is_error=True))
    try:
        yield
    except SystemExit:
        sys.stdin, sys.stdout, sys.stderr = before
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:  # click ends a command whose reader is gone, and leaves what it could not write in the buffer
            silence_output()
        raise


def silence_output() -> None:
    """Write nothing more to stdout, not even what is left in its buffer when the program ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
