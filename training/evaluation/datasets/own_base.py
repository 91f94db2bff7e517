"""Reads a base of the user's own as evaluation data: its aliases are the mentions. `ingest` must know its format."""

from __future__ import annotations

from pathlib import Path

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.cells import join_list
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity
from training.evaluation.datasets.data import Row


class OwnBase:
    """A base as a table of the layout; implements `data.Data`.

    Args:
        path: File of the base.
        max_errors: Number of bad rows that are skipped.

    Attributes:
        name: The file's name without endings.
        entities: The entities of the base, in its order.

    Raises:
        FormatError: If `ingest` cannot read the file.
        TooManyErrorsError: If there are more bad rows.
    """

    def __init__(self, path: Path, *, max_errors: int) -> None:
        self.name = path.name.partition(".")[0] or path.name
        with open_reader([str(path)]) as reader:
            self.entities = tuple(reader.read(ReadReport(max_errors=max_errors)))
        self._rows = [_cells(entity) for entity in self.entities]

    def paths(self, pattern: str) -> list[str]:
        """The name of the base, if it matches."""
        return [self.name] if pattern == self.name else []

    def rows(self, path: str, *columns: str) -> list[Row]:
        """As `Data.rows`."""
        try:
            return [tuple(row[column] for column in columns) for row in self._rows]
        except KeyError as error:
            raise FormatError(path, None, f"no column {error}") from error


def _cells(entity: Entity) -> dict[str, str]:
    return {
        "id": entity.entity_id,
        "name": entity.canonical_name,
        "aliases": join_list(entity.aliases),
        "onto_type": entity.types[0] if entity.types else "",
        "fine_type": "|".join(entity.kb_types),
    }
