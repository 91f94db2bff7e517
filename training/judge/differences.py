"""Made differences between two names: what changes nothing, and what makes another thing of a name.

    same        slips, case, punctuation, plural, order, articles, legal forms, titles, initials, cut words, the name's
                own type before or after it or in brackets, another script in Latin letters
    other       a noun or an adjective more (`X lawsuit`, `fake X`, `a critic of X`), another word in the place of one
                (its opposite, or another thing of the same kind), another number, generation, first name or bracket

Words come from WordNet: nouns and adjectives with how often texts have them, opposites, and the words below the same
broader one. Source: WordNet 3.0 (Miller 1995), manual pages wndb(5WN), cntlist(5WN).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anyascii import anyascii

from pearl_qdrant.lexical.words import english_words
from pearl_qdrant.linking import mention_kinds as kinds
from pearl_qdrant.linking.ranking.scoring import words_of_type
from training.examples.wordnet import read_opposites, read_synsets

_PERSON, _LIVING = 18, (5, 20)
"""Lexicographer files of nouns: persons; animals and plants, most of which no name has beside it."""
_BEFORE = ("{noun} of {name}", "a {noun} of {name}", "the {noun} of {name}", "{noun} for {name}", "{noun} in {name}")
_AFTER = ("{name} {noun}", "{name} {noun}s", "{name}'s {noun}", "{name}-{noun}", "the {name} {noun}")
_PERSONS = ("{noun} of {name}", "a {noun} of {name}", "the {noun} of {name}", "{name}'s {noun}", "{name} {noun}")
_NOT = ("anti-{name}", "non-{name}", "pseudo-{name}", "pre-{name}", "post-{name}", "ex-{name}", "not {name}")
_GENERATIONS = ("Jr.", "Sr.", "II", "III", "IV")
_NUMBERS = ("2", "3", "II", "III", "IV", "5", "7", "V", "10")


@dataclass(frozen=True, slots=True)
class Words:
    """Words of WordNet.

    Attributes:
        nouns: Nouns of one word, frequent ones more often.
        persons: The same for persons: `critic`, `widow`.
        adjectives: Adjectives of one word.
        others: By a word in small letters, its opposites and the words below the same broader one.
    """

    nouns: tuple[str, ...]
    persons: tuple[str, ...]
    adjectives: tuple[str, ...]
    others: Mapping[str, tuple[str, ...]] = field(repr=False)

    @classmethod
    def read(cls, wordnet: Path) -> Words:
        """Read WordNet's `dict` folder. Raises FormatError if there is none."""
        rank = {word: i for i, word in enumerate(english_words())}
        nouns: list[str] = []
        persons: list[str] = []
        adjectives: list[str] = []
        below: dict[str, list[str]] = {}
        names: dict[str, tuple[str, ...]] = {}
        for synset in read_synsets(wordnet):
            single = [name for name in synset.names if name.isalpha() and name.islower() and len(name) > 2]
            names[synset.synset_id] = synset.names
            if synset.is_instance or not single:
                continue
            if synset.lexical_class == "NP":
                for parent in synset.hypernyms:
                    below.setdefault(parent, []).extend(single[:1])
                target = persons if synset.lex_file == _PERSON else nouns
                for name in () if synset.lex_file in _LIVING else single[:1]:
                    target += [name] * (1 + 3 * (rank.get(name, 1 << 30) < 8_000))
            elif synset.lexical_class == "ADJP":
                adjectives += [name for name in single[:1] for _ in range(1 + 3 * (rank.get(name, 1 << 30) < 8_000))]
        others: dict[str, list[str]] = {}
        for group in below.values():
            if 2 <= len(group) <= 60:
                for name in group:
                    others.setdefault(name, []).extend(one for one in group if one != name)
        for name, opposite in read_opposites(wordnet):
            others.setdefault(name, []).extend([opposite] * 12)
        some = {word: tuple(group) for word, group in others.items() if group}  # a word alone has no others
        return cls(tuple(nouns), tuple(persons or nouns), tuple(adjectives), some)


@dataclass(frozen=True, slots=True)
class Named:
    """A name that differences are made of, with its coarse types and the words that say what it is."""

    name: str
    types: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # such as "river", as the base says it


def same(named: Named, rng: random.Random) -> str | None:
    """Another way to write the name; None if the kind that was drawn does not apply to it."""
    made = rng.choices(_SAME, weights=_SAME_WEIGHTS)[0](named, rng)
    if made is not None and rng.random() < 0.15:
        made = kinds.other_case(made, rng) or made
    return made if made and made != named.name else None


def other(named: Named, words: Words, people: Sequence[kinds.NamedEntity], rng: random.Random) -> str | None:
    """A name of another thing; None if the kind that was drawn does not apply. `people` lend first names."""
    made = rng.choices(_OTHER, weights=_OTHER_WEIGHTS)[0](named, words, people, rng)
    if made is not None and rng.random() < 0.15:
        made = kinds.other_case(made, rng) or made
    return made if made and made.casefold() != named.name.casefold() else None


def _of_kind(named: Named, rng: random.Random) -> str | None:
    """The name with what it is: in brackets, before or after it."""
    own = [kind for kind in named.kinds if kind not in named.name.casefold()]
    if not own:
        return None
    kind = rng.choice(own)
    forms = ["{n} ({k})", "{n} ({k})", "the {k} {n}", "{k} {n}", "{n}, {k}"]
    if {"GPE", "LOC", "FAC", "ORG"}.intersection(named.types):
        forms += ["{n} {k}", "{n} {K}", "{k} of {n}", "the {k} of {n}"]
    return rng.choice(forms).format(n=named.name, k=kind, K=kind.capitalize())


def _without_brackets(named: Named, rng: random.Random) -> str | None:
    bare = re.sub(r"\s*\([^)]*\)$", "", named.name)
    return bare if len(bare) > 2 else None


def _cut(named: Named, rng: random.Random) -> str | None:
    """The longer words cut short after a consonant; small words left out."""
    words = named.name.split()
    if "PERSON" in named.types or not 2 <= len(words) <= 7 or not all(re.fullmatch(r"[^\W\d_]+", w) for w in words):
        return None
    stop, found, n_cut = rng.choice((".", ".", "")), [], 0
    for word in words:
        ends = [i for i in range(3, min(7, len(word) - 1)) if word[i - 1].lower() not in "aeiouy"]
        if len(word) <= 3 and word.islower():
            found += [word] if rng.random() < 0.3 else []
        elif not ends or rng.random() < 0.2:
            found.append(word)
        else:
            found.append(word[: rng.choice(ends)] + stop)
            n_cut += 1
    return " ".join(found) if n_cut and 2 * n_cut >= len(found) > 1 else None


def _latin(named: Named, rng: random.Random) -> str | None:
    return anyascii(named.name) if not named.name.isascii() else None


def _with_the(named: Named, rng: random.Random) -> str | None:
    return rng.choice(("the {}", "The {}", "{}.", "{},", '"{}"', "{} ", "a {}", "’{}’")).format(named.name)


_SAME: tuple[Callable[[Named, random.Random], str | None], ...] = (
    lambda n, rng: kinds.other_case(n.name, rng),
    lambda n, rng: kinds.other_punctuation(n.name, rng),
    lambda n, rng: kinds.without_spaces(n.name, rng),
    lambda n, rng: kinds.slip(n.name, rng),
    lambda n, rng: kinds.slip(kinds.slip(n.name, rng) or "", rng) if len(n.name) > 9 else None,
    lambda n, rng: kinds.plural(n.name, rng),
    lambda n, rng: kinds.inverted(n.name, rng),
    lambda n, rng: kinds.affixed(n.name, n.types, rng),
    lambda n, rng: kinds.respelled(n.name, rng),
    lambda n, rng: kinds.initials(n.name, n.types, rng),
    lambda n, rng: kinds.in_words(n.name, n.types, rng),
    _of_kind,
    _without_brackets,
    _cut,
    _latin,
    _with_the,
)
_SAME_WEIGHTS = (1, 1, 1, 9, 2, 1.5, 2, 2, 2, 1.5, 1, 4, 1, 1.5, 1.5, 1.5)


def _word_more(named: Named, words: Words, people: object, rng: random.Random) -> str | None:
    """A noun before or after the name."""
    is_person = rng.random() < 0.35
    noun = rng.choice(words.persons if is_person else words.nouns)
    if noun in named.kinds:
        return None
    forms = _PERSONS if is_person else rng.choice((_BEFORE, _AFTER, _AFTER))
    made = rng.choice(forms).format(noun=noun, name=named.name)
    return made.title() if named.name.istitle() and rng.random() < 0.3 else made


def _quality_more(named: Named, words: Words, people: object, rng: random.Random) -> str | None:
    if rng.random() < 0.2:
        return rng.choice(_NOT).format(name=named.name)
    return f"{rng.choice(words.adjectives)} {named.name}"


def _word_replaced(named: Named, words: Words, people: object, rng: random.Random) -> str | None:
    """The opposite of a word, or another thing of its kind, in its place."""
    parts = re.split(r"(\W+)", named.name)
    places = [i for i, part in enumerate(parts) if part.casefold() in words.others]
    if not places or len(parts) == 1:
        return None
    at = rng.choice(places)
    new = rng.choice(words.others[parts[at].casefold()])
    parts[at] = new.capitalize() if parts[at][0].isupper() else new
    return "".join(parts)


def _part_alone(named: Named, words: Words, people: object, rng: random.Random) -> str | None:
    """What is left without the first or last word, where that is a common noun: `city` of `Mexico City`."""
    parts = named.name.split()
    if len(parts) < 2 or "PERSON" in named.types or parts[-1].casefold() not in words.others:
        return None
    return parts[-1]


def _number_more(named: Named, words: Words, people: object, rng: random.Random) -> str | None:
    if "PERSON" in named.types:
        return f"{named.name} {rng.choice(_GENERATIONS)}"
    return f"{named.name} {rng.choice(_NUMBERS)}"


def _bracket(named: Named, words: Words, people: object, rng: random.Random) -> str | None:
    """Another thing in brackets."""
    if (made := kinds.other_brackets(named.name, rng)) is not None:
        return made
    noun = rng.choice(words.nouns)
    return None if noun in named.kinds or not named.kinds else f"{named.name} ({noun})"


_OTHER: tuple[Callable[[Named, Words, Sequence[kinds.NamedEntity], random.Random], str | None], ...] = (
    _word_more,
    _quality_more,
    _word_replaced,
    _part_alone,
    _number_more,
    _bracket,
    lambda n, words, people, rng: kinds.other_number(n.name, rng),
    lambda n, words, people, rng: kinds.other_first_name(n.name, n.types, people, rng),
    lambda n, words, people, rng: kinds.one_word_more(n.name, n.types, people, rng),
    lambda n, words, people, rng: kinds.sibling(n.name, people, rng),
)
_OTHER_WEIGHTS = (5, 2, 3, 0.3, 0.7, 1, 3, 1.5, 1.5, 3)


def in_brackets(named: Named, words: Words, rng: random.Random) -> Named:
    """The name with something in brackets: what it is, a word, a year, or a year and what it is."""
    kind = rng.choice(named.kinds) if named.kinds and rng.random() < 0.7 else rng.choice(words.nouns)
    year = str(rng.randint(1900, 2025))
    inside = rng.choice((kind, kind, year, f"{year} {kind}", f"{kind} {rng.randint(1, 20)}"))
    return Named(f"{named.name} ({inside})", named.types, (kind,))


def tried(make: Callable[[], str | None], tries: int) -> str | None:
    """The first that is made in some tries."""
    return next((made for _ in range(tries) if (made := make()) is not None), None)


def words_of_kind(kinds_of: Iterable[str], known: frozenset[str]) -> tuple[str, ...]:
    """The last part of each fine type that is a plain known word: `wikicat_rivers` is none, `river` is one."""
    return tuple(dict.fromkeys(one for one in map(words_of_type, kinds_of) if one in known))
