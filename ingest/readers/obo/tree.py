"""The tree of an ontology over several OBO files: ancestors by `is_a`, and replaced ids."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ingest.base.ancestors import ClassGraph
from ingest.base.scan import hash_texts, name_hash
from ingest.io import limits
from ingest.io.report import ReadReport
from ingest.io.streams import ByteSource
from ingest.readers.obo.lines import TERM, Stanza, first_word, is_obsolete, read_stanzas

if TYPE_CHECKING:
    import numpy.typing as npt

_TAGS = frozenset({"id", "is_a", "is_obsolete", "replaced_by"})


MAX_REPLACED = 1_000
"""Obsolete ids kept for each id that replaces them: each of its stanzas gets all of them."""


class TermTree:
    """The result of a first pass over all files: ancestors and replaced ids.

    Attributes:
        replaced: Obsolete ids by the id that replaces them, at most `MAX_REPLACED`.
    """

    def __init__(self, sources: Sequence[ByteSource]) -> None:
        self._numbers: dict[str, int] = {}
        self.replaced: dict[str, list[str]] = {}
        parents, children = array("i"), bytearray()
        for source in sources:
            for stanza in read_stanzas(source, _TAGS, ReadReport(max_errors=None)):
                if stanza.kind == TERM:
                    self._add(stanza, children, parents)
        self._ids = list(self._numbers)
        self._graph = self._connect(children, np.asarray(parents, dtype=np.int32))
        # Many terms have the same parents.
        self._ancestors = lru_cache(maxsize=16_384)(self._find_ancestors)

    def ancestors(self, parents: Iterable[str]) -> list[str]:
        """The parents and their ancestors, nearest first, at most `MAX_KB_TYPES`."""
        known = (self._numbers[parent] for parent in parents if parent in self._numbers)
        return list(self._ancestors(tuple(islice(dict.fromkeys(known), limits.MAX_KB_TYPES))))

    def _find_ancestors(self, parents: tuple[int, ...]) -> tuple[str, ...]:
        found, _ = self._graph.walk_up(parents, limits.MAX_KB_TYPES)
        return tuple([self._ids[number] for number in found])

    def _add(self, stanza: Stanza, children: bytearray, parents: array[int]) -> None:
        term_id = next((first_word(value) for _, tag, value in stanza.tags if tag == "id"), "")
        is_gone = is_obsolete(stanza)
        above = 0
        for _, tag, value in stanza.tags:
            if tag == "is_a" and not is_gone and (parent := first_word(value)):
                parents.append(self._numbers.setdefault(parent, len(self._numbers)))
                above += 1
            elif tag == "replaced_by" and is_gone and term_id:
                gone = self.replaced.setdefault(first_word(value), [])
                if len(gone) < MAX_REPLACED:
                    gone.append(term_id)
        if above:
            children += name_hash(term_id).to_bytes(8, sys.byteorder) * above

    def _connect(self, children: bytearray, parents: npt.NDArray[np.int32]) -> ClassGraph:
        """Keep the edges between ids that are parents themselves: those of a leaf are in its own stanza."""
        if not self._ids:
            return ClassGraph([], [])
        hashes, lower = hash_texts(self._ids), np.frombuffer(children, dtype=np.uint64)
        order = np.argsort(hashes)
        places = np.minimum(np.searchsorted(hashes[order], lower), len(hashes) - 1)
        is_parent = hashes[order][places] == lower
        return ClassGraph(order[places[is_parent]], parents[is_parent])
