"""The base as two tables: what is learned, and what is measured afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.cells import join_list
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity
from training.examples.example import TEST_SPLITS, split_of

MAX_HELD_OUT = 2000
"""Entities kept out of training, of a tenth of the base, at most: enough for an interval of two points."""

MAX_MEASURED = 20_000
"""Entities among which the aliases of those are linked."""

LEAST_MENTIONS = 50
"""Entities with aliases that must be kept out for a verdict."""

HEADER = "id\tname\ttype\taliases"

_OUTSIDE = str.maketrans("\t\n\r", "   ")


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """Two tables that `ingest` reads.

    Attributes:
        learned: Entities to learn from.
        measured: Entities that were kept out, and others to tell them from.
        n_learned: Entities of the first.
        n_names: Their names.
        n_measured_names: Names of the second.
        n_held_out: Entities kept out.
        n_with_aliases: Those of them that have aliases, the mentions of the measurement.
        has_types: Whether an entity to learn from has coarse types.
    """

    learned: Path
    measured: Path
    n_learned: int
    n_names: int
    n_measured_names: int
    n_held_out: int
    n_with_aliases: int
    has_types: bool


def write_base_files(base: Sequence[Path], folder: Path, *, seed: int, max_errors: int | None) -> BaseFiles:
    """Read a base once and write both tables.

    Args:
        base: Its files.
        folder: Where to write `learned.tsv` and `measured.tsv`.
        seed: Determines the samples.
        max_errors: Bad rows that the base may have.

    Raises:
        InputError: If the base cannot be read, has too many bad rows, or fewer than two entities have aliases.
    """
    rng = random.Random(seed)
    with open_reader([str(path) for path in base]) as reader:
        entities = list(reader.read(ReadReport(max_errors=max_errors)))
    with_aliases = [entity for entity in entities if len(set(entity.names())) > 1]
    if len(with_aliases) < 2:
        message = (
            f"{len(with_aliases)} of its {len(entities)} entities have an alias. A refresh learns which names mean the "
            f"same: it needs a base with aliases."
        )
        raise InputError(", ".join(map(str, base)), None, message)
    # By the split of the id, so that a later release keeps out the same entities.
    test: list[Entity] = []
    rest: list[Entity] = []
    for entity in entities:
        (test if split_of(entity.entity_id) in TEST_SPLITS else rest).append(entity)
    measured = rng.sample(test, min(len(test), MAX_HELD_OUT))
    held_out = {entity.entity_id for entity in measured}
    learned = [entity for entity in entities if entity.entity_id not in held_out]
    others = rng.sample(rest, min(len(rest), MAX_MEASURED - len(measured)))
    n_names = _write(folder / "learned.tsv", learned)
    n_measured_names = _write(folder / "measured.tsv", chain(measured, others))
    return BaseFiles(
        folder / "learned.tsv",
        folder / "measured.tsv",
        len(learned),
        n_names,
        n_measured_names,
        len(held_out),
        sum(len(set(entity.names())) > 1 for entity in measured),
        any(entity.types for entity in learned),
    )


def write_some(table: Path, path: Path, rows: Sequence[int]) -> Path:
    """Write some rows of such a table, by their numbers from 0; returns the new one."""
    wanted = {number + 1 for number in rows} | {0}
    with table.open(encoding="utf-8") as source, path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line for number, line in enumerate(source) if number in wanted)
    return path


def _write(path: Path, entities: Iterable[Entity]) -> int:
    """Write a table; returns the number of names."""
    n_names = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(HEADER + "\n")
        for entity in entities:
            lists = join_list(entity.types), join_list(dict.fromkeys(entity.aliases))
            cells = (entity.entity_id, entity.canonical_name, *lists)
            file.write("\t".join(cell.translate(_OUTSIDE) for cell in cells) + "\n")
            n_names += len(set(entity.names()))
    return n_names
