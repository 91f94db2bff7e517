"""Read the small files of a release (MRFILES, MRRANK, SRDEF, SemGroups) line by line, with a bound on their rows."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.io.lines import BadLine, read_lines
from ingest.io.streams import ByteSource
from pearl_qdrant.errors import FormatError

_SHOWN = 60  # characters of a bad line in the error


def read_small_file(source: ByteSource | None, *, most: int, hint: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines of a file, blank ones left out; nothing for a file that is not there.

    Args:
        source: The file, or None.
        most: Rows that it may have.
        hint: Ends the error for a file with more, as in "Is it another file?".

    Raises:
        FormatError: If a line is not text, or there are too many.
    """
    if source is None:
        return
    n_rows = 0
    for number, line in read_lines(source):
        if isinstance(line, BadLine):
            raise FormatError(source.path, number, f"{line.reason}: {line.text[:_SHOWN]!r}. Fetch the file again")
        if line.strip():
            n_rows += 1
            if n_rows > most:
                raise FormatError(source.path, number, f"has over {most:,} rows. {hint}")
            yield number, line
