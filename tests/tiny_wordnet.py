"""A WordNet of a few words, in the form of its database files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}


def make_wordnet(
    folder: Path,
    synsets: Iterable[tuple[str, str]],
    *,
    instances: Iterable[tuple[str, int]] = (),
    exceptions: Iterable[tuple[str, str, str]] = (),
    counts: Iterable[tuple[str, str, int]] = (),
) -> Path:
    """Write a `dict` folder.

    Args:
        folder: Created if absent.
        synsets: Part of speech (n, v, a, r) and names joined by `|`.
        instances: Names of individuals joined by `|`, and the lexicographer file.
        exceptions: Part of speech, irregular form, base form.
        counts: Lemma, part of speech, times tagged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[str]] = {part: ["  1 A licence, which begins with spaces."] for part in _FILES}
    everything = [(part, names, 3, "@") for part, names in synsets]
    everything += [("n", names, lex_file, "@i") for names, lex_file in instances]
    for i, (part, names, lex_file, pointer) in enumerate(everything):
        words = [name.replace(" ", "_") for name in names.split("|")]
        listed = " ".join(f"{word} 0" for word in words)
        head = f"{i:08d} {lex_file:02d} {part} {len(words):02x} {listed} 001 {pointer} 00000001 {part} 0000"
        rows[part].append(f"{head} | a gloss; with | a bar")
    for part, name in _FILES.items():
        (folder / f"data.{name}").write_text("\n".join(rows[part]) + "\n", encoding="utf-8")
        forms = [f"{form} {base}" for of, form, base in exceptions if of == part]
        (folder / f"{name}.exc").write_text("".join(f"{form}\n" for form in forms), encoding="utf-8")
    number = {"n": 1, "v": 2, "a": 3, "r": 4}
    tagged = [f"{lemma}%{number[part]}:03:00:: 1 {count}\n" for lemma, part, count in counts]
    (folder / "cntlist.rev").write_text("".join(tagged), encoding="utf-8")
    return folder
