"""The entities of a base, read from its files, for programs that need no collection of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingest.base.format import PathLike
from ingest.formats import ReadOptions, open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS


def read_entities(
    paths: PathLike | Sequence[PathLike],
    *,
    kind: str = "auto",
    options: ReadOptions | None = None,
    max_errors: int | None = DEFAULT_MAX_ERRORS,
) -> Iterator[Entity]:
    """Read the entities of a base, each once; arguments as of `load_base`.

    Raises:
        InputError: If a file cannot be read.
        OptionError: If an option belongs to another format.
    """
    given = [paths] if isinstance(paths, str) or not isinstance(paths, Sequence) else list(paths)
    with open_reader(given, kind, options) as reader:
        yield from reader.read(ReadReport(max_errors=max_errors))
