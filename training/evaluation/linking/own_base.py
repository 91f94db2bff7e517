"""A base of the user's own as evaluation data: its aliases are the mentions.

Any base that `ingest` reads; both protocols of `linking_sets`.
"""

from __future__ import annotations

from pathlib import Path

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError
from pearl_qdrant.records import Entity
from training.evaluation.datasets.data import Row
from training.evaluation.linking.task import linking_task
from training.evaluation.task import Task


class OwnBase:
    """One base as a table of the layout; see `evaluation.data.Data`.

    Args:
        path: Its file.
        max_errors: Bad rows that are passed over.

    Raises:
        FormatError: If it is no base that `ingest` reads.
        TooManyErrorsError: If more rows are bad.
    """

    def __init__(self, path: Path, *, max_errors: int) -> None:
        self.name = path.name.partition(".")[0] or path.name
        with open_reader([str(path)]) as reader:
            rows = (_cells(entity) for entity in reader.read(ReadReport(max_errors=max_errors)))
            self._rows = list(rows)

    def paths(self, pattern: str) -> list[str]:
        """The base itself, by its name."""
        return [self.name] if pattern == self.name else []

    def rows(self, path: str, *columns: str) -> list[Row]:
        """See `Data.rows`."""
        try:
            return [tuple(row[column] for column in columns) for row in self._rows]
        except KeyError as error:
            raise FormatError(path, None, f"no column {error}") from error

    def tasks(self) -> tuple[Task, ...]:
        """Linking its aliases, with its canonical names alone and with all names but the mention's own string."""
        return tuple(linking_task(self.name, self.name, None, protocol) for protocol in ("canonical", "left_out"))


def _cells(entity: Entity) -> dict[str, str]:
    aliases = (alias.replace("\\", "\\\\").replace("|", "\\|") for alias in entity.aliases)
    return {
        "id": entity.entity_id,
        "name": entity.canonical_name,
        "aliases": "|".join(aliases),
        "onto_type": entity.types[0] if entity.types else "",
        "fine_type": "|".join(entity.kb_types),
    }
