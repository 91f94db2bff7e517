"""Mentions as they arrive, and those that are ids.

- Cleaned before they are searched: white space, broken Unicode, wrongly decoded UTF-8, excessive length; and what is
  no name of the base as it stands, from what stands around the name (`plain_mentions`).
- In batches that are bounded in number and in total length, from plain and from asynchronous iterables.
- From files line by line: UTF-8 with or without a byte order mark, in constant memory.

A mention may be the id of an entity, which a base and a user may write differently. Each form finds each other one:

    with a prefix      DOID:5844, DOID_5844, doid:5844
    IRI                http://purl.obolibrary.org/obo/DOID_5844, with https or in <>, too
    without a prefix   Q64 (wd:Q64), D009203 (MESH:D009203), C0027051 (UMLS:C0027051): only where the vocabulary is
                       known by the letters of the id, or the prefix is the short name of the base
    as it stands       AAPL, 64-17-5, a UUID, react: any word without a space, in its own case; with a digit and a
                       joint, or behind the short name of the base, in capitals and small letters, too

A number alone is never an id, since it says nothing of the base.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import BinaryIO

from pearl_qdrant.errors import FormatError
from pearl_qdrant.linking.plain_mentions import TITLES, unquoted
from pearl_qdrant.settings import MAX_LINE_BYTES
from pearl_qdrant.store.protocol import Collection
from pearl_qdrant.store.schema import MAX_NAMES, NamePoint

MAX_CHARACTERS = 10_000
"""Maximum length of a mention. The longest real names, of chemicals and laboratory tests, have a few thousand."""

BATCH_CHARACTERS = 1 << 18
"""A batch ends with the mention that reaches this length. A thousand ordinary mentions have a tenth of it."""

_MAYBE_MISREAD = re.compile("[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u2122]")
"""Looks like a UTF-8 letter whose bytes were decoded as Windows-1252."""

_UNSEEN = re.compile("[\u00ad\u200b\u2060\ufeff]")  # not the joiners of Persian and Indic scripts


def clean_mention(mention: object) -> str:
    """The text of a mention in a form that can be encoded and searched, without white space around it. What is no
    string, invalid Unicode, and text too long to be a name give "", which no entity is called. UTF-8 that was decoded
    as Windows-1252 or Latin-1 is repaired: "Ry\u00c5\u00abky\u00c5\u00ab" becomes "Ry\u016bky\u016b"; soft
    hyphens and spaces without width are left out.
    """
    if not isinstance(mention, str) or is_too_long(mention):
        return ""
    try:
        mention.encode("utf-8")
    except UnicodeEncodeError:
        return ""
    text = _repaired(mention) if _MAYBE_MISREAD.search(mention) else mention
    return (text if text.isascii() else _UNSEEN.sub("", text)).strip()


def is_too_long(mention: object) -> bool:
    """Whether a string, without surrounding white space, is longer than any name."""
    return isinstance(mention, str) and len(mention) > MAX_CHARACTERS and len(mention.strip()) > MAX_CHARACTERS


_STAND_FOR_NOTHING = frozenset(
    "n/a na n.a. n.a nan none null nil unknown unk unspecified undefined missing tbd tba tbc "
    "- -- --- — – _ . ... … ? ?? ??? * / #n/a".split()
) | {"not available", "not applicable", "not specified", "not known", "no data", "to be determined", "to be announced"}

_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"[\d\s.,:/%+\-–]*\d[\d\s.,:/%+\-–]*")


def stands_for_nothing(mention: str) -> bool:
    """Whether a cell holds what people write where there is no name: `n/a`, `-`, `unknown`."""
    return mention.strip().casefold() in _STAND_FOR_NOTHING


def is_no_name(mention: object) -> bool:
    """Whether a string is no name by itself: what stands for nothing, a title alone, a number alone."""
    if not isinstance(mention, str):
        return False
    text = unquoted(mention.strip())
    if len(text) > 24:  # longer than all that stands for nothing
        return False
    return stands_for_nothing(text) or text.casefold().rstrip(".") in TITLES or bool(_NUMBER.fullmatch(text))


def are_several_numbers(mention: str) -> bool:
    """Whether a number alone is at least three, whose signs may be others in a name: `1, 2, 3, 4`, not `1.5`."""
    return len(_DIGITS.findall(mention)) > 2 and bool(_NUMBER.fullmatch(mention.strip()))


def check_are_many(mentions: object) -> None:
    """Refuse a single string in place of a list. Raises TypeError if `mentions` is a string."""
    if isinstance(mentions, (str, bytes)):
        raise TypeError("mentions is one string, whose letters would be linked one by one: pass a list, or use link")


def _repaired(text: str) -> str:
    """The text decoded as UTF-8 from its Windows-1252 bytes, or unchanged if they are not valid UTF-8."""

    def byte(character: str) -> bytes:
        try:
            return character.encode("cp1252")
        except UnicodeEncodeError:
            return character.encode("latin-1")  # Windows-1252 does not define five of the 256 bytes

    try:
        return b"".join(map(byte, text)).decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return text


def take(mentions: Iterator[str], n: int) -> list[str]:
    """The next mentions: at most `n`, fewer where they are long, none at the end."""
    batch = []
    length = 0
    for mention in mentions:
        batch.append(mention)
        length += _length(mention)
        if len(batch) == n or length >= BATCH_CHARACTERS:
            break
    return batch


def _length(mention: object) -> int:
    """Length of a mention; 0 for anything that is not text."""
    return len(mention) if isinstance(mention, str) else 0


async def take_async(mentions: Iterable[str] | AsyncIterable[str], n: int) -> AsyncIterator[list[str]]:
    """Batches as `take` makes them; a plain iterable is read in a thread, since it may block."""
    if not isinstance(mentions, AsyncIterable):
        iterator = iter(mentions)
        while batch := await asyncio.to_thread(take, iterator, n):
            yield batch
        return
    batch = []
    length = 0
    async for mention in mentions:
        batch.append(mention)
        length += _length(mention)
        if len(batch) == n or length >= BATCH_CHARACTERS:
            yield batch
            batch, length = [], 0
    if batch:
        yield batch


def read_text_lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    r"""Yield line numbers, from 1, and lines without their ending (``\n`` or ``\r\n``). Raises FormatError at a line
    that is not UTF-8, or longer than `MAX_LINE_BYTES`.
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise FormatError(name, number, f"longer than {MAX_LINE_BYTES:,} bytes. Is this a text with short lines?")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(name, number, "not UTF-8. Convert the file, as with iconv") from error
        yield number, text.rstrip("\r\n")


MAX_ID_CHARACTERS = 300  # longer mentions are never ids; the IRIs of the usual vocabularies have up to 100 characters

_HAS_FORMS = re.compile(
    r"""<?https?://[^\s<>]+>?                              # an IRI
    |   /[mg]/\w+                                          # Freebase
    |   (?=\D{0,60}\d) [A-Za-z][\w.-]* (?::[\w.-]+)?         # letters first, a digit, at most one colon
    """,
    re.VERBOSE | re.ASCII,
)
_WORD = re.compile(r"(?=\S*[A-Za-z]|\d+(?:-\d+)+$)[\w/][\w.:/+#@-]*", re.ASCII)  # or numbers joined by hyphens
_JOINED_CODE = re.compile(r"(?=\D*\d)\w+(?:[_.:/-]\w+)+", re.ASCII)
_PREFIXED = re.compile(r"([A-Za-z](?:[\w.-]*(?=:)|[A-Za-z0-9.-]*))[:_]([\w.-]*\d[\w.-]*)", re.ASCII)
_CODE = re.compile(r"[A-Z]{1,6}\d{4,}")

_MIXED_CASE = {
    prefix.casefold(): prefix
    for prefix in "FBbi FBbt FBcv FBdv FlyBase HsapDv MeSH MmusDv NCBITaxon Orphanet UniProtKB WBbt WBls".split()
}
"""Prefixes that are written in mixed case, by their folded form; all others are in capitals or in small letters."""


class _Vocabulary:
    """A vocabulary whose ids are known without a prefix: the folded prefixes that stand for it, the pattern of ids
    without one, and what is written before these.
    """

    def __init__(self, prefixes: str, pattern: str, written: str) -> None:
        self.prefixes, self.pattern = frozenset(prefixes.split()), re.compile(pattern, re.ASCII)
        self.written = tuple(written.split())


_VOCABULARIES = (
    _Vocabulary(
        "wd wikidata",
        r"[QP][1-9]\d*",
        "wd: wikidata: http://www.wikidata.org/entity/ https://www.wikidata.org/entity/ "
        "http://www.wikidata.org/wiki/ https://www.wikidata.org/wiki/",
    ),
    _Vocabulary("mesh msh", r"[CD]\d{6,9}", "MESH: MeSH: mesh: MSH: http://id.nlm.nih.gov/mesh/"),
    _Vocabulary("umls cui umls_cui", r"C\d{7}", "UMLS: UMLS_CUI: umls: CUI:"),
    _Vocabulary("ncit ncithesaurus", r"C\d{4,6}", "NCIT: ncit: http://purl.obolibrary.org/obo/NCIT_"),
    _Vocabulary("interpro ipr", r"IPR\d{6}", "InterPro: INTERPRO: interpro:"),
    _Vocabulary("ensembl", r"ENS[A-Z]*\d{11}", "ENSEMBL: ensembl: Ensembl:"),
    _Vocabulary(
        "uniprot uniprotkb",
        r"[OPQ]\d[A-Z0-9]{3}\d|[A-NR-Z]\d(?:[A-Z][A-Z0-9]{2}\d){1,2}",
        "UniProtKB: UniProt: uniprot: http://purl.uniprot.org/uniprot/",
    ),
    _Vocabulary("icd icd10 icd10cm icd-10 icd-10-cm", r"[A-Z]\d[0-9A-Z](?:\.[0-9A-Z]{1,4})?", "ICD10: ICD10CM:"),
    _Vocabulary("ec eccode", r"\d+(?:\.(?:n?\d+|-)){1,3}", "EC: ec:"),
)

_PREFIXED_IRIS = (
    "http://purl.obolibrary.org/obo/{}_{}",
    "https://purl.obolibrary.org/obo/{}_{}",
    "http://www.ebi.ac.uk/efo/{}_{}",
    "http://www.orpha.net/ORDO/{}_{}",
)
"""IRIs of ids with a prefix."""


def looks_like_id(mention: str) -> bool:
    """Whether a mention may be an id: one word that is no number, or an IRI. It takes 1 us."""
    if len(mention) > MAX_ID_CHARACTERS or stands_for_nothing(mention):
        return False
    return _WORD.fullmatch(mention) is not None or _HAS_FORMS.fullmatch(mention) is not None


def id_forms(mention: str, *, kb: str | None = None) -> list[str]:
    """The ways in which a base may write an id, each once; the mention itself is the first. None for what is no id.
    Ids of a base may have its short name as their prefix.
    """
    if not looks_like_id(mention):
        return []
    given = mention.strip("<>")
    forms = [given]
    if _HAS_FORMS.fullmatch(mention):
        forms += _other_forms(given, kb)
    prefix, _, local = given.partition(":")
    if kb and local and prefix.casefold() == kb.casefold():
        forms += [local, local.upper(), local.lower()]
    if "://" not in given and _JOINED_CODE.fullmatch(given):
        forms += [given.upper(), given.lower()]
    return list(dict.fromkeys(forms))


def _other_forms(given: str, kb: str | None) -> Iterator[str]:
    """The forms of an id, some of them several times."""
    if "://" in given:
        host, _, end = given.rstrip("/").rpartition("#" if "#" in given else "/")
        scheme, _, rest = given.partition("://")
        yield f"{'http' if scheme == 'https' else 'https'}://{rest}"
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


def find_by_ids(
    collections: Sequence[Collection], mentions: Sequence[str], types: Sequence[str] = ()
) -> dict[str, NamePoint]:
    """The entities whose ids some mentions are: the points of their canonical names. A mention is left out if there is
    no such entity, or several differ and none of them has the mention itself as its id. Types are those of
    `Collection.find`.
    """
    found: dict[str, dict[tuple[str, str], NamePoint]] = {}
    for collection in collections:
        forms = {one: id_forms(one, kb=collection.manifest.kb) for one in mentions}
        every = list(dict.fromkeys(form for some in forms.values() for form in some))
        points = collection.find(entity_ids=every, types=types, limit=MAX_NAMES) if every else []
        of_id: dict[str, list[NamePoint]] = {}
        for point in sorted(points, key=lambda one: one.is_canonical):
            of_id.setdefault(point.entity_id, []).append(point)
        for mention, some in forms.items():
            for point in (point for form in some for point in of_id.get(form, ())):
                found.setdefault(mention, {})[point.kb, point.entity_id] = point
    chosen: dict[str, NamePoint] = {}
    for mention, of_mention in found.items():
        given = mention.strip("<>")
        best = [point for point in of_mention.values() if point.entity_id == given] or list(of_mention.values())
        if len(best) == 1:
            chosen[mention] = best[0] if best[0].is_canonical else _canonical(collections, best[0])
    return chosen


def _canonical(collections: Sequence[Collection], point: NamePoint) -> NamePoint:
    """The point of the canonical name, which a type filter may leave out."""
    for collection in collections:
        for named in collection.find(entity_ids=[point.entity_id], names=[point.canonical_name], limit=1):
            if named.kb == point.kb:
                return named
    return point
