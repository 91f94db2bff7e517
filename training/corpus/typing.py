"""Entity types of phrases: by form, by lists of names (distant supervision), or by a NER model as in the paper.

Without a model, a phrase gets a type if, without leading prepositions and articles, it is a name of that type or has
the form of a date, an amount and so on. An unknown capitalised phrase gets no type, since it may be anything. Every
other phrase is OTHER. English.

Words of an encoder's vocabulary, alone and in pairs, for phrases that stay where it has them, and their types.

They stand for the language that the base of a refresh does not speak of, and need no other file.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pearl_qdrant.encoder.protocol import Encoder, type_marginals
from pearl_qdrant.errors import ModelError
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES
from training.corpus.chunking import CLOSED_CLASS, EMPTY_WORDS
from training.examples.files import TypeTable, entity_type_of, normalise_name
from training.examples.numbers import ONES, ORDINAL_ONES, ORDINAL_TENS, TENS
from training.examples.wordnet import Synset

_ONES = "|".join((*ONES, *TENS))
_SCALES = "hundred|thousand|million|billion|trillion|dozen"
_WORDS = rf"(?:(?:{_ONES}|{_SCALES}|a|half a|half)(?:[- ](?:and )?(?:{_ONES}|{_SCALES}))*)"
_FIGURE = r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?"
_NUMBER = rf"(?:{_FIGURE}(?:[ -](?:{_SCALES}|[mb]n))?|{_WORDS})"
_ABOUT = (
    r"(?:(?:about|around|some|nearly|almost|over|under|only|roughly|approximately|exactly|up to|at least|at most|"
    r"more than|less than|fewer than|no more than|as many as|another|the|every|each|these|those|its|their)[ ])*"
)
_RANGE = rf"{_ABOUT}{_NUMBER}(?:(?: ?[-–] ?| to | or | and ){_NUMBER})?"

_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december|jan\.?|feb\.?|mar\.?|"
    r"apr\.?|jun\.?|jul\.?|aug\.?|sept?\.?|oct\.?|nov\.?|dec\.?)"
)
_DAY = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?"
_ORDINAL_WORDS = "|".join((*ORDINAL_ONES, *ORDINAL_TENS, "hundredth", "thousandth", "millionth"))
_ORDINAL = (
    rf"(?:\d+(?:,\d{{3}})*(?:st|nd|rd|th)|(?:(?:{'|'.join(TENS)})-)?"
    rf"(?:{_ORDINAL_WORDS}))"
)
_YEAR = r"(?:1\d{3}|20\d{2})"
_ERA = r"(?: ?(?:bc|ad|bce|ce|b\.c\.|a\.d\.))"
_SPAN = r"(?:days?|nights?|weeks?|weekends?|months?|quarters?|years?|decades?|centur(?:y|ies)|millenni(?:um|a))"
_CLOCK = r"(?:minutes?|seconds?|hours?|milliseconds?|mins?|hrs?)"
_HALF_DAY = r"(?:[ap]\.?m\b\.?)"
_DAYTIME = r"(?:morning|afternoon|evening|night|midday|noon|midnight|dawn|dusk|sunrise|sunset)"
_WHICH = r"(?:last|next|this|that|the (?:last|next|past|previous|following|same|early|late|mid)|early|late|mid|every)"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_CURRENCY = (
    r"(?:(?:us |u\.s\. |american |canadian |australian |hong kong )?dollars?|euros?|pounds?(?: sterling)?|yen|yuan|"
    r"francs?|rupees?|pesos?|cents?|rubles?|roubles?|won|marks?|lire?|kronor?|krone|reais|real|shillings?|pence)"
)
_CODE = r"(?:usd|eur|gbp|jpy|chf|cny|inr|cad|aud|rmb)"
_SIGN = r"(?:(?:us|a|c|hk|nz|s|can)?\$|€|£|¥|₹)"
_UNIT = (
    r"(?:(?:square |cubic |sq\.? |nautical )?(?:kilomet(?:re|er)s?|met(?:re|er)s?|centimet(?:re|er)s?|"
    r"millimet(?:re|er)s?|miles?|feet|foot|ft|inch(?:es)?|yards?|km|cm|mm|m|mi|yd|in)|km2|m2|m³|km²|m²|kilograms?|"
    r"grams?|milligrams?|kg|g|mg|lbs?|oz|ounces?|pounds?|tonnes?|tons?|lit(?:re|er)s?|ml|l|gallons?|barrels?|"
    r"hectares?|ha|acres?|degrees?|°[cf]?|mph|km/h|kph|knots?|[kmgt]?hz|[kmgt]b|gigabytes?|megabytes?|[kmg]?w|"
    r"watts?|kilowatts?|megawatts?|volts?|v|amps?|calories|kcal|kilojoules|horsepower|hp|bhp|light[- ]years?)"
)

_RULES: tuple[tuple[str, str], ...] = (
    ("PERCENT", rf"{_RANGE} ?(?:%|percent|per cent|percentage points?)"),
    ("MONEY", rf"{_ABOUT}(?:{_SIGN}|{_CODE}) ?{_FIGURE}(?: ?(?:{_SCALES}|[kmb]n?))?(?: ?[-–] ?{_SIGN}?{_FIGURE})?"),
    ("MONEY", rf"{_RANGE} (?:{_CURRENCY}|{_CODE})"),
    ("TIME", rf"{_ABOUT}\d{{1,2}}[:.]\d\d(?::\d\d)? ?(?:{_HALF_DAY})?(?: ?(?:gmt|utc|est|pst))?"),
    ("TIME", rf"{_ABOUT}\d{{1,2}} ?{_HALF_DAY}|{_ABOUT}(?:\d{{1,2}}|{_ONES}) o'clock"),
    ("TIME", rf"(?:half past|(?:a )?quarter (?:to|past)|{_NUMBER} (?:minutes )?(?:to|past)) (?:\d{{1,2}}|{_ONES})"),
    ("ORDINAL", rf"(?:the )?{_ORDINAL}"),
    ("TIME", rf"{_RANGE}[ -]{_CLOCK}(?: (?:ago|later|earlier))?|an? {_CLOCK}|half an hour"),
    ("TIME", rf"(?:(?:{_WHICH}|the|yesterday|tomorrow|{_DAY}) )?{_DAYTIME}|tonight|overnight"),
    ("DATE", rf"(?:{_DAY},? )?(?:the )?(?:\d{{1,2}}(?:st|nd|rd|th)?(?: of)? )?{_MONTH}(?:,? (?:of )?{_YEAR})?"),
    ("DATE", rf"(?:{_DAY},? )?{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?: ?[-–] ?\d{{1,2}})?(?:,? {_YEAR})?"),
    ("DATE", rf"(?:{_WHICH} )?(?:in )?(?:{_YEAR}|{_MONTH}(?: {_YEAR})?)(?:{_ERA})?"),
    ("DATE", rf"{_YEAR} ?[-–/] ?(?:\d\d|{_YEAR})|\d{{4}}-\d\d-\d\d|\d{{1,2}}[./-]\d{{1,2}}[./-](?:\d\d){{1,2}}"),
    ("DATE", rf"\d{{1,4}}{_ERA}|ad \d{{1,4}}"),
    ("DATE", rf"(?:the )?(?:(?:early|late|mid)[- ])?(?:the )?(?:{_YEAR}s|'\d0s)"),
    ("DATE", rf"(?:the )?(?:(?:early|late|mid)[- ])?{_ORDINAL}[ -]century(?:{_ERA})?"),
    ("DATE", rf"(?:{_RANGE}[ -]|an? ){_SPAN}(?: (?:ago|later|earlier|old|before|after))?"),
    ("DATE", rf"(?:{_WHICH}|the) (?:{_DAY}|{_SPAN}|{_SEASON}|{_MONTH})|{_DAY}|today|yesterday|tomorrow"),
    ("DATE", rf"(?:the )?{_SEASON}(?: of)? {_YEAR}|(?:the )?{_YEAR} {_SEASON}"),
    ("QUANTITY", rf"{_RANGE}[ -]?{_UNIT}(?: (?:long|wide|high|tall|deep))?"),
    ("CARDINAL", rf"{_RANGE}|zero|dozens|hundreds|thousands|millions|billions|a pair|a couple|a few|both"),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _RULES)
_STARTS = re.compile(
    r"[\d$€£¥₹+'-]|(?:us|a|c|hk|nz|s|can)\$|(?:usd|eur|gbp|jpy|chf|cny|inr|cad|aud|rmb|ad) ?\d|[a-z]+", re.IGNORECASE
)
_FIRST_WORDS = frozenset(
    re.findall(
        r"[a-z]+",
        f"{_ONES} {_SCALES} {_ABOUT} {_MONTH} {_ORDINAL_WORDS} {_DAYTIME} {_WHICH} {_SEASON} a an half tonight "
        "overnight today yesterday tomorrow zero dozens hundreds thousands millions billions both quarter "
        "jan feb mar apr jun jul aug sept oct nov dec monday tuesday wednesday thursday friday saturday sunday "
        "mondays tuesdays wednesdays "
        "thursdays fridays saturdays sundays usd eur gbp jpy chf cny inr cad aud rmb ad us c hk nz s can",
    )
)


def numeric_type(phrase: str) -> str | None:
    """Return CARDINAL, DATE, MONEY, ORDINAL, PERCENT, QUANTITY or TIME if the whole phrase has that form, else None.

    A bare number from 1000 to 2099 is a DATE (a year); "10 pounds" is MONEY.
    """
    start = _STARTS.match(phrase)
    if start is None or (start.group().isalpha() and start.group().lower() not in _FIRST_WORDS):
        return None
    lower = phrase.lower().replace("’", "'")
    for kind, pattern in _COMPILED:
        if pattern.fullmatch(lower):
            # "may" and "march" are months only next to other words or when capitalised.
            return kind if lower not in ("may", "march", "mar", "a", "half", "second") or phrase[0].isupper() else None
    return None


_LEAD = frozenset(word for word, letters in CLOSED_CLASS.items() if letters[0] in "PFD")

_INSTANCE_TYPES = {4: "EVENT", 15: "GPE", 17: "LOC", 18: "PERSON", 14: "ORG"}
"""WordNet's lexicographer files whose named individuals have one likely type."""


def name_types(rows: Iterable[tuple[str, str]]) -> TypeTable:
    """Return the types of names, written in any form of Unicode; a name of several types gets that of most entities."""
    return TypeTable(((normalise_name(name), kind) for name, kind in rows), most_common=True)


class DistantTyper:
    """A `PhraseTyper` that uses lists of names, and rules."""

    def __init__(self, names: TypeTable, *, is_common: Callable[[str], bool] = lambda word: False) -> None:
        """Take names with their types. `names`: names from bases, lists, and WordNet. `is_common`: whether a
        lower-cased word is a word of the language. A single capitalised word of the language is not typed by lists of
        names, in which almost every word occurs: it may just start a sentence.
        """
        self._names = names
        self._is_common = is_common

    def type_phrases(self, phrases: Sequence[str]) -> list[str | None]:
        return [self._type(phrase) for phrase in phrases]

    def _type(self, phrase: str) -> str | None:
        words = phrase.split()
        for start in range(min(3, len(words))):
            rest = " ".join(words[start:])
            kind = numeric_type(rest) or self._named(rest)
            if kind is not None:
                return kind
            if words[start].lower() not in _LEAD:
                break
        first = words[0].lower()
        begins_as_name = words[0][:1].isupper() and not self._is_common(first) and first not in CLOSED_CLASS
        return None if begins_as_name or any(word[:1].isupper() for word in words[1:]) else "OTHER"

    def _named(self, name: str) -> str | None:
        if name == name.lower() or (" " not in name and self._is_common(name.lower())):
            return None  # lists have "the ship" and "Friends" as titles, but in running text they rarely are titles
        return self._names.get(normalise_name(name))


def wordnet_names(synsets: Iterable[Synset]) -> Iterable[tuple[str, str]]:
    """Yield the names of WordNet's individuals that have a clear type."""
    for synset in synsets:
        kind = _INSTANCE_TYPES.get(synset.lex_file)
        if synset.is_instance and kind is not None and synset.lexical_class == LEXICAL_CLASSES[0]:
            yield from ((name, kind) for name in synset.names)


MAX_TOKENS = 64


class NerTyper:
    """A `PhraseTyper` that uses a NER model.

    A phrase gets the most frequent type of its content words, if at least half of these words have it.
    """

    def __init__(self, model: str, *, device: str = "cpu", batch_size: int = 256) -> None:
        """Load a folder or hub id, OWNER/NAME[@REVISION], of a token-classification model with OntoNotes labels, its
        weights in safetensors. Raises ModelError if there is none, its labels are not entity types, or its tokenizer
        does not know words; DeviceError if torch has no such device.
        """
        from transformers import AutoModelForTokenClassification as Auto

        from training.networks.checkpoints import open_transformers_model

        kind: Any = {"kind": "token-classification", "add_prefix_space": True}
        self._tokenizer, self._network = open_transformers_model(Auto, model, device=device, **kind)
        if not self._tokenizer.is_fast:
            raise ModelError(f"The tokenizer of '{model}' has no tokenizer.json, which maps tokens to words")
        self._types = _types_of(model, self._network.config.id2label)
        self._device, self._batch_size = device, batch_size

    def type_phrases(self, phrases: Sequence[str]) -> list[str | None]:
        """Return the type of each phrase; OTHER if the model finds no entity."""
        order = sorted(range(len(phrases)), key=lambda i: len(phrases[i]))
        found: list[str | None] = [None] * len(phrases)
        for start in range(0, len(order), self._batch_size):
            chosen = order[start : start + self._batch_size]
            words = [phrases[i].split() or [phrases[i]] for i in chosen]
            for i, kind in zip(chosen, self._types_of_words(words), strict=True):
                found[i] = kind
        return found

    def _types_of_words(self, phrases: list[list[str]]) -> list[str]:
        import torch

        batch = self._tokenizer(
            phrases, is_split_into_words=True, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
        )
        inputs = {name: tensor.to(self._device) for name, tensor in batch.items()}
        with torch.inference_mode():
            labels = self._network(**inputs).logits.argmax(-1).tolist()  # (b, t)
        found = []
        for i, words in enumerate(phrases):
            kinds: dict[int, str] = {}
            for place, word in enumerate(batch.word_ids(i)):
                if word is not None:
                    kinds.setdefault(word, self._types[labels[i][place]])  # the first token decides
            found.append(type_of_words(words, [kinds.get(j, "OTHER") for j in range(len(words))]))
        return found


def type_of_words(words: Sequence[str], kinds: Sequence[str]) -> str:
    """Return the type of a phrase: the most frequent type if at least half of the content words have it."""
    content = [kind for word, kind in zip(words, kinds, strict=True) if word.lower() not in EMPTY_WORDS]
    content = content or list(kinds)
    named = Counter(kind for kind in content if kind != "OTHER").most_common(1)
    return named[0][0] if named and 2 * named[0][1] >= len(content) else "OTHER"


def _types_of(model: str, labels: dict[int, str]) -> dict[int, str]:
    """Return the entity type of each label id."""
    known = {i: entity_type_of(label) for i, label in labels.items()}
    # Labels such as CoNLL's MISC are not OntoNotes types; a model without any entity type is not a NER model.
    if not any(kind not in (None, "OTHER") for kind in known.values()):
        shown = ", ".join(list(labels.values())[:8])
        raise ModelError(f"The labels of '{model}' ({shown}) are not entity types. Use a model trained on OntoNotes")
    return {i: kind or "OTHER" for i, kind in known.items()}


WORDS, PAIRS, LEAST_LETTERS = 12_000, 8_000, 3
"""Words of the vocabulary that are distilled, at most, pairs of them, and letters of a word."""

CERTAIN = 0.6
"""Probability of a type from which the start's own prediction is taken for the type of a word."""


def vocabulary_phrases(tokenizer: Path, *, seed: int) -> list[str]:
    """Words of a tokenizer (tokenizer.json), alone and in pairs, in random order."""
    vocabulary = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
    pieces = list(vocabulary) if isinstance(vocabulary, dict) else [piece for piece, *_ in vocabulary]
    # SentencePiece marks the start of a word, WordPiece what continues one.
    has_starts = any(piece.startswith("▁") for piece in pieces)
    words = sorted({piece.lstrip("▁") for piece in pieces if piece.startswith("▁") or not has_starts})
    words = [word for word in words if len(word) >= LEAST_LETTERS and word.isalpha()]
    rng = random.Random(seed)
    alone = rng.sample(words, min(len(words), WORDS))
    pairs = [" ".join(rng.sample(words, 2)) for _ in range(PAIRS if len(words) > 1 else 0)]
    phrases = list(dict.fromkeys([*alone, *pairs]))
    rng.shuffle(phrases)
    return phrases


def write_predicted_types(path: Path, phrases: Sequence[str], encoder: Encoder) -> int:
    """Write the phrases whose type an encoder is sure of, as `train_head` reads typed names; returns how many."""
    probabilities = encoder.encode(phrases).type_probabilities
    rows: list[str] = []
    if probabilities is not None:
        marginals = type_marginals(probabilities)
        best = marginals.argmax(axis=1)
        sure = np.flatnonzero(marginals[np.arange(len(best)), best] >= CERTAIN)
        rows = [f"{phrases[i]}\t{ENTITY_TYPES[best[i]]}\n" for i in sure.tolist()]
    path.write_text("name\ttype\n" + "".join(rows), "utf-8")
    return len(rows)
