"""The parser: phrases of the five classes by patterns over parts of speech. English, no download.

    text -> paragraphs -> tokens -> one letter per token, chosen by
        weight of the letter for the word  x  fit to the letter before  x  fit to the likeliest letter after

Letters: D determiner, F "of", P preposition, O pronoun, W subordinator, C coordinator, X be/have/do, M modal,
T "to" before a verb, ! negation, N noun, E name, K month, 1 number, J adjective, L participle before a noun,
V verb (past participles too), G verb in -ing, R adverb, A "ago" and similar words, S 's, "," comma, "." any end of a
phrase, which no phrase crosses.

The weight of a letter is how often the word has this tag in WordNet's corpora (`cntlist.rev`) plus its number of
senses. Inflected forms are reduced as by morphy(7WN); an unknown word is classified by its ending. The parser finds
what a constituency parse of simple clauses has, nested phrases included, but not what a prepositional phrase is
attached to. Cost: about 60,000 words per second on one core; memory: the lexicon, about 100 MB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from training.examples.wordnet import read_synsets
from training.options import DEFAULT_MAX_WORDS


def _rows(name: str) -> list[list[str]]:
    """The rows of a table beside this module, without its header."""
    return [line.split("\t") for line in (Path(__file__).parent / name).read_text("utf-8").splitlines()[1:]]


_CLASSES = {letters: words.split() for letters, words in _rows("closed_words.tsv")}

MONTHS = frozenset(_CLASSES["K"])
"""Months; they count as months only when capitalised, since `may` and `march` are other words too."""


def _closed() -> dict[str, str]:
    found: dict[str, str] = {}
    for letters, words in _CLASSES.items():
        for word in words:
            if letters != "K" or word not in ("may", "march"):
                found[word] = found.get(word, "") + letters
    return found


CLOSED_CLASS: dict[str, str] = _closed()
"""Letters by word, in lower case."""

EMPTY_WORDS = frozenset(word for word, letters in CLOSED_CLASS.items() if letters[0] not in "KJ1RA")
"""Words that do not make a phrase on their own."""


class Phrase(NamedTuple):
    """A phrase of a text with white space normalised, and its lexical class (NP, VP, PP, ADVP or ADJP)."""

    text: str
    lexical_class: str


class PhraseTyper(Protocol):
    """Assigns entity types to phrases without context."""

    def type_phrases(self, phrases: Sequence[str]) -> list[str | None]:
        """Return one of `ENTITY_TYPES` for each phrase; None (which is not OTHER) if the type is unknown."""


Weights = dict[str, float]
"""Weights by letter of a part of speech; see `tagger`."""

_LETTER = {"NP": "N", "VP": "V", "ADJP": "J", "ADVP": "R"}
_SENSE_LETTER = {"1": "N", "2": "V", "3": "J", "4": "R", "5": "J"}  # senseidx(5WN): ss_type
_CACHE = 500_000

_NOUN_ENDINGS = (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("ses", "s"), ("men", "man"), ("s", ""))
_VERB_S_ENDINGS = (("ies", "y"), ("es", "e"), ("es", ""), ("s", ""))
_PAST_ENDINGS = (("ied", "y"), ("ed", "e"), ("ed", ""))
_ING_ENDINGS = (("ing", "e"), ("ing", ""))
_DEGREE_ENDINGS = (("iest", "y"), ("ier", "y"), ("est", "e"), ("est", ""), ("er", "e"), ("er", ""))

_UNKNOWN: tuple[tuple[re.Pattern[str], Weights], ...] = (
    (re.compile(r"ly$"), {"R": 8, "J": 1}),
    (re.compile(r"ing$"), {"G": 4, "N": 2, "J": 2}),
    (re.compile(r"ed$"), {"V": 5, "L": 4}),
    (re.compile(r"(?:ous|ful|ive|able|ible|less|ish|ic|ical|ary|ese|ian|al)$"), {"J": 5, "N": 1}),
    (re.compile(r".-(?:based|born|like|style|old|term|year|level|time|class|made)$"), {"J": 5, "N": 1}),
)


class Lexicon:
    """Parts of speech of words in lower case."""

    def __init__(self, folder: Path) -> None:
        """Read a WordNet `dict` folder. Raises FormatError if there is none."""
        self._known: dict[str, Weights] = {}
        self._irregular: dict[str, Weights] = {}
        self._cache: dict[str, Weights] = {}
        self._read_words(folder)
        self._read_counts(folder / "cntlist.rev")
        self._read_exceptions(folder)

    def is_common(self, word: str) -> bool:
        """Return whether a lower-cased word is a word of the language rather than a name."""
        is_listed = word in CLOSED_CLASS or word in self._known or word in self._irregular
        return is_listed or next(self._inflected(word), None) is not None

    def weights(self, word: str) -> Weights:
        """Return the letters that a lower-cased word may have, each with a weight > 0; never empty."""
        found = self._cache.get(word)
        if found is None:
            if len(self._cache) >= _CACHE:
                self._cache.clear()
            found = self._cache[word] = self._look_up(word)
        return found

    def _look_up(self, word: str) -> Weights:
        if word in CLOSED_CLASS:
            return {letter: 4.0 / (1 + i) for i, letter in enumerate(CLOSED_CLASS[word])}
        found = dict(self._known.get(word, {}))
        for letter, weight in [*self._irregular.get(word, {}).items(), *self._inflected(word)]:
            found[letter] = found.get(letter, 0.0) + weight
        if "-" in word and not found:
            head = self._known.get(word.rpartition("-")[2], {})
            found = {"J": 2.0, "N": 3.0} if "N" in head else {"J": 3.0, "N": 1.0}
        if not found:
            found = next((dict(weights) for ending, weights in _UNKNOWN if ending.search(word)), {"N": 1.0})
        if "J" in found and word.endswith("ed"):
            # WordNet lists many participles as adjectives; the context decides whether one precedes its noun.
            found["L"] = found.get("L", 0.0) + found["J"]
        return found

    def _inflected(self, word: str) -> Iterator[tuple[str, float]]:
        """Yield the letters of the words of which this may be an inflected form."""
        if word.endswith("s") and not word.endswith("ss"):
            yield from self._reduced(word, _NOUN_ENDINGS, "N", "N")
            yield from self._reduced(word, _VERB_S_ENDINGS, "V", "V")
        elif word.endswith("ed"):
            yield from self._reduced(word, _PAST_ENDINGS, "V", "VL")
        elif word.endswith("ing"):
            yield from self._reduced(word, _ING_ENDINGS, "V", "GJ")
        elif word.endswith(("er", "est")):
            yield from self._reduced(word, _DEGREE_ENDINGS, "J", "J")

    def _reduced(
        self, word: str, endings: tuple[tuple[str, str], ...], wanted: str, letters: str
    ) -> Iterator[tuple[str, float]]:
        """Yield the letters, with the weight of the first base form that is known as `wanted`."""
        for ending, replacement in endings:
            if not word.endswith(ending):
                continue
            stem = word[: -len(ending)]
            doubled = stem[:-1] if len(stem) > 3 and stem[-1] == stem[-2] and not replacement else stem
            for base in (stem + replacement, doubled):
                weight = self._known.get(base, {}).get(wanted, 0.0)
                if weight:
                    yield from ((letter, weight / (1 + i)) for i, letter in enumerate(letters))
                    return

    def _read_words(self, folder: Path) -> None:
        for synset in read_synsets(folder):
            letter = _LETTER[synset.lexical_class]
            for name in synset.names:
                if not synset.is_instance and " " not in name and name == name.lower():
                    weights = self._known.setdefault(name, {})
                    weights[letter] = weights.get(letter, 0.0) + 1

    def _read_counts(self, path: Path) -> None:
        """Add how often words were tagged; a line is `lemma%ss_type:... sense_number tag_cnt`."""
        if not path.exists():
            return
        with path.open(encoding="utf-8") as file:
            for line in file:
                key, _, count = line.split()
                lemma, _, sense = key.partition("%")
                letter = _SENSE_LETTER[sense[0]]
                if letter in self._known.get(lemma, {}):
                    self._known[lemma][letter] += int(count)

    def _read_exceptions(self, folder: Path) -> None:
        """Read irregular forms; a line is `form base...`."""
        for part, letter in (("noun", "N"), ("verb", "V"), ("adj", "J"), ("adv", "R")):
            path = folder / f"{part}.exc"
            if not path.exists():
                continue
            with path.open(encoding="utf-8") as file:
                for line in file:
                    form, *bases = line.split()
                    weight = max((self._known.get(base, {}).get(letter, 0.0) for base in bases), default=0.0) or 1.0
                    letters = letter if letter != "V" else "GJ" if form.endswith("ing") else "VL"
                    weights = self._irregular.setdefault(form, {})
                    for i, one in enumerate(letters):
                        weights[one] = weights.get(one, 0.0) + weight / (1 + i)


_TOKEN = re.compile(
    r"""
    (?:[A-Z]\.){2,}                                   # U.S.
    | (?:[A-Z]|Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Gen|Col|Lt|Capt|Rev|Sen|Rep|Gov|No|Vol|Mt|Ft)\.(?=\s*[\w(])
    | (?:Jan|Feb|Aug|Sept|Oct|Nov|Dec)\.(?=\s*\d)
    | (?:vs|etc|e\.g|i\.e|cf|c|ca|approx)\.
    | [$£€¥]?\d+(?:[.,:/–-]\d+)*(?:%|st\b|nd\b|rd\b|th\b|s\b|[a-zA-Z]{1,3}\b)?   # 1,000  3.5%  10:30  21st  1990s  5km
    | \w+(?:[-&.’']\w+)*?(?=['’]s\b|n['’]t\b)         # the word before 's and n't
    | n['’]t\b | ['’](?:s|re|ve|ll|d|m)\b
    | \w+(?:[-&]\w+|['’](?!s\b)\w\w+|\.(?:com|org|net)\b)*
    | ['’]
    | \S
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(r"[$£€¥]?\d")


def _fits(table: str) -> dict[str, dict[str, float]]:
    pairs = ((letter, (fit.rpartition("=") for fit in fits.split())) for name, letter, fits in _rows("tag_fits.tsv")
             if name == table)  # fmt: skip
    return {letter: {other: float(fit) for other, _, fit in of_letter} for letter, of_letter in pairs}


_AFTER, _BEFORE = _fits("after"), _fits("before")
"""For each letter: how well other letters follow it, and how well it precedes the likeliest letter of the next word; 1
if not listed."""


Tokens = list[re.Match[str]]


class ChunkParser:
    """Finds phrases in texts by WordNet's parts of speech and patterns."""

    def __init__(self, wordnet: Path | Lexicon, *, max_words: int = DEFAULT_MAX_WORDS) -> None:
        """Read a WordNet `dict` folder, or take a lexicon read from one; phrases of over `max_words` are skipped."""
        self._lexicon = Lexicon(wordnet) if isinstance(wordnet, Path) else wordnet
        self._max_words = max_words

    def parse(self, texts: Iterable[str]) -> Iterator[list[Phrase]]:
        """Yield the phrases of each text, nested and repeated ones included; a newline ends a sentence."""
        for text in texts:
            yield [phrase for line in text.split("\n") if line for phrase in self._phrases(line)]

    def _phrases(self, line: str) -> Iterator[Phrase]:
        tokens, letters = self._tag(line)
        for start, end, lexical_class in chunks(letters):
            if end - start <= self._max_words:
                text = _text(line, tokens[start:end])
                if text is not None:
                    yield Phrase(text, lexical_class)

    def _tag(self, text: str) -> tuple[Tokens, str]:
        """Return the tokens of a text, and a string with a letter for each."""
        tokens, options = list(_TOKEN.finditer(text)), []
        is_start = True
        for word in (token.group() for token in tokens):
            options.append(self._options(word, is_start))
            is_start = word in ".!?:" or (is_start and not word[0].isalnum())
        return tokens, _choose(_unlikely_starts(text, tokens, options))

    def _options(self, word: str, is_start: bool) -> Weights:
        """Return the letters that a word may have at this place."""
        first = word[0]
        if not (first.isalnum() or first in "'’n$£€¥&%"):
            return _COMMA if first == "," else _END
        if _NUMBER.match(word):
            return _ORDINAL if word[-2:] in ("st", "nd", "rd", "th") else _ONE
        lower = word.lower().replace("’", "'")
        if not first.isupper():
            return self._lexicon.weights(lower)
        if lower in MONTHS:
            return _MONTH
        if lower in CLOSED_CLASS and (word == "I" or not word.isupper() or (is_start and word == "A")):
            return self._lexicon.weights(lower)
        if is_start and not word.isupper() and self._lexicon.is_common(lower):
            return {**self._lexicon.weights(lower), "E": 1.0}
        return _NAME


_COMMA, _END, _ONE, _ORDINAL, _MONTH, _NAME = ({letter: 1.0} for letter in ",.1JKE")
_NOTHING: dict[str, float] = {}


def _unlikely_starts(text: str, tokens: Tokens, options: list[Weights]) -> list[Weights]:
    """Decide whether a common word at the start of a sentence is part of a name: "Church Street was ..."."""
    for i, weights in enumerate(options[:-1]):
        if len(weights) > 1 and "E" in weights:
            follows = options[i + 1] is _NAME and text[tokens[i].end() : tokens[i + 1].start()] == " "
            without_name = {letter: weight for letter, weight in weights.items() if letter != "E"}
            options[i] = _NAME if follows and ("N" in weights or "J" in weights) else without_name
    return options


def _choose(options: list[Weights]) -> str:
    """Choose the best letter of each token, from left to right."""
    likeliest = [next(iter(o)) if len(o) == 1 else max(o, key=o.__getitem__) for o in options]
    likeliest.append(".")
    letters = []
    before = "."
    for i, weights in enumerate(options):
        letter = likeliest[i]
        if len(weights) > 1:
            after, best = likeliest[i + 1], 0.0
            fits = _AFTER.get(before, _NOTHING)
            for one, weight in weights.items():
                score = weight**0.5 * fits.get(one, 1.0) * _BEFORE.get(one, _NOTHING).get(after, 1.0)
                if score > best:
                    letter, best = one, score
        letters.append(letter)
        before = letter
    return "".join(letters)


_BEFORE_NOUN = r"(?:R(?=[JL])|[JLE]|(?<!1)K1,1|K1?)"
# A number starts or ends a phrase: "in Paris two years" has two, "Apollo 11" is one.
_COUNT = "(?:J?1+)"
_HEADED = rf"(?:{_COUNT}?(?:{_BEFORE_NOUN}*N+E*|{_BEFORE_NOUN}+(?<=[EK1])(?:1(?![NJL1]))?)|{_COUNT})"
_BASE = rf"(?:D{{0,2}}{_HEADED}S)?D{{0,2}}{_HEADED}"
_NOUN = rf"{_BASE}(?:F{_BASE})*"
_OBJECT = rf"(?:{_NOUN}|O)"
_PREPOSITIONAL = rf"P?[PF]{_OBJECT}"
_FURTHER = rf"(?:{_PREPOSITIONAL}(?!A)|{_BASE}A|[RA]+|R*J)"
_VERBAL = rf"(?:[XMT][!RA]*)*[VGX]R*(?:T[!R]*[VX]R*)*{_OBJECT}?(?:{_NOUN}(?!A))?{_FURTHER}*"

_BASE_NP = re.compile(_BASE)
_JOINED_NPS = re.compile(rf"{_NOUN}(?:F{_BASE})|{_BASE}C{_BASE}")
_PP = re.compile(rf"(?=({_PREPOSITIONAL}))(?<!P)[PF]|(?<=P)(?=([PF]{_OBJECT}))")
_ADVP = re.compile(rf"{_BASE}A|[RA]+(?![JLRA])")
_ADJP = re.compile(r"R*J(?:CJ)?")
_COMPLEMENT = re.compile(rf"P{_NOUN}")  # complement of an adjective after a verb: famous for its bridges
_DEGREE_ADJP = re.compile(r"R+J(?=[JNE])")
_VP = re.compile(rf"(?=({_VERBAL}))")
_PIECE = re.compile(r"[^.]{1,200}")  # no phrase crosses a full stop; patterns cost the square of a run's length
_ALONE = re.compile(r"X+[!RA]*")


def chunks(letters: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and class of each phrase in a string of parts of speech, nested phrases included."""
    for piece in _PIECE.finditer(letters):
        for start, end, lexical_class in _chunks_of(piece.group()):
            yield piece.start() + start, piece.start() + end, lexical_class


def _chunks_of(letters: str) -> Iterator[tuple[int, int, str]]:
    bare = list(letters)
    for match in _BASE_NP.finditer(letters):
        yield *match.span(), "NP"
        bare[match.start() : match.end()] = "_" * (match.end() - match.start())
    for match in _JOINED_NPS.finditer(letters):
        yield *match.span(), "NP"
    for pattern, lexical_class in ((_PP, "PP"), (_VP, "VP")):
        for match in pattern.finditer(letters):
            group = 1 if match.group(1) else 2
            start, end = match.span(group)
            if not _ALONE.fullmatch(letters, start, end):
                yield start, end, lexical_class
    for match in _DEGREE_ADJP.finditer(letters):
        yield *match.span(), "ADJP"
    outside = "".join(bare)
    for match in _ADJP.finditer(outside):
        start, end = match.span()
        with_complement = _COMPLEMENT.match(letters, end) if letters[start - 1 : start] in ("X", "!") else None
        yield start, with_complement.end() if with_complement else end, "ADJP"
    for match in _ADVP.finditer(letters):
        if match.group()[-1] == "A" or "_" not in outside[match.start() : match.end()]:
            yield *match.span(), "ADVP"


def _text(line: str, tokens: Tokens) -> str | None:
    """Return the phrase as written, white space normalised; None if it has only function words."""
    text = " ".join(line[tokens[0].start() : tokens[-1].end()].split())
    words = text.lower().split()
    if all(word in EMPTY_WORDS for word in words) or not any(c.isalnum() for c in text):
        return None
    return text
