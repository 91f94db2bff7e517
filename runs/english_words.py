"""The recipe of `english_words.txt` and `capitalised_words.txt` in `pearl_qdrant/lexical/`.

    python runs/english_words.py --text enwiki.jsonl.gz --out pearl_qdrant/lexical

`english_words.txt` has the most frequent words of English text, the most frequent first. A word counts once an article,
and only where it is written in small letters, so that names do not count.

`capitalised_words.txt` has those of them that are often parts of names, within sentences, with one or two marks:

    begins    a name: at least half of its places before a capitalised word, and 5 % of all, have a capital (Northern)
    alone     it is a name: at least 80 % of its places before other words have a capital (March)

The shipped lists were counted in 27,405 articles of English Wikipedia.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click
from recipe_tables import read_texts

N_WORDS = 8_000
LEAST_PLACES = 10
_WORD = re.compile(r"(?<![^\W_])[a-z]+(?![^\W_])")
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
    found = marks(text, words)
    lines = (f"{word}\t{mark}\n" for word, mark in sorted(found.items()))
    (out / "capitalised_words.txt").write_text("".join(lines), encoding="utf-8")
    click.echo(f"{len(words)} words, the last one in {counts[words[-1]]} texts; {len(found)} are parts of names")


if __name__ == "__main__":
    main()
