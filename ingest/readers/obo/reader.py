"""Read OBO ontologies (Mondo, HPO, DOID, GO, ChEBI, Uberon, ...): one entity for each ``[Term]`` stanza.

::

    [Term]
    id: MADE:0001
    name: sore left toe
    namespace: complaint
    alt_id: MADE:0900
    def: "A toe that hurts." [MADE:curator]
    synonym: "toe pain, left" EXACT []
    synonym: "hurting foot" BROAD [MADE:curator]
    xref: OTHER:77 {source="MADE:curator"}
    is_a: MADE:0002 ! sore toe

``name`` is the canonical name. Synonyms with a requested scope are aliases; this includes ``exact_synonym`` and similar
tags of OBO 1.0, and a synonym without a scope is RELATED. ``def`` is the description. `kb_types` are the ids of the
ancestors by ``is_a``, nearest first, at most `limits.MAX_KB_TYPES`, and then the namespace. Comments (`` ! ...``),
modifiers (``{...}``) and escapes are removed. `extra` has ``xrefs``, ``alt_ids`` and, if
requested, ``links_to`` (the ids of the direct parents, for linking in documents), each joined by ``|``; ``alt_ids`` are
the term's own ``alt_id`` and the ids of obsolete terms that are ``replaced_by`` it. Obsolete terms, terms without a
name (stubs of other ontologies) and stanzas of other kinds are excluded and counted.

The files are read twice: the first pass, once for a reader, finds the ancestors and replaced ids. It keeps the ids of
all parents, and 12 bytes for each ``is_a``. Several files are one base: ancestors may be in another file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

from ingest.base.reader_base import ReaderBase
from ingest.base.type_map import TypeMap
from ingest.io.report import NO_ID, NO_NAME, ReadReport
from ingest.io.streams import STDIN, ByteSource, Source
from ingest.readers.obo.lines import TERM, Stanza, first_word, is_obsolete, plain_value, quoted_value, read_stanzas
from ingest.readers.obo.scopes import SCOPES
from ingest.readers.obo.tree import TermTree
from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.records import LINKS_FIELD, Entity

OBSOLETE = "obsolete"
NOT_A_TERM = "not_a_term"
BAD_SYNONYM = "bad_synonym"

_OLD_SYNONYMS = {f"{scope.lower()}_synonym": scope for scope in SCOPES}
_TAGS = frozenset(
    {"id", "name", "namespace", "default-namespace", "alt_id", "def", "synonym", "xref", "is_a", "is_obsolete"}
    | set(_OLD_SYNONYMS)
)
_HEAD_BYTES = 1 << 16
_IS_OBO = re.compile(rb"^(?:format-version:[ \t]*1\.|\[Term\][ \t]*\r?$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OboOptions:
    """What is read of an ontology.

    Attributes:
        scopes: Synonyms with these scopes, from `SCOPES`, are aliases.
        xrefs: Keep references to other bases in `Entity.extra`.
        links: Keep the ids of the direct parents in `Entity.extra`, for linking in documents.
    """

    scopes: tuple[str, ...] = ("EXACT",)
    xrefs: bool = True
    links: bool = False

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.scopes) - set(SCOPES)):
            raise ValueError(f"unknown scope of a synonym: {', '.join(unknown)}. There are: {', '.join(SCOPES)}")


class OboReader(ReaderBase):
    """An ontology in one or several OBO files; a `Reader`. A row of its report is a stanza."""

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        options: OboOptions | None = None,
        *,
        type_map: TypeMap | None = None,
        limit: int | None = None,
        stdin: BinaryIO | None = None,
    ) -> None:
        """Open the files; standard input and pipes are copied to a temporary file now.

        Args:
            paths: Files to read one after the other; ``-`` is standard input.
            options: Which synonyms are aliases.
            type_map: From ids and namespaces to coarse types; the shipped one by default.
            limit: See `ReaderBase`.
            stdin: What ``-`` means; the process's own by default.

        Raises:
            FormatError: If a file does not exist, is a directory, or may not be read.
        """
        self._options = options or OboOptions()
        super().__init__(type_map=type_map, limit=limit)
        self._tree: TermTree | None = None
        self._sources = self.open_sources(paths, stdin)

    def read_rows(self, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good term."""
        return chain.from_iterable(self._read_terms(source, report) for source in self._sources)

    def _read_terms(self, source: ByteSource, report: ReadReport) -> Iterator[Entity]:
        """One entity for each good term of a file."""
        if self._tree is None:
            self._tree = TermTree(self._sources)
        tree, namespace, n_terms = self._tree, "", 0
        for stanza in read_stanzas(source, _TAGS, report):
            if not stanza.kind:
                namespace = next((plain_value(v) for _, tag, v in stanza.tags if tag == "default-namespace"), "")
                continue
            report.rows += 1
            if stanza.kind != TERM:
                report.filter_out(NOT_A_TERM)
                continue
            n_terms += 1
            report.place = source.path, stanza.line
            term = _parse_term(source.path, stanza, namespace, self._options, report)
            if term is not None:
                yield self._make_entity(term, tree)
        if not n_terms:
            raise FormatError(source.path, None, "has no [Term] stanza. Is this an OBO file?")

    def _make_entity(self, term: _Term, tree: TermTree) -> Entity:
        ancestors = [above for above in tree.ancestors(term.parents) if above != term.id]
        kb_types = (*ancestors, term.namespace) if term.namespace else tuple(ancestors)
        extra = {}
        alt_ids = dict.fromkeys([*term.alt_ids, *tree.replaced.get(term.id, ())])
        if alt_ids:
            extra["alt_ids"] = "|".join(alt_ids)
        parents = [parent for parent in dict.fromkeys(term.parents) if parent != term.id]
        if parents and self._options.links:
            extra[LINKS_FIELD] = "|".join(parents)
        if term.xrefs:
            extra["xrefs"] = "|".join(dict.fromkeys(term.xrefs))
        types = self.type_map.map_types(kb_types)
        return Entity(term.id, term.names[0], term.names[1:], kb_types, types, term.description, extra)


def is_obo(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like an OBO ontology; False for standard input and unreadable files."""
    if os.fspath(path) == STDIN or not os.path.isfile(path):  # noqa: PTH113 - a path with NUL is no error here
        return False
    try:
        return _IS_OBO.search(Source(path).head(_HEAD_BYTES)) is not None
    except InputError:
        return False


@dataclass(slots=True)
class _Term:
    """A parsed stanza; `names` is not empty and has each name once, the canonical one first."""

    id: str
    names: tuple[str, ...]
    namespace: str
    description: str | None
    parents: list[str]
    alt_ids: list[str]
    xrefs: list[str]


def _parse_term(path: str, stanza: Stanza, namespace: str, options: OboOptions, report: ReadReport) -> _Term | None:
    """The term of a stanza; None if it is bad or excluded, which is counted."""
    values: dict[str, list[str]] = {}
    for _, tag, value in stanza.tags:
        values.setdefault(tag, []).append(value)
    term_id = first_word(values.get("id", [""])[0])
    if not term_id:
        report.skip(NO_ID, path=path, line=stanza.line, text=f"[{stanza.kind}]")
        return None
    if is_obsolete(stanza):
        report.filter_out(OBSOLETE)
        return None
    names = [name for name in map(plain_value, values.get("name", ())) if name]
    if not names:
        report.filter_out(NO_NAME)
        return None
    names += _read_synonyms(path, stanza, options, report)
    names = list(dict.fromkeys(names))
    definition = quoted_value(values["def"][0]) if "def" in values else None
    return _Term(
        term_id,
        report.bound_names(term_id, names),
        plain_value(values["namespace"][0]) if "namespace" in values else namespace,
        (definition[0] or None) if definition else None,
        [parent for parent in map(first_word, values.get("is_a", ())) if parent],
        [other for other in map(first_word, values.get("alt_id", ())) if other],
        [other for other in map(first_word, values.get("xref", ())) if other] if options.xrefs else [],
    )


def _read_synonyms(path: str, stanza: Stanza, options: OboOptions, report: ReadReport) -> Iterator[str]:
    """Synonyms with the requested scopes; the others are counted."""
    for number, tag, value in stanza.tags:
        if tag == "synonym" or tag in _OLD_SYNONYMS:
            parsed = quoted_value(value)
            if parsed is None:
                report.skip(BAD_SYNONYM, path=path, line=number, text=f"{tag}: {value}")
                continue
            text, rest = parsed
            given = rest.split(None, 1)[0] if rest.strip() else ""
            scope = _OLD_SYNONYMS.get(tag) or (given if given in SCOPES else "RELATED")
            if scope not in options.scopes:
                report.filter_out(f"{scope.lower()}_synonym")
            elif text:
                yield text
