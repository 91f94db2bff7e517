"""The recipe of `pearl_qdrant/lexical/english_words.txt`: the most frequent words of English text.

    python runs/english_words.py --text enwiki.jsonl.gz --out pearl_qdrant/lexical/english_words.txt

A word counts once an article, and only where it is written in small letters, so that names do not count. The shipped
list was counted in 27,405 articles of English Wikipedia.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import click
from recipe_tables import read_texts

N_WORDS = 8_000
_WORD = re.compile(r"(?<![^\W_])[a-z]+(?![^\W_])")


@click.command()
@click.option("--text", type=click.Path(path_type=Path, exists=True), required=True, help="JSON Lines with a text.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(text: Path, out: Path) -> None:
    """Count the words and write the list."""
    counts: Counter[str] = Counter()
    for one in read_texts(text):
        counts.update(set(_WORD.findall(one)))
    words = sorted(counts, key=lambda word: (-counts[word], word))[:N_WORDS]
    out.write_text("\n".join(words) + "\n", encoding="utf-8")
    click.echo(f"{len(words)} words; the last is in {counts[words[-1]]} texts")


if __name__ == "__main__":
    main()
