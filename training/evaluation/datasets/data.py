"""Where the evaluation sets come from: one protocol, and the folder layout.

    pearl_bench/{ppdb,ppdb_filtered,turney,bird,yago_test,umls_test,conll2003,bc5cdr}.tsv
    autofj/{left,right,gt}.tsv   intent/atis.tsv   tweets/sentiment.tsv
    typed_names/onto_typed_names.tsv   kb/general.tsv   kb/biomedical/*.tsv

UTF-8 TSV with a header and no quoting; columns are found by name.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from pearl_qdrant.errors import FormatError, SettingsError
from pearl_qdrant.settings import MAX_LINE_BYTES

Row = tuple[str, ...]


class Data(Protocol):
    """Tables by their path in the layout."""

    def paths(self, pattern: str) -> list[str]:
        """Paths of the tables that are there and match, as `kb/biomedical/*.tsv`; sorted."""
        ...

    def rows(self, path: str, *columns: str) -> list[Row]:
        """These columns of a table that is there.

        Raises:
            FormatError: If the table has no such column, or a row is broken.
        """
        ...


class FolderData:
    """Tables of a folder.

    Raises:
        SettingsError: If there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise SettingsError(f"No folder {folder}. Name the one that holds pearl_bench/, autofj/ and the others.")
        self._folder = folder

    def paths(self, pattern: str) -> list[str]:
        return sorted(path.relative_to(self._folder).as_posix() for path in self._folder.glob(pattern))

    def rows(self, path: str, *columns: str) -> list[Row]:
        place = self._folder / path
        rows: list[Row] = []
        line = 0
        try:
            # Bytes, so that a line that is no UTF-8 can be named; a name may hold a carriage return.
            with place.open("rb") as file:
                line = 1
                lines = _lines(file, str(place))
                header = _fields(next(lines, b"").removeprefix(BOM_UTF8))
                if absent := [column for column in columns if column not in header]:
                    raise FormatError(
                        str(place), 1, f"no column {', '.join(absent)}; its header is {', '.join(header) or 'empty'}."
                    )
                wanted = [header.index(column) for column in columns]
                for line, text in enumerate(lines, 2):
                    fields = _fields(text)
                    if len(fields) != len(header):
                        raise FormatError(
                            str(place), line, f"expected {len(header)} fields, found {len(fields)}. Is a tab missing?"
                        )
                    rows.append(tuple(fields[i] for i in wanted))
        except UnicodeDecodeError as error:
            raise FormatError(str(place), line, f"no UTF-8 text ({error.reason}). Convert it to UTF-8.") from error
        except OSError as error:
            raise FormatError(str(place), None, f"cannot be read ({error.strerror or error}).") from error
        if not rows:
            raise FormatError(str(place), None, "holds no rows.")
        return rows


def _lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Lines, none of them held if it is longer than any honest one."""
    for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise FormatError(path, number, f"longer than {MAX_LINE_BYTES:,} bytes. Is it a text with lines?")
        yield line


def _fields(line: bytes) -> list[str]:
    return line.decode("utf-8").rstrip("\r\n").split("\t")


def as_number(text: str, path: str, what: str) -> float:
    """A finite number of a table.

    Raises:
        FormatError: If it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < float("inf"):
        raise FormatError(path, None, f"{what} is {text!r}, no number.")
    return number
