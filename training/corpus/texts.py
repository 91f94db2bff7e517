"""Read the texts of a corpus: plain text, or JSON Lines with a text field; compressed or not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ingest.io.lines import BadLine, byte_lines
from ingest.io.report import INVALID_UTF8, ReadReport
from ingest.io.source import ByteSource
from pearl_qdrant.errors import FormatError
from training.options import DEFAULT_FIELD

MAX_TEXT_BYTES = 64 << 20
"""A longer line is skipped: no article is as long."""

NOT_JSON = "not_json"
NO_TEXT = "no_text"

_HEAD_BYTES = 1 << 12


def read_texts(source: ByteSource, report: ReadReport, *, field: str = DEFAULT_FIELD) -> Iterator[str]:
    """Yield the texts of a file: the field of each row of JSON Lines, or each line of plain text.

    The first character that is not white space decides: a file that starts with `{` is JSON Lines.

    Args:
        source: A file, a pipe or standard input, plain or compressed.
        report: Counts rows, and those skipped.
        field: Name of the text field in JSON Lines.

    Raises:
        FormatError: If the file is empty or not text, or no row has the field.
        TooManyErrorsError: If more rows are bad than the report allows.
    """
    is_json = source.head(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    report.notes.append(f"{source.path}: " + (f"JSON Lines, field '{field}'" if is_json else "plain text"))
    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    n_texts = 0
    for number, line in byte_lines(source, max_bytes=MAX_TEXT_BYTES):
        if isinstance(line, BadLine):
            report.rows += 1
            report.skip(line.reason, path=source.path, line=number, text=line.text)
            continue
        if not line.strip():
            continue
        report.rows += 1
        text, reason = _field(decoder, line, field) if is_json else _decoded(line)
        if text is None:
            report.skip(reason, path=source.path, line=number, text=line[:200].decode("utf-8", "replace"))
            continue
        n_texts += 1
        yield text
    if is_json and not n_texts:
        raise FormatError(
            source.path, None, f"no row has the field '{field}'. Give the name of the text field as 'field'"
        )


def _decoded(line: bytes) -> tuple[str | None, str]:
    try:
        return line.decode("utf-8").rstrip("\r"), ""
    except UnicodeDecodeError:
        return None, INVALID_UTF8


def _field(decoder: msgspec.json.Decoder[dict[str, msgspec.Raw]], line: bytes, field: str) -> tuple[str | None, str]:
    """Return the text of a row; or None and the reason."""
    try:
        row = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, NOT_JSON
    try:
        return msgspec.json.decode(row[field], type=str), ""
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, NO_TEXT
