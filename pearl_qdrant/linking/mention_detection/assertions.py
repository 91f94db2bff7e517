"""What a text says of a mention: affirmed, negated, possible, historical, or of another person.

Trigger words decide, in the manner of NegEx (Chapman et al. 2001) and ConText (Harkema et al. 2009). A trigger holds
for mentions after it (`denies`), before it (`was ruled out`) or both, in its sentence, up to a word that ends its scope
(`but`). It reaches `REACH` words; a comma, `and` or `or` start counting again, so that it holds for a whole list. Some
hold only for a mention that they touch (`neg`). Words that affirm end what was negated (`no fever, has cough`); where
they stand after a mention, from the last comma (`no fever, cough present`). Longer triggers win over those inside them:
`no increase` is none. Where several hold, the first of `PRECEDENCE` does.

The table of triggers (`assertion_triggers.tsv`) is English. `read_triggers` reads one for another language.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import NamedTuple

from pearl_qdrant.errors import FormatError, InputError
from pearl_qdrant.linking.options import TriggerTable
from pearl_qdrant.records import Annotation, Assertion

PRECEDENCE: tuple[Assertion, ...] = ("other_person", "possible", "negated", "historical")
"""The one that counts where a text says several: that of another person says least about this one."""

REACH = 8
"""Words from a trigger, or from a comma, `and` or `or` after it, to a mention. NegEx has 5, ConText the sentence."""

_TOKEN = re.compile(r"[^\W\d_]+?(?=n['’]t\b)|n['’]t\b|['’]s\b|[^\W\d_]+|\d+|[^\w\s]")
SENTENCE_END = re.compile(
    r"(?<![^\w][A-Za-z])(?<!\b[DM]r)(?<!\bMrs)(?<!\bvs)[.!?]+[)\"'”’]*(?=\s+[^\sa-z])|\n\s*\n|\n(?=\s*[^\sa-z])|\x1e"
)
_BLANK = " \t\r\n\v\f\x1e\xa0\u2060\ufeff"  # around a sentence; the word joiner covers markup
_LIST = frozenset(", / and or nor".split())
_KINDS = ("class", "none", "end", "affirmed", *PRECEDENCE)
_DIRECTIONS = ("forward", "backward", "both", "next forward", "next backward")
_TRIGGER_TOKEN = re.compile(r"\{\w+\}|" + _TOKEN.pattern)
_YEAR = re.compile(r"(19|20)\d\d")


class _Rule(NamedTuple):
    """What a trigger says where, and how many of its tokens are consumed."""

    length: int
    kind: str
    direction: str


class _Found(NamedTuple):
    """A trigger in a text: first token, the token after it, and the rules of that string of words."""

    first: int
    end: int
    rules: list[_Rule]


class _Words(NamedTuple):
    """The tokens of a text, in lower case, with the sentence of each and whether it is in a mention."""

    matches: list[re.Match[str]]
    words: list[str]
    sentence_of: list[int]
    is_mention: list[bool]


class Triggers:
    """A table of triggers, rows of assertion, direction and trigger, ready to be found."""

    def __init__(self, rows: Sequence[tuple[str, str, str]]) -> None:
        classes = {name: words.split("|") for kind, name, words in rows if kind == "class"}
        self._by_first: dict[str, dict[tuple[str, ...], list[_Rule]]] = {}
        for kind, direction, text in rows:
            if kind != "class":
                for form in _forms(text, classes):
                    consumed, _, _ = form.partition("|")
                    tokens = tuple(_tokens(form.replace("|", " ")))
                    rule = _Rule(len(_tokens(consumed)), kind, direction)
                    self._by_first.setdefault(tokens[0], {}).setdefault(tokens, []).append(rule)
        self._longest = max((len(t) for some in self._by_first.values() for t in some), default=0)

    def assertions(self, text: str, places: Sequence[tuple[int, int]]) -> list[tuple[Assertion, str | None]]:
        """What a text says of n mentions at (start, end), in characters, in any order: n pairs of an assertion and the
        trigger as it is written; None for affirmed ones.
        """
        if not places:
            return []
        matches = list(_TOKEN.finditer(text))
        starts = [match.start() for match in matches]
        ends = [match.end() for match in SENTENCE_END.finditer(text)]
        is_mention = [False] * len(matches)
        spans = []
        for start, end in places:
            first = max(0, bisect_right(starts, start) - 1)
            after = max(first + 1, bisect_right(starts, end - 1))
            spans.append((first, after))
            is_mention[first:after] = [True] * len(matches[first:after])
        words = [match.group().lower().replace("’", "'") for match in matches]
        tokens = _Words(matches, words, [bisect_right(ends, start) for start in starts], is_mention)
        found = list(self._find(tokens))
        return [_of_mention(text, tokens, found, *span) for span in spans]

    def _find(self, tokens: _Words) -> Iterator[_Found]:
        """The triggers of a text, none within a mention; the longest at each place."""
        i = 0
        while i < len(tokens.words):
            rules = [] if tokens.is_mention[i] else self._at(tokens, i)
            if rules:
                yield _Found(i, i + rules[0].length, rules)
            i += rules[0].length if rules else 1

    def _at(self, tokens: _Words, i: int) -> list[_Rule]:
        words = tokens.words[i : i + self._longest]
        n_own = sum(one == tokens.sentence_of[i] for one in tokens.sentence_of[i : i + self._longest])
        if n_own < self._longest:
            words = [*words[:n_own], "."]  # the end of a sentence is a full stop, if none is written
        numbers = [_number(word) for word in words]
        if words[0] not in self._by_first and numbers[0] not in self._by_first:
            return []
        for n in range(len(numbers), 0, -1):
            if any(tokens.is_mention[i : i + min(n, n_own)]):
                continue
            for form in (tuple(words[:n]), tuple(numbers[:n])):
                if rules := self._by_first.get(form[0], {}).get(form):
                    return rules
        return []


def _of_mention(
    text: str, tokens: _Words, found: Sequence[_Found], first: int, after: int
) -> tuple[Assertion, str | None]:
    """What is said of the mention of the tokens from `first` to `after`."""
    matches, words, sentence_of, _ = tokens
    if first < len(words):
        firsts = [one.first for one in found]
        middle = bisect_right(firsts, first)
        said: dict[str, _Found] = {}
        least = _affirmed_from(words, found[middle:], first, after)
        later = found[middle:] if least is None else []
        for some, direction in ((reversed(found[:middle]), "forward"), (iter(later), "backward")):
            for one in some:
                is_end = any(r.kind == "end" and r.direction in (direction, "both") for r in one.rules)
                if sentence_of[one.first] != sentence_of[first] or is_end or one.end <= (least or 0):
                    break
                between = words[one.end : first] if direction == "forward" else words[after : one.first]
                if _reaches(between if direction == "forward" else between[::-1]):
                    for rule in one.rules:
                        if rule.kind == "negated" and direction == "forward" and "affirmed" in said:
                            continue
                        if rule.direction in (direction, "both") or (
                            not between and rule.direction == f"next {direction}"
                        ):
                            said.setdefault(rule.kind, one)
        for kind in PRECEDENCE:
            if kind in said:
                one = said[kind]
                return kind, text[matches[one.first].start() : matches[one.end - 1].end()]
    return "affirmed", None


def _affirmed_from(words: Sequence[str], later: Sequence[_Found], first: int, after: int) -> int | None:
    """The comma from which a word directly after a mention affirms it, 0 without one; None if no word does."""
    if not (later and later[0].first == after and any(r.kind == "affirmed" for r in later[0].rules)):
        return None
    joint = next((i for i in range(first - 1, -1, -1) if words[i] in _LIST), 0)
    return joint if words[joint] == "," else 0


def _reaches(between: Sequence[str]) -> bool:
    """Whether a trigger reaches over some words, nearest to the trigger first; lists may be long."""
    n = 0
    for word in between:
        n = 0 if word in _LIST else n + 1
        if n > REACH:
            return False
    return True


def _tokens(text: str) -> list[str]:
    """The tokens of a trigger; {number} and {year} are one each."""
    return _TRIGGER_TOKEN.findall(text.lower().replace("’", "'"))


def _number(word: str) -> str:
    """A word, or what stands for it in triggers if it is in digits."""
    if not word.isdigit():
        return word
    return "{year}" if _YEAR.fullmatch(word) else "{number}"


def _forms(text: str, classes: dict[str, list[str]]) -> Iterator[str]:
    """A trigger with each word of its classes."""
    pieces = re.split(r"\{(\w+)\}", text)
    choices = [[p] if i % 2 == 0 else (classes.get(p) or [f"{{{p}}}"]) for i, p in enumerate(pieces)]
    return map("".join, product(*choices))


def read_triggers(path: str | Path) -> Triggers:
    """A table of triggers as in `assertion_triggers.tsv`. Raises InputError, or FormatError at a row that is none."""
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), None, f"not a table in UTF-8 ({error})") from error
    return _parse(lines, str(path))


def _parse(lines: Sequence[str], path: str) -> Triggers:
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith(("#", "assertion\t")):
            continue
        cells = line.split("\t")
        if len(cells) != 3 or cells[0] not in _KINDS or not _TOKEN.search(cells[2]):
            raise FormatError(path, number, f"expected assertion, direction, trigger; assertion is {_one_of(_KINDS)}")
        directions = ("forward", "next backward") if cells[0] == "affirmed" else _DIRECTIONS
        if cells[0] != "class" and cells[1] not in directions:
            raise FormatError(path, number, f"the direction is {cells[1]!r}. Give {_one_of(directions)}")
        rows.append((cells[0], cells[1], cells[2]))
    names = {direction for kind, direction, _ in rows if kind == "class"} | {"number", "year"}
    for _, _, text in rows:
        if unknown := set(re.findall(r"\{(\w+)\}", text)) - names:
            raise FormatError(path, 1, f"{text!r} has a class that no row defines: {', '.join(sorted(unknown))}")
    return Triggers(rows)


def _one_of(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


@lru_cache(maxsize=1)
def english_triggers() -> Triggers:
    """The table that ships."""
    name = "assertion_triggers.tsv"
    return _parse(files(__package__).joinpath(name).read_text("utf-8").splitlines(), name)


def with_assertions(
    text: str,
    found: Sequence[Annotation],
    triggers: TriggerTable | None,
    wanted: Sequence[str] = (),
    headings: Sequence[tuple[int, str]] = (),
) -> list[Annotation]:
    """Annotations of a text with what it says of each, its sentence and its section. `triggers` is None for the English
    ones, and only annotations with a `wanted` assertion are returned, all if empty.
    """
    said = (triggers or english_triggers()).assertions(text, [(one.start, one.end) for one in found])
    bounds = [0, *(match.end() for match in SENTENCE_END.finditer(text)), len(text)]
    described = []
    for one, (assertion, trigger) in zip(found, said, strict=True):
        if wanted and assertion not in wanted:
            continue
        n_sentence = min(bisect_right(bounds, one.start), len(bounds) - 1)
        start, end = bounds[n_sentence - 1], max(one.end, bounds[n_sentence])
        sentence = text[start:end]
        place = start + len(sentence) - len(sentence.lstrip(_BLANK)), start + len(sentence.rstrip(_BLANK))
        n_heading = bisect_right(headings, one.start, key=lambda heading: heading[0])
        section = headings[n_heading - 1][1] if n_heading else None
        described.append(replace(one, assertion=assertion, trigger=trigger, sentence=place, section=section))
    return described
