"""Makes a UMLS release of invented words: CUIs from C9000000 upwards, 2.6 atoms a CUI on average.

Seven rows in fifteen are English, the rest are in seven other languages. One atom in twelve is obsolete, but never the
first one of a CUI.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

LANGUAGES = ("ENG",) * 7 + ("SPA", "SPA", "FRE", "GER", "JPN", "POR", "RUS", "FIN")
SOURCES = ("SNOMEDCT_US", "MSH", "NCI", "MDR", "MTH", "ICD10CM", "LNC", "RXNORM")
TYPES = (
    ("T047", "B2.2.1.2.1", "Disease or Syndrome"),
    ("T121", "A1.4.1.1.1", "Pharmacologic Substance"),
    ("T061", "B1.3.1.3", "Therapeutic or Preventive Procedure"),
    ("T033", "A2.2", "Finding"),
)
SYLLABLES = "ba co di fu gra hel iso kar lum mor neo oph pla ri sta tro ul vas xan zyg".split()
FOREIGN = {"JPN": "心疾患", "RUS": "болезнь", "SPA": "crónica", "GER": "ß", "FRE": "maladie é"}

BYTES_A_ROW = 110
"""Approximate size of a row of MRCONSO.RRF."""


def make_rows(n_rows: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Rows of MRCONSO.RRF and of MRSTY.RRF, CUI by CUI."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) for _ in range(5000)]
    n_made = cui = 0
    while n_made < n_rows:
        n_atoms = min(n_rows - n_made, rng.choice((1, 1, 1, 2, 2, 3, 4, 7)))
        id_ = f"C{9_000_000 + cui:07}"
        rows: list[str] = []
        for language in sorted(rng.choices(LANGUAGES, k=n_atoms)):
            name = " ".join(rng.choices(words, k=rng.randint(1, 5)))
            if language != "ENG":
                name += " " + FOREIGN.get(language, "")
            n = n_made + len(rows)
            is_first = not rows
            flags = ("P", "PF", "Y") if is_first else ("S", rng.choice(("PF", "VO")), "N")
            suppress = "O" if rng.random() < 0.08 and not is_first else "N"
            rows.append(
                f"{id_}|{language}|{flags[0]}|L{n:07}|{flags[1]}|S{n:08}|{flags[2]}|A{n:08}|{n}||D{n:06}|"
                f"{SOURCES[n % 8]}|PT|{n:06}|{name}|{n % 5 and 0}|{suppress}|256|\n"
            )
        tui, number, type_name = TYPES[cui % 4]
        yield "".join(rows), f"{id_}|{tui}|{number}|{type_name}|AT{cui:08}|256|\n"
        n_made += n_atoms
        cui += 1


def make_umls(meta: Path, n_rows: int) -> None:
    """Write MRCONSO.RRF with `n_rows` rows, and MRSTY.RRF, into a new folder."""
    meta.mkdir()
    with (meta / "MRCONSO.RRF").open("w", encoding="utf-8") as conso, (meta / "MRSTY.RRF").open("w") as sty:
        rows = make_rows(n_rows)
        while batch := list(islice(rows, 10_000)):
            conso.write("".join(row for row, _ in batch))
            sty.write("".join(row for _, row in batch))
