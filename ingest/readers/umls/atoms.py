"""Select and order the rows of MRCONSO.RRF (atoms): which are used, and which name is preferred.

The order of the names of an id, best first: requested language (if all are read: English, then by code), TS=P before S,
STT=PF before others, ISPREF=Y before N, the rank of source and term type in MRRANK.RRF if present, then the string and
the AUI by their bytes. So the row P/PF/Y of the first language gives the canonical name, if the options include it.
Otherwise the choice does not depend on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from ingest.io.report import ReadReport
from ingest.readers.umls.options import UmlsOptions
from ingest.readers.umls.rows import ASCII_SPACES, Block, Mask, Offsets, find_runs

OTHER_LANGUAGE = "other_language"
OTHER_SOURCE = "other_source"
RESTRICTED = "restricted"
SUPPRESSED = "suppressed"

UNKNOWN_LEVEL = 255
"""Stands for an SRL that is not a single digit."""

Ranks = Mapping[tuple[bytes, bytes], int]
"""From source and term type to the rank in MRRANK.RRF; the highest is the best."""

MAX_SABS = 1_000
"""Sources that are remembered for the note about missing ones; UMLS has fewer than 200."""

_KEYS_PER_LANGUAGE = 8
_SPACE = ord(" ")


@dataclass(frozen=True, slots=True)
class Atoms:
    """The selected atoms of a block, those of one id together, best first.

    Attributes:
        block: The block.
        rows: Their rows in the block, (n,).
        ids: Ids of the runs, (runs,).
        bounds: Start of each run in `names` and `sabs`, and the end of the last, (runs + 1,).
        names: STR, (n,).
        sabs: SAB, (n,).
        levels: Lowest SRL of each run, (runs,); `UNKNOWN_LEVEL` if there is none.
    """

    block: Block
    rows: Offsets
    ids: list[bytes]
    bounds: list[int]
    names: list[str]
    sabs: list[str]
    levels: list[int]


class AtomFilter:
    """Selects and orders atoms.

    Attributes:
        seen_sabs: Sources of the atoms in the requested languages; filled only if the options name sources.
    """

    def __init__(self, options: UmlsOptions, ranks: Ranks) -> None:
        self.seen_sabs: set[bytes] = set()
        self._options = options
        self._ranks = ranks
        self._sabs = {sab.encode() for sab in options.sabs}
        self._languages = [_language_code(language) for language in options.languages]
        self._flags = np.zeros(256, np.bool_)
        self._flags[[ord(flag) for flag in options.suppress]] = True

    def choose(self, block: Block, report: ReadReport) -> Atoms | None:
        """The selected atoms of a block, or None if there is none; counts the others in the report."""
        languages, wanted = self._rank_languages(block)
        rows = _keep(np.arange(len(block)), wanted, OTHER_LANGUAGE, report)
        starts, ends = (side[rows] for side in block.span("SUPPRESS"))
        rows = _keep(rows, self._flags[block.codes[starts]] & (ends - starts == 1), SUPPRESSED, report)
        if self._sabs:
            rows = _keep(rows, self._has_sab(block, rows), OTHER_SOURCE, report)
        levels = _read_levels(block, rows)
        if self._options.srl_max is not None:
            allowed = (levels <= self._options.srl_max) & (levels != UNKNOWN_LEVEL)
            rows, levels = _keep(rows, allowed, RESTRICTED, report), levels[allowed]
        if not len(rows):
            return None
        return self._order(block, rows, languages[rows], levels)

    def _rank_languages(self, block: Block) -> tuple[Offsets, Mask]:
        """Rank of the language of each row, and whether it is requested; both (rows,)."""
        starts, ends = block.span("LAT")
        codes = np.zeros(len(block), np.int64)
        for i in range(3):
            codes = codes << 8 | block.codes[np.minimum(starts + i, ends)]
        if not self._languages:
            codes[codes == _language_code("ENG")] = 0
            return codes, np.ones(len(codes), np.bool_)
        places = np.full(len(codes), len(self._languages))
        for place, language in enumerate(self._languages):
            places[codes == language] = place
        return places, (places < len(self._languages)) & (ends - starts == 3)

    def _has_sab(self, block: Block, rows: Offsets) -> Mask:
        sabs = block.cells("SAB", rows)
        new = set(sabs) - self.seen_sabs
        self.seen_sabs.update(islice(new, max(0, MAX_SABS - len(self.seen_sabs))), new & self._sabs)
        return np.array([sab in self._sabs for sab in sabs], dtype=np.bool_)

    def _order(self, block: Block, rows: Offsets, languages: Offsets, levels: npt.NDArray[np.uint8]) -> Atoms:
        firsts, ids = find_runs(block, rows)
        keys = languages * _KEYS_PER_LANGUAGE
        for weight, column, best in ((4, "TS", b"P"), (2, "STT", b"PF"), (1, "ISPREF", b"Y")):
            keys += weight * ~block.equals(column, best)[rows]
        run_of = np.repeat(np.arange(len(ids)), np.diff(np.append(firsts, len(rows))))
        if ((keys[1:] < keys[:-1]) & (run_of[1:] == run_of[:-1])).any():
            order = np.lexsort((keys, run_of))
            rows, keys = rows[order], keys[order]
        self._break_ties(block, rows, keys, firsts)
        names, sabs = block.texts("STR", rows), block.texts("SAB", rows)
        starts, ends = (side[rows] for side in block.span("STR"))
        for place in np.flatnonzero((block.codes[starts] <= _SPACE) | (block.codes[ends - 1] <= _SPACE)).tolist():
            names[place] = names[place].strip(ASCII_SPACES)
        lowest = np.minimum.reduceat(levels, firsts).tolist()
        return Atoms(block, rows, ids, [*firsts.tolist(), len(rows)], names, sabs, lowest)

    def _break_ties(self, block: Block, rows: Offsets, keys: Offsets, firsts: Offsets) -> None:
        """Order equally good rows of each run by rank, string and AUI, in place."""
        # Rows of different runs are never tied: each run starts a new group.
        starts = np.append(True, keys[1:] != keys[:-1])
        starts[firsts] = True
        begins = np.flatnonzero(starts)
        afters = np.append(begins[1:], len(rows))
        # Only the best rows of a run matter, for the canonical name; the order of aliases has no meaning.
        is_best = np.isin(begins, firsts, assume_unique=True) & (afters - begins > 1)
        begins, afters = begins[is_best], afters[is_best]
        if not len(begins):
            return
        counts = afters - begins
        tied = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        cells = (block.cells(column, rows[tied]) for column in ("SAB", "TTY", "STR", "AUI"))
        find_rank = self._ranks.get
        places = [(-find_rank((sab, tty), -1), name, aui) for sab, tty, name, aui in zip(*cells, strict=True)]
        n_done = 0
        for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):
            order = sorted(range(n_done, n_done + count), key=places.__getitem__)
            if order[0] != n_done:
                rows[begin : begin + count] = rows[[begin + place - n_done for place in order]]
            n_done += count


def _language_code(language: str) -> int:
    return int.from_bytes(language.encode(), "big")


def _keep(rows: Offsets, wanted: Mask, reason: str, report: ReadReport) -> Offsets:
    """The rows to keep; counts the others."""
    n_wanted = int(np.count_nonzero(wanted))
    if n_wanted == len(rows):
        return rows
    report.filter_out(reason, len(rows) - n_wanted)
    return rows[wanted]


def _read_levels(block: Block, rows: Offsets) -> npt.NDArray[np.uint8]:
    """SRL of each row, (n,)."""
    starts, ends = (side[rows] for side in block.span("SRL"))
    digits: npt.NDArray[np.uint8] = block.codes[starts] - np.uint8(ord("0"))
    digits[(ends - starts != 1) | (digits > 9)] = UNKNOWN_LEVEL
    return digits
