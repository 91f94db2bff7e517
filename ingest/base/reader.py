"""The `Reader` protocol: the interface of every format.

A reader turns files into entities, as a stream. Adjacent rows of one id become one entity at once; rows that are
scattered over the input are joined by `ingest.base.merge`, for any reader.

A format declares its name, its files, its options, and the module that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ingest.io import limits
from ingest.io.report import ReadReport, make_excerpt
from pearl_qdrant.errors import InputError
from pearl_qdrant.records import Entity

if TYPE_CHECKING:
    from typing_extensions import Self

Hashes = npt.NDArray[np.uint64]
"""64-bit hashes of ids or names, sorted."""


class Reader(Protocol):
    """A base that can be read any number of times, with the same result. Used as a context manager."""

    def read(self, report: ReadReport, *, scattered: Hashes | None = None) -> Iterator[Entity]:
        """Entities, each id once: in the order of the input, those with scattered rows last.

        Args:
            report: Filled while reading.
            scattered: `ScanResult.scattered` of the same input; without it, one more pass finds the scattered ids.

        Raises:
            InputError: If the input cannot be read.
            FormatError: If it is not of the format, or is damaged.
            TooManyErrorsError: If there are more bad rows than the report allows.
        """
        ...

    def read_runs(self, report: ReadReport) -> Iterator[Entity]:
        """Entities in the order of the input; an id whose rows are scattered is yielded several times.

        Fills `rows`, `skipped` and `notes` of the report, and the merged rows within a run. Raises as `read`.
        """
        ...

    def close(self) -> None:
        """Close the files and remove temporary ones."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


def scattered_excess(entity_id: str, reason: str) -> InputError:
    """The error for an id with more scattered rows than an entity can have.

    Args:
        reason: `TOO_MANY_NAMES` or `TOO_MANY_ROWS`.
    """
    bounds = f"{limits.MAX_NAMES:,} names, {limits.MAX_ROWS:,} rows and {limits.MAX_ENTITY_BYTES:,} bytes"
    message = f"{reason}: the id '{make_excerpt(entity_id)}' occurs in too many of them. An entity has at most {bounds}"
    return InputError("scattered rows", None, f"{message}. Is this really the column of ids?")
