"""The names of a list: their file, forms, types, and the name that a node is called by.

A file of names (UTF-8) has one name a line; or is a table with a header (TSV) that has a column `name`, and may have
`type`, `source` and `context`; or JSON Lines with these fields.

A form is what is compared: names that differ in case, accents, spaces and punctuation alone. Names of one spelling key
(`lexical.keys`) and type are one form, unless their key is so short that punctuation tells them apart (`C`, `C++`,
`C#`). Memory grows with the distinct names, not with the stream.

A node is called by a frequent and whole name, never by a misspelt one. A name is misspelt if it has a word that is a
slip of a word of another name of its node, and that word is unknown where the other is known: by English text, or by
more names of the list.

Which types of names separate: `UNKNOWN` and coarser ones do not, types that differ do.

    any       no type, or one that says that there is none: `UNKNOWN`
    coarse    `concept`, `object`: says little, but names that are not equal stay apart by it
    general   `location` beside `city`, `organization` beside `company`
    special   all others: `planet`, `element`
"""

from __future__ import annotations

import json
import math
import re
import sys
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import chain, groupby
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import OSA

from pearl_qdrant.cells import is_null, text_of
from pearl_qdrant.errors import FormatError
from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import IGNORED, SMALL_WORDS, variant_word, word_rarity
from pearl_qdrant.linking.mention_detection.abbreviations import find_abbreviations
from pearl_qdrant.linking.mentions import read_text_lines
from pearl_qdrant.resolution.contexts import MOST, Contexts, shortened

SHORT_KEY = 2  # Letters and digits up to which punctuation is part of a name
SIGNED_KEY = 4  # Letters and digits up to which a sign before or after them is part of a name: `.NET`, `100%`

_SIGNS_BEFORE, _SIGNS_AFTER = ".@#$€£~", "+#%*"

MOST_SOURCES = 64  # Sources that are remembered of a form: an acronym that is found in more needs no further one
PREFIX = "nil-"  # Before the ids of nodes that no collection knows

_LONGEST_ACRONYM = 10
_NUMERONYM = re.compile(r"[A-Za-z]\d{1,2}[A-Za-z]")
_JOINTS = re.compile(r"(?<=\w)[\s\-\u2010-\u2015]+(?=\w)")  # what joins the letters of a short name: `F-S`, `FS`
_DOTTED = re.compile(r"(?:[A-Za-z]\.){2,}[A-Za-z]?")


@dataclass(frozen=True, slots=True)
class NameRecord:
    """A name as a graph, a table or a text has it.

    Attributes:
        name: The string.
        type: Its type in the source's own words (`PERSON`, `disease`), or "". Names of types that differ stay apart.
        source: Where it was found (the id of a document or chunk), or "". An acronym joins its long form only where
            both were found in one source, or one context defines it.
        context: Text around it, a description, or the names that relations join it to; or "". Names whose contexts are
            about other things stay apart, equal ones too. Abbreviations that one defines are merged, `tumor necrosis
            factor (TNF)`.

    A null cell of a table (None, NaN) is "", a number its digits.
    """

    name: str
    type: str = ""
    source: str = ""
    context: str = ""

    def __post_init__(self) -> None:
        for column in ("name", "type", "source", "context"):
            cell = getattr(self, column)
            if not isinstance(cell, str):
                object.__setattr__(self, column, "" if is_null(cell) else text_of(cell))


NAME_COLUMNS = ("name", "title", "entity", "entity_name", "mention")
"""Columns of names, the first that a table has; GraphRAG's tables have `title`, LightRAG's `entity_name`."""

TYPE_COLUMNS = ("type", "entity_type", "label")
SOURCE_COLUMNS = ("source", "source_id", "document", "doc_id")
CONTEXT_COLUMNS = ("context", "description", "text")
_COLUMNS = (NAME_COLUMNS, TYPE_COLUMNS, SOURCE_COLUMNS, CONTEXT_COLUMNS)


def read_names(file: BinaryIO, name: str) -> Iterator[NameRecord]:
    """Read a file of names, in constant memory; the form is recognised by its first line, `name` is its path. Raises
    FormatError at a line that is not UTF-8, or no JSON object with a name, where the first one is.
    """
    lines = read_text_lines(file, name)
    first = next(lines, None)
    if first is None:
        return
    number, text = first
    if text.lstrip().startswith("{"):
        for number, text in chain((first,), lines):
            if text.strip():
                yield _from_json(text, name, number)
        return
    columns = [cell.strip().lower() for cell in text.split("\t")]
    places = [next((columns.index(one) for one in known if one in columns), None) for known in _COLUMNS]
    if places[0] is None:
        yield from (NameRecord(text.split("\t")[0]) for _, text in chain((first,), lines))
        return
    for _, text in lines:
        cells = text.split("\t")
        values = ["" if place is None or place >= len(cells) else cells[place] for place in places]
        yield NameRecord(*values)


def _from_json(text: str, name: str, number: int) -> NameRecord:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise FormatError(name, number, f"not JSON ({error})") from error
    if not isinstance(record, dict):
        raise FormatError(name, number, "not a JSON object")
    values: list[Any] = [
        next((record[column] for column in known if not is_null(record.get(column))), None) for known in _COLUMNS
    ]
    if values[0] is None:
        raise FormatError(name, number, f"no field with a name; it is one of: {', '.join(NAME_COLUMNS)}")
    return NameRecord(*values)


NameKey = tuple[str, str, str]  # A name with its type and context


@dataclass(slots=True)
class Forms:
    """Distinct names and their forms, in an order that does not depend on that of the stream.

    Attributes:
        names: Distinct (name, type, context), n of them, sorted by form; a name whose contexts are all about one thing
            is one, with its first context.
        counts: How often each was given.
        form_of: The form of each.
        first: The name that stands for each form: the most frequent; of equal ones the first in order.
        folded: The folded name of each form.
        keys: Spelling key and type of each form.
        sources: Hashes of the sources of forms, where the records have them.
        defined: Pairs of forms, short and long, that a context defines.
        inputs: Digests of the streams that the counts are of.
        contexts: The contexts of forms that have some.
    """

    names: list[NameKey] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    form_of: Sequence[int] = ()
    first: Sequence[int] = ()
    folded: list[str] = field(default_factory=list)
    keys: list[tuple[str, str]] = field(default_factory=list)
    sources: dict[int, frozenset[int]] = field(default_factory=dict)
    defined: set[tuple[int, int]] = field(default_factory=set)
    inputs: tuple[str, ...] = ()
    contexts: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.first)

    def name(self, form: int) -> str:
        """The string that stands for a form."""
        return self.names[self.first[form]][0]

    def type(self, form: int) -> str:
        """The type of a form, or ""."""
        return self.names[self.first[form]][1]

    def subset(self, forms: Sequence[int]) -> Forms:
        """Some forms, in the given order, each with the name that stands for it alone."""
        is_pointed_to = bool(self.sources or self.defined or self.contexts)
        place = {form: i for i, form in enumerate(forms)} if is_pointed_to else {}
        return Forms(
            names=[self.names[self.first[form]] for form in forms],
            counts=[self.counts[self.first[form]] for form in forms],
            form_of=range(len(forms)),
            first=range(len(forms)),
            folded=[self.folded[form] for form in forms],
            keys=[self.keys[form] for form in forms],
            sources={place[form]: found for form, found in self.sources.items() if form in place},
            defined={(place[a], place[b]) for a, b in self.defined if a in place and b in place},
            contexts={place[form]: found for form, found in self.contexts.items() if form in place},
        )


def key_of(name: str, type_: str) -> tuple[str, str]:
    """What names of one form have in common: the spelling key, and the type without case."""
    name = plain_name(name)
    key = spelling_key(fold_name(name))
    if len(key) <= SHORT_KEY:
        key = _JOINTS.sub("", name.casefold()).strip()
        key = key.rstrip(".") or key
    elif len(key) <= SIGNED_KEY and name.strip():
        name = name.strip()
        key = name[0] * (name[0] in _SIGNS_BEFORE) + key + name[-1] * (name[-1] in _SIGNS_AFTER)
    return key, sys.intern(type_.casefold().strip())


def free_id(key: tuple[str, str], taken: Container[str]) -> str:
    """The id of a node that a name founds: a hash of its key, so that runs agree, with a number where it is `taken`."""
    number = 0
    while True:
        text = json.dumps([*key, number] if number else list(key), ensure_ascii=True)
        found = PREFIX + blake2b(text.encode(), digest_size=8).hexdigest()
        if found not in taken:
            return found
        number += 1


def plain_name(name: str) -> str:
    """A name as it is compared: an acronym without dots (`U.K.`), a possessive with the plain apostrophe."""
    return name.replace(".", "") if _DOTTED.fullmatch(name) else name.replace("\u2019", "'")


def _fold(name: str) -> str:
    return fold_name(plain_name(name))


def gather(
    records: Iterable[NameRecord | str],
    *,
    known: Mapping[NameKey, tuple[int, str]] | None = None,
    inputs: tuple[str, ...] = (),
    contexts: Contexts | None = None,
) -> Forms:
    """Read a stream of names; blank ones are left out.

    Args:
        records: Names, or records of them.
        known: Further names of an earlier run, with their counts and nodes.
        inputs: Digests of the streams that `known` counts; the same stream again is not counted again.
        contexts: Tells the senses of a name apart; without it each name has one.
    """
    counts: dict[NameKey, int] = {}
    digest = blake2b(digest_size=8)
    sources: dict[tuple[str, str], set[int]] = {}
    said: dict[tuple[str, str], set[str]] = {}
    defined: set[tuple[str, str]] = set()
    for record in records:
        one = record if isinstance(record, NameRecord) else NameRecord(record)
        name = " ".join(one.name.split())
        if not name:
            continue
        key = (name, sys.intern(one.type.strip()))
        if context := shortened(one.context):
            own = said.setdefault(key, set())
            context = context if len(own) < MOST or context in own else ""
            own.add(context)
        whole = (*key, context)
        counts[whole] = counts.get(whole, 0) + 1
        digest.update("\t".join((*key, one.source, one.context, "")).encode("utf-8", "surrogatepass"))
        if one.source:
            seen = sources.setdefault(key, set())
            if len(seen) < MOST_SOURCES:
                seen.add(hash(one.source))
        if one.context or "(" in name:
            defined.update(_defined_in(name, one.context))
    earlier = {key: count for key, (count, _) in (known or {}).items()}
    if counts and digest.hexdigest() in inputs:
        counts = earlier
    elif counts:
        inputs = (*inputs, digest.hexdigest())
        for known_key, count in earlier.items():
            counts[known_key] = counts.get(known_key, 0) + count
    nodes = {key: node for key, (_, node) in (known or {}).items()}
    forms = _forms(counts or earlier, sources, nodes, contexts)
    if defined:
        forms.defined = _defined_forms(forms, defined)
    forms.inputs = inputs
    return forms


def _defined_in(name: str, context: str) -> Iterator[tuple[str, str]]:
    """Short and long forms that a name and its context define."""
    yield from ((found.short, found.long) for found in (find_abbreviations(context) if context else ()))
    for found in find_abbreviations(name) if "(" in name else ():
        yield from ((found.short, found.long), (name, found.long), (found.short, name))


def _forms(
    counts: Mapping[NameKey, int],
    sources: Mapping[tuple[str, str], set[int]],
    nodes: Mapping[NameKey, str],
    contexts: Contexts | None,
) -> Forms:
    form_of, first = array("q"), array("q")  # a fifth of the memory of lists
    forms = Forms(form_of=form_of, first=first)
    keyed = sorted((key_of(*one[:2]), one) for one in counts)
    for key, group in groupby(keyed, lambda pair: pair[0]):
        names = [one for _, one in group]
        for sense in _senses(names, nodes, contexts):
            form = len(first)
            first.append(len(forms.names))
            forms.keys.append(key)
            if said := tuple(sorted({context for name in sense for *_, context in sense[name] if context})):
                forms.contexts[form] = said
            for one, given in sense.items():
                number = len(forms.names)
                forms.names.append(one)
                forms.counts.append(sum(counts[name] for name in given))
                form_of.append(form)
                if forms.counts[number] > forms.counts[first[form]]:
                    first[form] = number
                if own := sources.get(one[:2]):
                    forms.sources[form] = forms.sources.get(form, frozenset()) | own
            forms.folded.append(_fold(forms.name(form)))
    return forms


def _senses(
    names: Sequence[NameKey], nodes: Mapping[NameKey, str], contexts: Contexts | None
) -> list[dict[NameKey, list[NameKey]]]:
    """The names of one spelling and type by what they mean, each with those that were given. Several senses have a name
    for each context; where there are some, names without one are a sense of their own.
    """
    if len(names) == 1:
        return [{names[0]: list(names)}]
    said = sorted({context for *_, context in names if context})
    held = {name[2]: nodes[name] for name in names if name[2] and name in nodes}
    senses = contexts.senses(names[0][0], said, held) if contexts is not None and len(said) > 1 else [said]
    if len(senses) == 1:
        one: dict[tuple[str, str], list[NameKey]] = {}
        for name in names:
            one.setdefault(name[:2], []).append(name)
        return [{(*key, min(filter(None, (name[2] for name in own)), default="")): own for key, own in one.items()}]
    of = [[name for name in names if name[2] in sense] for sense in (*senses, [""])]
    return [{name: [name] for name in sense} for sense in of if sense]


def _defined_forms(forms: Forms, defined: set[tuple[str, str]]) -> set[tuple[int, int]]:
    """Forms of the abbreviations that contexts and names define."""
    by_key: dict[str, list[int]] = {}
    wanted = {key_of(name, "")[0] for pair in defined for name in pair}
    for form, (key, _) in enumerate(forms.keys):
        if key in wanted:
            by_key.setdefault(key, []).append(form)
    return {
        (short, long)
        for pair in defined
        for short in by_key.get(key_of(pair[0], "")[0], ())
        for long in by_key.get(key_of(pair[1], "")[0], ())
        if short != long
    }


def is_acronym_like(name: str) -> bool:
    """Whether a string looks like an acronym: one word of 2 to 10 characters, most of its letters in capitals; or two
    letters around a number, `i18n`.
    """
    letters = [c for c in name if c.isalpha()]
    if " " in name or not len(letters) >= 2 or len(name) > _LONGEST_ACRONYM:
        return False
    if _NUMERONYM.fullmatch(name):
        return True
    return 2 * sum(c.isupper() for c in letters) > len(letters)


_LONGEST = 40
_MISSPELT = -1.0


class CanonicalNames:
    """Weighs the names of a cluster."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms

    @cached_property
    def _counts(self) -> Counter[str]:
        """How often each word is given; counted when a slip is looked at first."""
        counts: Counter[str] = Counter()
        for form, folded in enumerate(self._forms.folded):
            count = self._forms.counts[self._forms.first[form]]
            for word in folded.split():
                counts[word] += count
        return counts

    def weights(self, members: Sequence[int]) -> dict[int, float]:
        """How good each form of a cluster is to call it by; less than 0 for a misspelt one."""
        words = {form: self._forms.folded[form].split() for form in members}
        return {
            form: _MISSPELT
            if any(self._is_misspelt(words[form], words[other]) for other in members if other != form)
            else self._weight(form)
            for form in members
        }

    def _weight(self, form: int) -> float:
        name, words = self._forms.name(form), self._forms.folded[form].split()
        extra = sum(word in SMALL_WORDS or word in IGNORED for word in words[:1] + words[1:][-1:])
        short = 0.5 * is_acronym_like(name) + 0.3 * ("," in name) + 0.2 * ("(" in name) + 0.2 * extra
        frequency = math.log2(1 + self._forms.counts[self._forms.first[form]])
        return max(0.0, frequency + 0.7 * min(len(name), _LONGEST) / _LONGEST - short)

    def _is_misspelt(self, words: Sequence[str], others: Sequence[str]) -> bool:
        """Whether a word is a slip of one of the other name that is known better."""
        ours, theirs = set(words) - set(others), set(others) - set(words)
        return any(
            _is_slip(word, other) and self._known(word) < self._known(other) for word in ours for other in theirs
        )

    def _known(self, word: str) -> tuple[bool, int]:
        """Whether English text has the word, and how often the list does."""
        return word_rarity(variant_word(word)) < 1.0, self._counts[word]


def _is_slip(word: str, other: str) -> bool:
    if min(len(word), len(other)) < 4 or variant_word(word) == variant_word(other):
        return False
    distance: int = OSA.distance(word, other, score_cutoff=2)
    return distance == 1 or (distance == 2 and min(len(word), len(other)) > 8)


ANY = frozenset(
    ("", "unknown", "none", "null", "nil", "n/a", "na", "undefined", "unspecified", "<entity_type>", "type")
)
"""Types that say that there is none; LightRAG writes UNKNOWN for names that only a relation has."""

COARSE = frozenset(
    "concept object thing other misc miscellaneous entity category term topic item node keyword content".split()
)

_GENERAL: tuple[tuple[str, str], ...] = (
    ("person people human per character individual", "man woman politician author scientist actor athlete employee"),
    (
        "location place loc geo gpe",
        "city town village country state region county province continent island river lake mountain street building",
    ),
    ("organization organisation org", "company business institution agency university government team corporation"),
    ("product technology", "software tool framework library platform device system app application website"),
    ("event", "war battle conference meeting holiday competition festival"),
)
"""Types by what they are kinds of; the general ones are synonyms."""

_FAMILY = {word: i for i, words in enumerate(_GENERAL, 1) for group in words for word in group.split()}
_IS_GENERAL = frozenset(word for general, _ in _GENERAL for word in general.split())
PERSON, PLACE = 1, 2  # The families of persons and places

_SPECIAL, _IN_GENERAL, _COARSE, _ANY = range(4)


class Types:
    """The types of n names, without case."""

    def __init__(self, types: Sequence[str]) -> None:
        distinct, codes = np.unique(
            np.array(types, dtype=object) if types else np.empty(0, object), return_inverse=True
        )
        levels = [
            _ANY if one in ANY else _COARSE if one in COARSE else _IN_GENERAL if one in _IS_GENERAL else _SPECIAL
            for one in distinct
        ]
        family = [_FAMILY.get(one, -1 - i) for i, one in enumerate(distinct)]
        self._code = np.array(codes, np.int32)
        self._level = np.array(levels, np.int8)[codes]
        self._family = np.array(family, np.int32)[codes]

    def agree(self, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Which of p pairs of names may mean the same by their types, (p,)."""
        level_a, level_b = self._level[a], self._level[b]
        is_same = (self._code[a] == self._code[b]) | (np.maximum(level_a, level_b) >= _COARSE)
        of_family = self._family[a] == self._family[b]
        found: npt.NDArray[np.bool_] = is_same | (of_family & (np.maximum(level_a, level_b) == _IN_GENERAL))
        return found

    def agree_pair(self, a: int, b: int) -> bool:
        return bool(self.agree(np.array([a]), np.array([b]))[0])

    def is_loose(self, a: int, b: int) -> bool:
        """Whether two types agree only because one is coarse."""
        return bool(self._code[a] != self._code[b] and max(self._level[a], self._level[b]) == _COARSE)

    def is_person(self, one: int) -> bool | None:
        """Whether a name is that of a person; None where its type does not say."""
        return None if self._level[one] >= _COARSE else bool(self._family[one] == PERSON)

    def is_place(self, one: int) -> bool:
        """Whether a name is that of a place, by its type."""
        return bool(self._level[one] < _COARSE and self._family[one] == PLACE)
