"""Tables that the recipes read: TSV with a header and no quoting."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path


def read_tsv(path: Path) -> Iterator[dict[str, str]]:
    """Read the rows of a table, as column name to cell."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
