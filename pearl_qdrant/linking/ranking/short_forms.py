"""Short forms of longer names: how well the letters of a mention fit a name, learned from short forms that people use.

    mention   a short form: three letters and more in one word, two of them capitals          ICME, RüstKontrG, CSRV 2
    in order  each letter begins a word of the name, goes on with it or is inside it; words may be left out
    parts     the parts that begin with a capital are in the name, in any order                InfoElekAusbV
    score     the sum of the weights of the steps of the best way: what it adds to the logit of the name

    ICME      International Conference on Multimedia & Expo: first, start, skip_small, start, start

A name is compared where it has twice the letters and the short form is no word of it. Where no candidate fits, nothing
changes. `runs/short_form_model.py` fits the weights of `short_forms.json`, and what the length says for NIL.

Source of the idea: Schwartz and Hearst 2003, "A simple algorithm for identifying abbreviation definitions"; the weights
are those of a log-linear model over the best way, fitted anew for the ways that they choose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import TypeAlias

from pearl_qdrant.lexical.keys import SKIPPED_WORDS
from pearl_qdrant.lexical.ngrams import fold_name

STEPS = (
    "first",  # the first letter begins a word
    "start",  # another letter does
    "small_start",  # a small letter does, in a mention that has both
    "next",  # a letter follows the one before it in the word
    "capital_next",  # a capital does, in a mention that has small letters
    "inside",  # a letter is further on in the word of the one before
    "capital_inside",  # a capital is
    "skip_small",  # a small word has no letter (`SKIPPED_WORDS`)
    "skip",  # another word between others has none
    "skip_rare",  # and how rare it is in the base, in [0, 1]
    "lead",  # the same of words before the first letter
    "lead_rare",
    "tail_rare",  # and of words after the last one, how rare they are
    "miss",  # a letter that the name lacks
    "miss_number",
    "number",  # a number that the name has
    "head",  # the last letters are the first word of the name: `RüstKontrG`, Gesetz ...
    "part_start",  # letters of parts that begin a word
    "part_inside",  # and that are in one
    "letter_start",  # parts of one letter that begin a word
    "part_miss",
    "part_miss_number",
    "part_number",
    "unlike",  # the name does not fit, beside others that do
)
OF_NIL = ("bias", "length", "size", "mixed")  # tens of letters, at most 1; logarithm of the names over 10
_MENTION = re.compile(r"(\S+)(?: (\d+|[A-Z]{1,3}))?")
_LONGEST = 16  # letters and signs of a mention
_LEAST, _CAPITALS = 3, 2  # letters, and capitals among those of its first word
_SHORTER = 2  # a name has at least so many letters for each of the short form
_HEAD = 5  # last letters that may be the first word

Steps: TypeAlias = Mapping[str, float]
_Way: TypeAlias = "tuple[_Way, str, float] | None"
_State: TypeAlias = tuple[float, _Way]  # score and steps of the best way to here


@dataclass(frozen=True, slots=True)
class ShortForm:
    """The letters of a mention that may be short for a name.

    Attributes:
        symbols: Folded letters, and whole numbers.
        capitals: Which of them are capitals.
        parts: The same, joined to parts that begin with a capital.
        is_mixed: Whether it has small letters, too.
    """

    symbols: tuple[str, ...]
    capitals: tuple[bool, ...]
    parts: tuple[str, ...]
    is_mixed: bool

    @property
    def searched(self) -> str:
        """What names are searched by: the longer parts, or all letters where there are none."""
        return " ".join([part for part in self.parts if len(part) >= _LEAST]) or "".join(self.symbols)


def short_form(mention: str) -> ShortForm | None:
    """The letters of a cleaned mention, if it may be a short form."""
    return _short_form(mention) if len(mention) <= _LONGEST else None


@lru_cache(maxsize=1000)  # each part of a search asks
def _short_form(mention: str) -> ShortForm | None:
    found = _MENTION.fullmatch(mention)
    if found is None or sum(map(str.isupper, found[1])) < _CAPITALS:
        return None
    symbols: list[tuple[str, bool]] = []
    for of in re.findall(r"\d+|[^\W\d_]", mention):
        symbols += (
            [(of.lstrip("0") or "0", False)] if of.isdigit() else [(c, of.isupper()) for c in fold_name(of) if c != " "]
        )
    letters = [is_capital for symbol, is_capital in symbols if symbol.isalpha()]
    if len(letters) < _LEAST:
        return None
    parts: list[str] = []
    for symbol, is_capital in symbols:
        if is_capital or not parts or not (symbol.isalpha() and parts[-1].isalpha()):
            parts.append(symbol)
        else:
            parts[-1] += symbol
    texts, capitals = zip(*symbols, strict=True)
    return ShortForm(texts, capitals, tuple(parts), not all(letters))


@dataclass(frozen=True, slots=True)
class ShortFormModel:
    """The weights of the steps, in logits, and what short forms of this length and case have for NIL."""

    steps: Mapping[str, float]
    nil: Mapping[str, float]

    def nil_logit(self, mention: str, log_size: float) -> float:
        """What a mention adds to the logit of NIL where a candidate fits it, in a base of so many names: three letters
        fit some name of a large one by chance.
        """
        short = short_form(mention)
        return 0.0 if short is None else sum(self.nil[name] * x for name, x in nil_steps(short, log_size).items())

    def score(self, steps: Steps) -> float:
        """What the steps of a way add to the logit of a name."""
        return sum(self.steps[step] * value for step, value in steps.items())


def nil_steps(short: ShortForm, log_size: float) -> Steps:
    """What a short form says for NIL, by name; `log_size` is the natural logarithm of the number of names."""
    values = (1.0, min(len(short.symbols), 10) / 10, log_size / 10, float(short.is_mixed))
    return dict(zip(OF_NIL, values, strict=True))


@lru_cache(maxsize=1)
def shipped_short_forms() -> ShortFormModel:
    """The weights that come with this package."""
    loaded = json.loads(files(__package__).joinpath("short_forms.json").read_text("utf-8"))
    return ShortFormModel(loaded["steps"], loaded["nil"])


def may_be_short_for(short: ShortForm, words: Sequence[str]) -> bool:
    """Whether a name of these folded words is compared: it is much longer, and does not have the mention as a word."""
    letters = "".join(symbol for symbol in short.symbols if symbol.isalpha())
    whole = "".join(short.symbols)
    return sum(map(len, words)) >= _SHORTER * len(whole) and letters not in words and whole not in words


def best_way(short: ShortForm, words: Sequence[str], rarities: Sequence[float], model: ShortFormModel) -> Steps | None:
    """The steps of the best way from a short form to a name of these folded words, by how often each is made, or None
    if the name does not fit; `rarities` of the words are in [0, 1].
    """
    if not may_be_short_for(short, words):
        return None
    found = _in_order(short, words, rarities, model.steps)
    if short.is_mixed and any(len(a) > 1 and b.isalpha() for a, b in pairwise((*short.parts, short.parts[0]))):
        parts = _by_parts(short, words)
        if parts is not None and (found is None or model.score(parts) > model.score(found)):
            found = parts
    return found


def _by_parts(short: ShortForm, words: Sequence[str]) -> Steps | None:
    """The steps where each part is searched by itself; None if more than a third is not there."""
    steps: dict[str, float] = {}

    def add(step: str, value: float = 1.0) -> None:
        steps[step] = steps.get(step, 0.0) + value

    for part in short.parts:
        if not part.isalpha():
            add("part_number" if part in words else "part_miss_number")
        elif any(word.startswith(part) for word in words):
            add("part_start", len(part)) if len(part) > 1 else add("letter_start")
        elif len(part) > 1 and any(part in word for word in words):
            add("part_inside", len(part))
        else:
            add("part_miss")
    return steps if steps.get("part_miss", 0.0) <= len(short.parts) // 3 else None


def _in_order(
    short: ShortForm, words: Sequence[str], rarities: Sequence[float], weights: Mapping[str, float]
) -> Steps | None:
    """The steps of the best way in the order of the letters; None if it lacks more than a quarter of them."""
    n = len(short.symbols)
    states: list[_State | None] = [(0.0, None), *[None] * n]
    head = next((word for word in words if word not in SKIPPED_WORDS and len(word) > 3), None)
    heads = [(head, None)] if head and len(words) > 1 else []
    for word, rarity in [*zip(words, rarities, strict=True), *heads]:
        after = list(states) if rarity is None else _skipped(states, word, rarity, weights)
        for at, state in enumerate(states[:-1]):
            if state is not None and (rarity is not None or at >= max(1, n - _HEAD)):
                _read_word(short, at, state, word, after, weights, is_head=rarity is None)
        for at, symbol in enumerate(short.symbols):
            _move(after, at + 1, after[at], "miss" if symbol.isalpha() else "miss_number", 1.0, weights)
        states = after
    end = states[-1]
    if end is None or end[0] < weights["unlike"]:
        return None
    steps: dict[str, float] = {}
    way = end[1]
    while way is not None:
        way, step, value = way
        steps[step] = steps.get(step, 0.0) + value
    missed = steps.get("miss", 0.0) + steps.get("miss_number", 0.0)
    return steps if missed <= max(1, n // 4) else None


def _skipped(
    states: Sequence[_State | None], word: str, rarity: float, weights: Mapping[str, float]
) -> list[_State | None]:
    """The states behind a word that has no letter of the short form."""
    after: list[_State | None] = [None] * len(states)
    for at, state in enumerate(states):
        if word in SKIPPED_WORDS:
            _move(after, at, state, "skip_small", 1.0, weights)
        elif at == len(states) - 1:
            _move(after, at, state, "tail_rare", rarity, weights)
        elif state is not None:
            kind = "skip" if at else "lead"
            counted = (state[0] + weights[kind], (state[1], kind, 1.0))
            _move(after, at, counted, f"{kind}_rare", rarity, weights)
    return after


def _move(
    states: list[_State | None], at: int, state: _State | None, step: str, value: float, weights: Mapping[str, float]
) -> None:
    """Keep the way by this step from a state where it is the best one."""
    if state is not None:
        score, best = state[0] + weights[step] * value, states[at]
        if best is None or score > best[0]:
            states[at] = score, (state[1], step, value)


def _read_word(
    short: ShortForm,
    at: int,
    state: _State,
    word: str,
    after: list[_State | None],
    weights: Mapping[str, float],
    *,
    is_head: bool,
) -> None:
    """Keep the ways on which a word has the letters from `at` on, the first of them at its beginning."""
    symbols, n = short.symbols, len(short.symbols)
    if not symbols[at].isalpha():
        if symbols[at] == word and not is_head:
            _move(after, at + 1, state, "number", 1.0, weights)
        return
    if symbols[at] != word[0]:
        return
    is_small = short.is_mixed and not short.capitals[at]
    step = "head" if is_head else "small_start" if is_small else "start" if at else "first"
    # states by place in the word; each round reads one letter more
    places: dict[int, _State] = {0: (state[0] + weights[step], (state[1], step, 1.0))}
    while places:
        at += 1
        best = after[at]
        top = max(places.values(), key=lambda one: one[0])
        if best is None or top[0] > best[0]:
            after[at] = top
        if at == n or not symbols[at].isalpha():
            return
        is_capital = short.is_mixed and short.capitals[at]
        further: dict[int, _State] = {}
        for place, (score, way) in places.items():
            for there, step in _places(word, place, symbols[at], is_capital):
                total = score + weights[step]
                if there not in further or total > further[there][0]:
                    further[there] = total, (way, step, 1.0)
        places = further


def _places(word: str, place: int, letter: str, is_capital: bool) -> list[tuple[int, str]]:
    """Where a letter is in a word behind a place, next to it and further on, with the steps."""
    found = []
    if word.startswith(letter, place + 1):
        found.append((place + 1, "capital_next" if is_capital else "next"))
    if (there := word.find(letter, place + 2)) > 0:
        found.append((there, "capital_inside" if is_capital else "inside"))
    return found
