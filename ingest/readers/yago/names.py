"""Names of YAGO: local names of its IRIs, their escapes, and the tree of its classes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from ingest.base.ancestors import walk_up
from ingest.io import limits
from ingest.readers.yago.files import RESOURCES

TOP = "Thing"
"""The class above all others; it carries no information and is excluded."""

_MARKED = re.compile(r"_u([0-9A-Fa-f]{4,8})_")
_WIKIDATA_ID = re.compile(r"_Q[0-9]+$")


def local_name(iri: str) -> str:
    """An IRI without its namespace: ``Paris``. In a namespace that is not YAGO's: the part after the last # or /."""
    if iri.startswith(RESOURCES):
        return iri[len(RESOURCES) :]
    return iri[max(iri.rfind("/"), iri.rfind("#")) + 1 :]


def name_text(local: str) -> str:
    """A local name as text: ``_u0028_`` and ``%28`` become a bracket, ``_`` a space; a Wikidata id at the end goes.

    Which of the two marks is used depends on the release.
    """
    text = _MARKED.sub(_decode, unquote(local) if "%" in local else local)
    return (_WIKIDATA_ID.sub("", text) or text).replace("_", " ").strip()


def _decode(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if 0x20 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else match[0]


class ClassTree:
    """Classes by local name, with their ancestors; YAGO 4.5 has 130 thousand, which take some 30 MB."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Make the tree from pairs of a class and a parent, in any order; cycles are harmless."""
        found: dict[str, dict[str, None]] = {}
        for child, parent in pairs:
            if parent != TOP:
                found.setdefault(child, {})[parent] = None
        self._parents = {child: tuple(parents) for child, parents in found.items()}

    def walk_up(self, classes: Iterable[str]) -> tuple[list[str], list[int]]:
        """Classes and their ancestors without the top, at most `MAX_KB_TYPES`; see `ingest.base.ancestors.walk_up`."""
        own = (name for name in dict.fromkeys(classes) if name != TOP)
        return walk_up(own, self._parents.get, limits.MAX_KB_TYPES)
