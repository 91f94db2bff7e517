"""The recipe of `english_words.txt`, `capitalised_words.txt` and `known_words.txt` in `pearl_qdrant/lexical/`.

    python runs/english_words.py --text enwiki.jsonl.gz --out pearl_qdrant/lexical

`english_words.txt` has the most frequent words of English text, the most frequent first. A word counts once an article,
and only where it is written in small letters, so that names do not count.

`capitalised_words.txt` has those of them, and of the known words in small letters, that are often parts
of names within sentences, with one or two marks:

    begins    a name: at least half of its places before a capitalised word, and 5 % of all, have a capital (Northern)
    alone     it is a name: at least 80 % of its places before other words have a capital (March)

`known_words.txt` has the words, names too, that at least `LEAST_TEXTS` articles have in any letter case, but for those
that are probably slips: fewer than `SLIP_TEXTS` articles have them, and `SLIP_FACTOR` times as many have a word one
edit away. They begin with a capital unless at least `SMALL_TEXTS` articles, and `SMALL_SHARE` of those that have the
word within a sentence, write it in small letters there.

The shipped lists were counted in 27,405 articles of English Wikipedia.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import click
from rapidfuzz.distance import OSA
from recipe_tables import read_texts

from pearl_qdrant.lexical.ngrams import fold_name

N_WORDS = 8_000
LEAST_PLACES = 10
LEAST_TEXTS = 4
LEAST_LETTERS = 4
SLIP_FACTOR = 100
SLIP_TEXTS = 8
SMALL_TEXTS = 3
SMALL_SHARE = 0.1
_WORD = re.compile(r"(?<![^\W_])[a-z]+(?![^\W_])")
_ANY = re.compile(r"(?<![^\W_])[^\W\d_]+(?![^\W_])")
_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\S|\n")


def marks(path: Path, words: list[str]) -> dict[str, str]:
    """The marks of words that are often parts of names."""
    known = set(words)
    counts: Counter[tuple[str, bool, bool]] = Counter()  # word, whether capitalised, and whether the next word is
    for text in read_texts(path):
        tokens = _TOKEN.findall(text)
        for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if token.lower() in known and (before[0].isalpha() or before == ","):
                counts[token.lower(), token[0].isupper(), after[0].isupper() and len(after) > 1] += 1
    found = {}
    for word in words:
        begins, other = counts[word, True, True], counts[word, False, True]
        alone, small = counts[word, True, False], counts[word, False, False]
        total = begins + other + alone + small
        is_beginning = begins + other >= LEAST_PLACES and begins >= max(0.5 * (begins + other), 0.05 * total)
        is_name = alone + small >= LEAST_PLACES and alone >= 0.8 * (alone + small)
        if len(word) > 1 and (is_beginning or is_name):
            found[word] = "\t".join(mark for mark, holds in (("begins", is_beginning), ("alone", is_name)) if holds)
    return found


def known_words(path: Path) -> list[str]:
    """Folded words that enough texts have and that are probably no slips of frequent ones, sorted."""
    counts: Counter[str] = Counter()
    for text in read_texts(path):
        counts.update({fold_name(word) for word in set(_ANY.findall(text))})
    counts = Counter({word: n for word, n in counts.items() if n >= LEAST_TEXTS and word.isascii() and word.isalpha()})
    frequent: dict[str, list[str]] = {}
    for word, n in counts.items():
        if n >= SLIP_FACTOR * LEAST_TEXTS:
            for shorter in _shortened(word):
                frequent.setdefault(shorter, []).append(word)

    def is_slip(word: str) -> bool:
        near = {other for shorter in _shortened(word) for other in frequent.get(shorter, ())}
        return any(counts[o] >= SLIP_FACTOR * counts[word] and OSA.distance(o, word) == 1 for o in near)

    long = (word for word in counts if len(word) >= LEAST_LETTERS)
    kept = sorted(word for word in long if counts[word] >= SLIP_TEXTS or not is_slip(word))
    small = _written_small(path, set(kept))
    return [word if word in small else word.capitalize() for word in kept]


def _written_small(path: Path, words: set[str]) -> set[str]:
    """The words that texts also write in small letters within a sentence."""
    counts: Counter[tuple[str, bool]] = Counter()
    for text in read_texts(path):
        tokens = _TOKEN.findall(text)
        within = (now for before, now in pairwise(tokens) if before[0].isalpha() or before == ",")
        counts.update({(now.lower(), now[0].isupper()) for now in within if now.lower() in words})
    least = {word: max(SMALL_TEXTS, SMALL_SHARE * (counts[word, False] + counts[word, True])) for word in words}
    return {word for word in words if counts[word, False] >= least[word]}


def _shortened(word: str) -> set[str]:
    """A word, and what is left of it without any one letter."""
    return {word, *(word[:i] + word[i + 1 :] for i in range(len(word)))}


@click.command()
@click.option("--text", type=click.Path(path_type=Path, exists=True), required=True, help="JSON Lines with a text.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)
def main(text: Path, out: Path) -> None:
    """Count the words and write the lists."""
    counts: Counter[str] = Counter()
    for one in read_texts(text):
        counts.update(set(_WORD.findall(one)))
    words = sorted(counts, key=lambda word: (-counts[word], word))[:N_WORDS]
    (out / "english_words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    known = known_words(text)
    found = marks(text, sorted({*words, *filter(str.islower, known)}))
    lines = (f"{word}\t{mark}\n" for word, mark in sorted(found.items()))
    (out / "capitalised_words.txt").write_text("".join(lines), encoding="utf-8")
    (out / "known_words.txt").write_text("\n".join(known) + "\n", encoding="utf-8")
    click.echo(f"{len(known)} known words")
    click.echo(f"{len(words)} words, the last one in {counts[words[-1]]} texts; {len(found)} are parts of names")


if __name__ == "__main__":
    main()
