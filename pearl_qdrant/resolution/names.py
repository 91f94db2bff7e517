"""Distinct names of a stream, grouped to forms: names that differ in case, accents, spaces and punctuation alone.

A form is what is compared. Names of one spelling key (`lexical.keys`) and type are one form, unless their key is so
short that punctuation tells them apart (`C`, `C++`, `C#`). Memory grows with the distinct names, not with the stream.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.mention_detection.abbreviations import find_abbreviations
from pearl_qdrant.resolution.records import NameRecord

SHORT_KEY = 2
"""Letters and digits up to which punctuation is part of a name."""

SIGNED_KEY = 4
"""Letters and digits up to which a sign before or after them is part of a name: `.NET`, `100%`."""

_SIGNS_BEFORE, _SIGNS_AFTER = ".@#$€£~", "+#%*"

MOST_SOURCES = 64
"""Sources that are remembered of a form: an acronym that is found in more needs no further one."""

PREFIX = "nil-"
"""Before the ids of nodes that no collection knows."""

_LONGEST_ACRONYM = 10
_DOTTED = re.compile(r"(?:[A-Za-z]\.){2,}[A-Za-z]?")


@dataclass(slots=True)
class Forms:
    """Distinct names and their forms, in an order that does not depend on that of the stream.

    Attributes:
        names: Distinct (name, type), n of them, sorted by form.
        counts: How often each was given.
        form_of: The form of each.
        first: The name that stands for each form: the most frequent; of equal ones the first in order.
        folded: The folded name of each form.
        keys: Spelling key and type of each form.
        sources: Hashes of the sources of forms, where the records have them.
        defined: Pairs of forms, short and long, that a context defines.
        inputs: Digests of the streams that the counts are of.
    """

    names: list[tuple[str, str]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    form_of: Sequence[int] = ()
    first: Sequence[int] = ()
    folded: list[str] = field(default_factory=list)
    keys: list[tuple[str, str]] = field(default_factory=list)
    sources: dict[int, frozenset[int]] = field(default_factory=dict)
    defined: set[tuple[int, int]] = field(default_factory=set)
    inputs: tuple[str, ...] = ()

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
        is_pointed_to = bool(self.sources or self.defined)
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
        )


def key_of(name: str, type_: str) -> tuple[str, str]:
    """What names of one form have in common: the spelling key, and the type without case."""
    name = plain_name(name)
    key = spelling_key(fold_name(name))
    if len(key) <= SHORT_KEY:
        key = " ".join(name.casefold().split())
    elif len(key) <= SIGNED_KEY and name.strip():
        name = name.strip()
        key = name[0] * (name[0] in _SIGNS_BEFORE) + key + name[-1] * (name[-1] in _SIGNS_AFTER)
    return key, sys.intern(type_.casefold().strip())


def free_id(key: tuple[str, str], taken: Container[str]) -> str:
    """The id of a node that a name founds: a hash of the name, so that runs agree.

    Args:
        key: Spelling key and type of the name (`key_of`).
        taken: Ids of other nodes; one of them may have the same founder, which left it.
    """
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
    known: Mapping[tuple[str, str], int] | None = None,
    inputs: tuple[str, ...] = (),
) -> Forms:
    """Read a stream of names; blank ones are left out.

    Args:
        records: Names, or records of them.
        known: Further names (name, type) with their counts, of an earlier run.
        inputs: Digests of the streams that `known` counts. The same stream again is not counted again.
    """
    counts: dict[tuple[str, str], int] = {}
    digest = blake2b(digest_size=8)
    sources: dict[tuple[str, str], set[int]] = {}
    defined: set[tuple[str, str]] = set()
    for record in records:
        one = NameRecord(record) if isinstance(record, str) else record
        name = " ".join(one.name.split())
        if not name:
            continue
        key = (name, sys.intern(one.type.strip()))
        counts[key] = counts.get(key, 0) + 1
        digest.update("\t".join((*key, one.source, one.context, "")).encode("utf-8", "surrogatepass"))
        if one.source:
            seen = sources.setdefault(key, set())
            if len(seen) < MOST_SOURCES:
                seen.add(hash(one.source))
        if one.context:
            defined.update((found.short, found.long) for found in find_abbreviations(one.context))
        if "(" in name:
            for found in find_abbreviations(name):
                defined.update(((found.short, found.long), (name, found.long), (found.short, name)))
    if counts and digest.hexdigest() in inputs:
        counts = dict(known or {})
    elif counts:
        inputs = (*inputs, digest.hexdigest())
        for key, count in (known or {}).items():
            counts[key] = counts.get(key, 0) + count
    forms = _forms(counts or known or {}, sources, defined)
    forms.inputs = inputs
    return forms


def _forms(
    counts: Mapping[tuple[str, str], int], sources: Mapping[tuple[str, str], set[int]], defined: set[tuple[str, str]]
) -> Forms:
    form_of, first = array("q"), array("q")  # a fifth of the memory of lists
    forms = Forms(form_of=form_of, first=first)
    last: tuple[str, str] | None = None
    for key, one in sorted((key_of(*one), one) for one in counts):
        number = len(forms.names)
        forms.names.append(one)
        forms.counts.append(counts[one])
        if key != last:
            last = key
            forms.keys.append(key)
            first.append(number)
            forms.folded.append(_fold(one[0]))
        form = len(first) - 1
        form_of.append(form)
        if counts[one] > counts[forms.names[first[form]]]:
            first[form] = number
            forms.folded[form] = _fold(one[0])
        if own := sources.get(one):
            forms.sources[form] = forms.sources.get(form, frozenset()) | own
    if defined:
        forms.defined = _defined_forms(forms, defined)
    return forms


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
    """Whether a string looks like an acronym: one word of 2 to 10 characters, most of its letters in capitals."""
    letters = [c for c in name if c.isalpha()]
    if " " in name or not len(letters) >= 2 or len(name) > _LONGEST_ACRONYM:
        return False
    return 2 * sum(c.isupper() for c in letters) > len(letters)
