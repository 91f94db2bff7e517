"""Looks up a mention that is the id of an entity: `DOID:5844`, `wd:Q64`, `http://purl.obolibrary.org/obo/DOID_5844`.

A base and a user may write the same id differently. Each form below finds each other one:

    with a prefix      DOID:5844, DOID_5844, doid:5844
    IRI                http://purl.obolibrary.org/obo/DOID_5844, with https or in <>, too
    without a prefix   Q64 (wd:Q64), D009203 (MESH:D009203), C0027051 (UMLS:C0027051): only where the vocabulary is
                       known by the letters of the id, or the prefix is the short name of the base

A number alone is never an id, since it says nothing of the base.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import MAX_NAMES, NamePoint

MAX_ID_CHARACTERS = 300
"""Longer mentions are never ids; the IRIs of the usual vocabularies have up to 100 characters."""

_LOOKS_LIKE_ID = re.compile(
    r"""<?https?://[^\s<>]+>?                              # an IRI
    |   /[mg]/\w+                                          # Freebase
    |   (?=\D{0,60}\d) [A-Za-z][\w.-]* (?::[\w.-]+)?         # letters first, a digit, at most one colon
    """,
    re.VERBOSE | re.ASCII,
)
_PREFIXED = re.compile(r"([A-Za-z](?:[\w.-]*(?=:)|[A-Za-z0-9.-]*))[:_]([\w.-]*\d[\w.-]*)", re.ASCII)
_CODE = re.compile(r"[A-Z]{1,6}\d{4,}")

_MIXED_CASE = {
    prefix.casefold(): prefix
    for prefix in "FBbi FBbt FBcv FBdv FlyBase HsapDv MeSH MmusDv NCBITaxon Orphanet UniProtKB WBbt WBls".split()
}
"""Prefixes that are written in mixed case, by their folded form; all others are in capitals or in small letters."""


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """A vocabulary whose ids are known without a prefix.

    Attributes:
        prefixes: Folded prefixes that stand for it.
        pattern: Ids without a prefix.
        written: What is put before an id without a prefix.
    """

    prefixes: frozenset[str]
    pattern: re.Pattern[str]
    written: tuple[str, ...]


def _vocabulary(prefixes: str, pattern: str, written: str) -> _Vocabulary:
    return _Vocabulary(frozenset(prefixes.split()), re.compile(pattern, re.ASCII), tuple(written.split()))


_VOCABULARIES = (
    _vocabulary(
        "wd wikidata",
        r"[QP][1-9]\d*",
        "wd: wikidata: http://www.wikidata.org/entity/ https://www.wikidata.org/entity/ "
        "http://www.wikidata.org/wiki/ https://www.wikidata.org/wiki/",
    ),
    _vocabulary("mesh msh", r"[CD]\d{6,9}", "MESH: MeSH: mesh: MSH: http://id.nlm.nih.gov/mesh/"),
    _vocabulary("umls cui umls_cui", r"C\d{7}", "UMLS: UMLS_CUI: umls: CUI:"),
    _vocabulary("ncit ncithesaurus", r"C\d{4,6}", "NCIT: ncit: http://purl.obolibrary.org/obo/NCIT_"),
    _vocabulary("interpro ipr", r"IPR\d{6}", "InterPro: INTERPRO: interpro:"),
    _vocabulary("ensembl", r"ENS[A-Z]*\d{11}", "ENSEMBL: ensembl: Ensembl:"),
    _vocabulary(
        "uniprot uniprotkb",
        r"[OPQ]\d[A-Z0-9]{3}\d|[A-NR-Z]\d(?:[A-Z][A-Z0-9]{2}\d){1,2}",
        "UniProtKB: UniProt: uniprot: http://purl.uniprot.org/uniprot/",
    ),
    _vocabulary("icd icd10 icd10cm icd-10 icd-10-cm", r"[A-Z]\d[0-9A-Z](?:\.[0-9A-Z]{1,4})?", "ICD10: ICD10CM:"),
    _vocabulary("ec eccode", r"\d+(?:\.(?:n?\d+|-)){1,3}", "EC: ec:"),
)

_PREFIXED_IRIS = (
    "http://purl.obolibrary.org/obo/{}_{}",
    "https://purl.obolibrary.org/obo/{}_{}",
    "http://www.ebi.ac.uk/efo/{}_{}",
    "http://www.orpha.net/ORDO/{}_{}",
)
"""IRIs of ids with a prefix."""


def looks_like_id(mention: str) -> bool:
    """Whether a mention may be an id: letters first, a digit, no space; or an IRI. It takes 1 us."""
    return len(mention) <= MAX_ID_CHARACTERS and _LOOKS_LIKE_ID.fullmatch(mention) is not None


def id_forms(mention: str, *, kb: str | None = None) -> list[str]:
    """The ways in which a base may write an id. Returns the forms, each once; the mention itself is the first.

    Args:
        mention: A string that `looks_like_id`; anything else has no forms.
        kb: Short name of a base: an id of it may be written with this name as its prefix.
    """
    if not looks_like_id(mention):
        return []
    given = mention.strip("<>")
    return list(dict.fromkeys([given, *_other_forms(given, kb)]))


def _other_forms(given: str, kb: str | None) -> Iterator[str]:
    """The forms of an id, some of them several times."""
    if "://" in given:
        host, _, end = given.rstrip("/").rpartition("#" if "#" in given else "/")
        yield from _swapped_scheme(given)
        if prefixed := _PREFIXED.fullmatch(end):
            yield from _prefixed_forms(prefixed[1], prefixed[2], kb)
        for vocabulary in _VOCABULARIES:
            if f"{_place(host)}/" in map(_place, vocabulary.written) and vocabulary.pattern.fullmatch(end):
                yield from (end, *(written + end for written in vocabulary.written))
        return
    if given.startswith(("/m/", "/g/")):
        yield given[1:].replace("/", ".")
    elif given.startswith(("m.", "g.")):
        yield "/" + given.replace(".", "/", 1)
    if prefixed := _PREFIXED.fullmatch(given):
        yield from _prefixed_forms(prefixed[1], prefixed[2], kb)
        return
    # In small letters, only a long code can be nothing else: `b12` is a vitamin before it is a code of ICD.
    code = given.upper() if _CODE.fullmatch(given.upper()) else given
    yield code
    for vocabulary in _VOCABULARIES:
        if vocabulary.pattern.fullmatch(code):
            yield from (written + code for written in vocabulary.written)
    if kb:
        yield from (f"{prefix}:{code}" for prefix in _cases(kb))


def _prefixed_forms(prefix: str, local: str, kb: str | None) -> Iterator[str]:
    """The forms of an id with a prefix."""
    locals_ = list(dict.fromkeys((local, local.upper())))
    for written in _cases(prefix):
        yield from (f"{written}{joint}{one}" for one in locals_ for joint in ":_")
    in_iris = _MIXED_CASE.get(prefix.casefold(), prefix.upper())
    yield from (pattern.format(in_iris, locals_[-1]) for pattern in _PREFIXED_IRIS)
    for vocabulary in _VOCABULARIES:
        if prefix.casefold() in vocabulary.prefixes:
            for one in locals_:
                if vocabulary.pattern.fullmatch(one):
                    yield from (one, *(written + one for written in vocabulary.written))
    if kb and prefix.casefold() == kb.casefold():
        yield from locals_


def _cases(prefix: str) -> list[str]:
    """A prefix as given, in capitals, in small letters, and as its vocabulary writes it."""
    usual = _MIXED_CASE.get(prefix.casefold(), prefix)
    return list(dict.fromkeys((prefix, prefix.upper(), prefix.lower(), usual)))


def _place(iri: str) -> str:
    """Host and path of an IRI; nothing of what is no IRI."""
    return iri.partition("://")[2].removeprefix("www.")


def _swapped_scheme(iri: str) -> Iterator[str]:
    """The IRI with https for http, or the other way round."""
    scheme, _, rest = iri.partition("://")
    yield f"{'http' if scheme == 'https' else 'https'}://{rest}"


def find_by_id(collections: Sequence[Collection], mention: str, types: Sequence[str] = ()) -> NamePoint | None:
    """The entity whose id a mention is. Returns the point of its canonical name. None if there is no such entity, or
    several differ and none of them has the mention itself as its id.

    Args:
        collections: Open collections.
        mention: A cleaned mention. Nothing is searched unless it `looks_like_id`.
        types: Only entities of one of these types, as in `Collection.find`; empty: all.
    """
    if not looks_like_id(mention):
        return None
    found: dict[tuple[str, str], NamePoint] = {}
    for collection in collections:
        forms = id_forms(mention, kb=collection.manifest.kb)
        points = collection.find(entity_ids=forms, types=types, limit=MAX_NAMES)
        for point in sorted(points, key=lambda one: one.is_canonical):
            found[point.kb, point.entity_id] = point
    given = mention.strip("<>")
    chosen = [point for point in found.values() if point.entity_id == given] or list(found.values())
    if len(chosen) != 1:
        return None
    return chosen[0] if chosen[0].is_canonical else _canonical_point(collections, chosen[0])


def _canonical_point(collections: Sequence[Collection], point: NamePoint) -> NamePoint:
    """The canonical name of a point's entity, which the type filter left out; the point itself if there is none."""
    for collection in collections:
        for named in collection.find(entity_ids=[point.entity_id], names=[point.canonical_name], limit=1):
            if named.kb == point.kb:
                return named
    return point
