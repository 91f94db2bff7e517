"""What of a text can be a name: by how the base writes its names, and by the words themselves.

How a base writes its names, as words (`aspirin`, `Diabetes mellitus`) or as proper names (`Leipzig`), is measured from
a sample of the base when a linker first annotates, for each coarse type:

- Persons, places, organisations, works and events have proper names.
- Other types are written as words if many canonical names have a lower-case word. Where case says nothing (single
  words, Title Case, all capitals), the types that the model's head predicts for the names decide.
- Where canonical names start with small letters too, a capital means something: `Turkey` beside `turkey`; but not
  where those that have one are common words without it: `Pneumonia` beside `migraine`.

Whether a span can mention a name is decided by:

- **Case.** A proper name has its capitals, unless the text has none: `nature` is not the journal, `who` not the WHO.
- **Common words.** `Reading` is a place within a sentence; at its start, or where a text has no case, it is a word. A
  word that is mostly a name (`March`) is one there too.
- **Whole names.** What is cut out of a longer name is no mention: `Chad` in `Chad Smith`. It is one if all other words
  are mentions too (`Paris France`); titles and roles are no part of a name (`German Chancellor Angela Merkel`).
- **Likeness.** One word that is not a name as it stands must be a form of one: `cardiomyopathies`, not `cup` for a cup
  of coffee.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum
from typing import Protocol

from rapidfuzz.distance import OSA

from pearl_qdrant.lexical.keys import name_keys
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import (
    SMALL_WORDS,
    begins_names,
    is_common,
    is_mostly_name,
    is_word,
    other_spellings,
    variant_word,
    without_legal_forms,
    word_rarity,
)
from pearl_qdrant.linking.mention_detection.spans import CONNECTORS, DATES, ROLES, STOP_WORDS, Shape, Span
from pearl_qdrant.linking.options import CommonWords
from pearl_qdrant.store.schema import NamePoint

PROPER_TYPES = frozenset("PERSON NORP ORG GPE LOC FAC EVENT WORK_OF_ART LAW".split())
"""Coarse types whose names are capitalised in running text."""

SAMPLE = 4_000  # points read of each collection. Their ids are hashes, so the first ones are a random sample.
_WORDS = 0.3
"""Names are words if this share of them has a lower-case word where proper names have capitals. Of the bases that were
looked at, those of diseases, anatomy, cells and chemicals have over 0.8, those of places and works below 0.1."""

_SMALL_STARTS, _LEAST = 0.1, 5
"""Share of canonical names with a small first letter from which a capital one means something; and names of a type from
which it is judged by itself, and not with all the others."""

_LETTERS = re.compile(r"[^\W\d_]+")


class Named(Protocol):
    """A name of an entity: a candidate, or what is stored of it."""

    @property
    def name(self) -> str: ...
    @property
    def canonical_name(self) -> str: ...
    @property
    def types(self) -> Sequence[str]: ...


class Writing(Enum):
    """How a name is written."""

    WORD = "word"  # a word of the language; its capital says nothing, if it has one
    CAPITAL = "capital"  # written with a capital in a base that writes others without
    PROPER = "proper"  # a proper name


@dataclass(slots=True)
class _Counts:
    """Counts of the canonical names of one type."""

    names: int = 0
    small_starts: int = 0
    long: int = 0  # names of several words
    with_small_word: int = 0
    predicted: int = 0
    predicted_proper: int = 0
    common_with_capital: int = 0
    mostly_names: int = 0  # of these

    def add(self, point: NamePoint) -> None:
        words = _LETTERS.findall(point.name)
        if not words:
            return
        self.names += 1
        self.small_starts += words[0][0].islower()
        later = [word for word in words[1:] if len(word) > 3 and word.lower() not in CONNECTORS]
        self.long += bool(later)
        self.with_small_word += any(word[0].islower() for word in later)
        lowered = point.name.lower()
        if len(words) == 1 and words[0].istitle() and is_common(lowered):
            self.common_with_capital += 1
            self.mostly_names += is_mostly_name(lowered)
        if point.predicted_type is not None and (len(words) > 1 or not is_common(lowered)):
            self.predicted += 1
            self.predicted_proper += point.predicted_type in PROPER_TYPES

    def writing(self, *, has_case: bool, has_type: bool) -> Writing:
        """How most names are written; whether names have a type counts where the head predicts nothing."""
        is_word = 2 * self.predicted_proper < self.predicted if self.predicted else has_type
        if has_case and (
            self.small_starts >= _WORDS * self.names > 0
            or (self.long >= _LEAST and self.with_small_word >= _WORDS * self.long)
        ):
            is_word = True
        # A capital means something where names have both kinds of letters, unless it is that of any word.
        is_any_word = self.common_with_capital > 1 and 2 * self.mostly_names < self.common_with_capital
        if has_case and self.small_starts >= _SMALL_STARTS * self.names > 0 and not is_any_word:
            return Writing.CAPITAL if is_word else Writing.PROPER
        return Writing.WORD if is_word else Writing.PROPER


@dataclass(frozen=True, slots=True)
class NameCase:
    """How the names of some collections are written; made by `of_points`."""

    # how those of each coarse type that was seen often enough are written, "" for none
    of_type: Mapping[str, Writing] = field(default_factory=dict)
    untyped: Writing = Writing.PROPER  # how the others are written
    typed: Writing = Writing.PROPER
    has_case: bool = True  # whether some names have capitals and others small letters
    is_capitals: bool = False  # whether nearly all names are in capitals
    has_periods: bool = False  # whether most names end with a period, which a text has not

    @classmethod
    def of_points(cls, points: Iterable[NamePoint]) -> NameCase:
        """Measure a sample of names."""
        by_type: Mapping[str, _Counts] = defaultdict(_Counts)
        everything = _Counts()
        n_lower = n_upper = n_names = n_periods = 0
        for point in points:
            n_names += 1
            n_periods += point.name.endswith(".")
            n_lower += point.name != point.name.upper()
            n_upper += point.name != point.name.lower()
            if point.is_canonical and PROPER_TYPES.isdisjoint(point.types):
                everything.add(point)
                by_type[point.types[0] if point.types else ""].add(point)
        has_case = n_lower >= 0.05 * n_names and n_upper >= 0.02 * n_names  # acronyms and names of people are in all
        of_type = {
            name: counts.writing(has_case=has_case, has_type=bool(name))
            for name, counts in by_type.items()
            if counts.names >= _LEAST
        }
        untyped, typed = (everything.writing(has_case=has_case, has_type=has_type) for has_type in (False, True))
        is_capitals = n_names > n_lower < 0.05 * n_names
        return cls(of_type, untyped, typed, has_case, is_capitals=is_capitals, has_periods=2 * n_periods > n_names)

    def writing_of(self, candidate: Named) -> Writing:
        """How the name of a candidate is written."""
        is_small = candidate.name == candidate.name.lower()
        if self.has_case and is_small:
            return Writing.WORD
        if not PROPER_TYPES.isdisjoint(candidate.types):
            return Writing.PROPER
        others = self.typed if candidate.types and candidate.types[0] else self.untyped
        writing = self.of_type.get(candidate.types[0] if candidate.types else "", others)
        return Writing.WORD if writing is Writing.CAPITAL and is_small else writing


_SLIP = 0.85  # share of equal letters of a name and a slip in it: two of nine letters may differ, or be swapped
_ENDINGS = ("an", "ese", "ish", "ine", "ic", "i")  # endings of adjectives of places and persons: Canadian, Argentine
_BESIDE = ROLES | SMALL_WORDS | {"group", "holding", "holdings"}
"""Words beside a name that do not make it another one: titles, roles and legal forms."""

NO_MATTER = _BESIDE | CONNECTORS  # words that a mention may have and its name lack
_BETWEEN = frozenset("and or as by from to at on".split())
"""Words between two things, where the base has no name with such a word: neurons and glia, cells from the lens."""

_QUALIFYING = CONNECTORS | {"type", "due", "without", "not"}
"""Words after the noun of a name: diabetes mellitus type 2, disorder of the eye."""

_INITIALS, _SHORT_CAPITALS = 5, 4
"""A word of so many letters may be the initials of several words; a common one in capitals is an acronym: US, WHO."""

LOOSE = frozenset((Shape.LOWER, Shape.MIXED, Shape.UNCASED))
"""Shapes of several words that a name must have all of: most runs of words of a text have one of them."""

_SLIP_LETTERS = 4, 6  # letters of a word from which one slip, and two, leave it that word in a longer name

_SEVERAL = 3
"""Known words from which a phrase is no other form of a name: none was in 40 abstracts and 5,000 words of Wikipedia."""


def is_as_it_stands(written: str, folded: str) -> bool:
    """Whether a string can be a name only up to its keys (`lexical.keys`): a known word, which is no slip of another
    one, or several of them that are not all capitalised.
    """
    if not folded or not all(is_common(word) or is_word(word) or word in CONNECTORS for word in folded.split()):
        return False
    words = [word for word in written.split() if word not in CONNECTORS]
    return len(words) == 1 or (len(words) >= _SEVERAL and any(word[0].islower() for word in words))


def is_like(word: str, other: str) -> bool:
    """Whether a folded word may be another one: in another spelling or number, or with a slip; short ones have none."""
    if other in other_spellings(word):
        return True
    n = min(len(word), len(other))
    most = 0 if n < _SLIP_LETTERS[0] else 1 if n < _SLIP_LETTERS[1] else 2
    return most > 0 and OSA.distance(word, other, score_cutoff=most) <= most


def has_words(words: Iterable[str], name: Iterable[str]) -> bool:
    """Whether a name has all of some words, but for those that do not matter, or words like them; all are folded."""
    return all(word in NO_MATTER or any(is_like(word, other) for other in name) for word in words)


def can_be_name(folded: str, known: Container[str]) -> bool:
    """Whether a string can be a name, or a form of one: names have each of its common words, in some spelling."""
    return all(
        word in NO_MATTER or not is_common(word) or any(form in known for form in other_spellings(word))
        for word in folded.split()
    )


def may_mention(
    span: Span, written: str, candidate: Named, case: NameCase, *, is_exact: bool, common_words: CommonWords
) -> bool:
    """Whether a span, `written` with single spaces, can mention a candidate; `is_exact`: it is its name, folded."""
    if span.shape is Shape.GIVEN or common_words == "all":
        return True
    lowered, name, writing = written.lower(), candidate.name, case.writing_of(candidate)
    is_exact = is_exact or _is_without_legal_form(written, candidate)
    if span.shape is Shape.DEFINED:
        return is_exact or _is_form_of(lowered, name, Writing.WORD)
    is_word = " " not in written
    if lowered in DATES and fold_name(candidate.canonical_name) != lowered:
        return False
    common = is_word and (is_common(lowered) or lowered in STOP_WORDS)
    is_frequent = common and (writing is not Writing.WORD or word_rarity(variant_word(lowered)) < 1.0)
    if (common and common_words == "skip") or (is_frequent and not is_exact):
        return False
    if not is_exact and (
        is_date(lowered)
        or not _is_form_of(lowered, name if case.has_case else name.lower(), writing, is_loose=span.shape in LOOSE)
    ):
        return False
    is_cased = span.shape is not Shape.UNCASED
    is_acronym = is_word and case.has_case and " " not in name and _has_capitals(name)
    if is_acronym and is_cased and not _has_capitals(written):
        return not common and (writing is not Writing.PROPER or written != lowered)
    if not is_cased or (span.shape is Shape.LOWER and not case.has_case and is_exact):
        return writing is not Writing.PROPER or not common or is_mostly_name(lowered)
    if span.shape is Shape.LOWER:  # without capitals, but perhaps that of its sentence
        if writing is Writing.WORD:
            return True
        if span.case_matters:
            return writing is Writing.CAPITAL and not common
        if not is_word:
            return writing is Writing.CAPITAL or written == name
        return not common or is_mostly_name(lowered)
    is_in_capitals = common and len(written) <= _SHORT_CAPITALS and _has_capitals(written)
    return not is_in_capitals or _has_capitals(name) or not case.has_case


def _is_without_legal_form(written: str, candidate: Named) -> bool:
    """Whether a string is the name of an organisation without its legal form: `TWILIO`, `Twilio Inc.`."""
    if " " not in candidate.name:
        return False
    words = fold_name(candidate.name).split()
    bare = without_legal_forms(words)
    is_organisation = not candidate.types or "ORG" in candidate.types
    return is_organisation and len(bare) < len(words) and fold_name(written).split() == bare


def _has_capitals(word: str) -> bool:
    """Whether a word has several capitals and no small letter, but for a plural s."""
    stem = word.removesuffix("s")
    return stem == stem.upper() and sum(c.isupper() for c in stem) > 1


def _is_form_of(written: str, name: str, writing: Writing, *, is_loose: bool = False) -> bool:
    """Whether lower-case words may be a form of a name: a plural, another spelling, a slip, fewer words of it; of
    several words that are not all capitalised (`is_loose`), all. A name with several capitals is an acronym, and a word
    like it is another one. What a proper name with an ending is, `American` for America, is another word, and one with
    more words, or with a letter or number more, is another name.
    """
    is_word = " " not in written
    is_acronym = sum(c.isupper() for c in name) > 1 if is_word else len(name) <= _INITIALS and " " not in name
    if is_acronym or (is_word and " " in name):
        return False
    if not is_word and writing is not Writing.PROPER and _lacks_noun(written, name.lower()):
        return False
    written, name = fold_name(written), fold_name(name)
    if not _BETWEEN.isdisjoint(written.split()) and _BETWEEN.isdisjoint(name.split()):
        return False
    n = min(len(written), len(name))
    if name_keys(written)[1] == name_keys(name)[1] != "":  # another spelling of the same words: haematuria, hematuria
        return True
    if any(map(_is_mark, written.split())) and not any(map(_is_mark, name.split())):
        return False
    if writing is not Writing.PROPER:
        is_slip = is_word and n > 3 and written[: n // 2] == name[: n // 2] and is_like(written, name)
        return is_slip or (not is_word and (not is_loose or has_words(written.split(), name.split())))
    if name.startswith(written):
        return name[n:] in ("", "s") or name[n] == " "
    if written.startswith(name):
        ending = written[n:]
        return ending == "s" or (ending[0] == " " and _BESIDE.issuperset(ending.split()))
    words, of_name = set(written.split()), set(name.split())
    if not is_word and " " in name and (words < of_name or (of_name < words and _BESIDE.issuperset(words - of_name))):
        return True
    if any(written.endswith(ending) and not name.endswith(ending) for ending in _ENDINGS):
        return False
    return n > 3 and SequenceMatcher(None, written, name, autojunk=False).ratio() >= _SLIP


def _lacks_noun(written: str, name: str) -> bool:
    """Whether words begin a name, but lack its noun: `central nervous system` of `central nervous system tumor`."""
    rest = name.removeprefix(f"{written} ")
    following = rest.split(" ", 1)[0].strip(",;")
    return rest != name and following.isalpha() and following not in _QUALIFYING and not _is_mark(following)


def _is_mark(word: str) -> bool:
    """Whether a word is a letter or a number, which says that a thing is one of several: `protein S`, `type 2`."""
    return len(word) == 1 or word.isdigit()


def is_date(lowered: str) -> bool:
    """Whether a span is a month or a day of the week with numbers, or one of these alone."""
    return all(word in DATES or word.isdigit() for word in lowered.replace(",", " ").split())


def is_whole(span: Span, writing: Writing, others: Iterable[Span]) -> bool:
    """Whether the span of a mention is no piece of a longer name, by the spans of all mentions."""
    run = span.run
    if run is None or (writing is not Writing.PROPER and span.shape is Shape.UNCASED):
        return True
    counted = [span, *(o for o in others if not run.is_linked or (o.start <= span.start and span.end <= o.end))]
    rest = [word for start, end, word in run.words if not any(o.start <= start and end <= o.end for o in counted)]
    if writing is Writing.PROPER:
        return not rest
    return all(is_common(word) and not begins_names(word) for word in rest)
