"""What the recipes read: TSV with a header and no quoting, and texts."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path


def read_tsv(path: Path) -> Iterator[dict[str, str]]:
    """Read the rows of a table, as column name to cell."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def read_texts(path: Path) -> Iterator[str]:
    """Read the field `text` of each line of a gzipped file of JSON Lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]
