"""The measured rates that estimates are made of, from `rates.tsv`.

The file is a history: a rate that is measured again gets a further row, and the last row of a name counts.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pearl_qdrant.errors import InputError

RATES_FILE = Path(__file__).with_name("rates.tsv")

NAMES = (
    "scan",
    "load_core",
    "encode_gpu",
    "write_core",
    "graph_core",
    "graph_names",
    "graph_turbo",
    "graph_none",
    "scroll",
    "payload_bytes",
    "index_bytes",
    "lexical_bytes",
    "lexical_index_bytes",
    "id_bytes",
    "graph_bytes",
    "link_ms",
    "graph_ms",
    "server_ms",
    "node_ms",
    "push_mb",
    "graph_memory",
    "core_price",
    "gpu_price",
)
"""The rates that an estimate needs."""


@dataclass(frozen=True, slots=True)
class Rate:
    """One figure.

    Attributes:
        name: One of `NAMES`.
        value: The figure.
        unit: Its unit.
        kind: "measured", or "assumed" where nothing was measured here.
        machine: Where it was measured.
        date: When, as YYYY-MM-DD.
        source: The command that measured it, or the page that describes it.
    """

    name: str
    value: float
    unit: str
    kind: str
    machine: str
    date: str
    source: str


def read_rates(path: str | os.PathLike[str] = RATES_FILE) -> dict[str, Rate]:
    """Read a file of rates; the last row of a name counts.

    Raises:
        InputError: If it cannot be read, a row has no number, or a rate is missing.
    """
    place = os.fspath(path)
    rates: dict[str, Rate] = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            header = next(rows, [])
            _check_header(place, header)
            for number, row in enumerate(rows, 2):
                if row:
                    rate = _parse(place, number, row)
                    rates[rate.name] = rate
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            place, None, f"the rates cannot be read: {error}. Give a file like {RATES_FILE.name}"
        ) from error
    missing = [name for name in NAMES if name not in rates]
    if missing:
        raise InputError(place, None, f"there is no rate {', '.join(missing)}. Add a row for each, or omit the file")
    return rates


def write_rates(path: str | os.PathLike[str], rates: Iterable[Rate]) -> None:
    """Append rates to a file; it is made with its header where there is none."""
    target = Path(path)
    is_new = not target.exists()
    with target.open("a", encoding="utf-8") as file:
        if is_new:
            file.write("\t".join(_COLUMNS) + "\n")
        for rate in rates:
            file.write("\t".join(f"{getattr(rate, column)}" for column in _COLUMNS) + "\n")


_COLUMNS = tuple(field.name for field in fields(Rate))


def _check_header(place: str, header: Sequence[str]) -> None:
    if tuple(header) != _COLUMNS:
        raise InputError(
            place, 1, f"expected the columns {', '.join(_COLUMNS)}, found {', '.join(header) or 'nothing'}"
        )


def _parse(place: str, number: int, row: Sequence[str]) -> Rate:
    if len(row) != len(_COLUMNS):
        raise InputError(place, number, f"expected {len(_COLUMNS)} columns, found {len(row)}")
    name, value, *others = row
    try:
        parsed = float(value)
    except ValueError as error:
        raise InputError(place, number, f"'{value}' is not a number: give the value of '{name}' as one") from error
    if not 0 < parsed < float("inf"):
        raise InputError(place, number, f"{value} is not a rate: '{name}' is a number above 0")
    return Rate(name, parsed, *others)
