"""A WordNet of a few words, in the form of its database files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}

NOUNS = (
    "king year letter brother company profit painting thief football park harbour door cat dog worker factory city "
    "bridge river village teacher child apple people garden palace summer film award dollar day minister school "
    "museum play visit sleep work father mayor town island km soldier battle band album painter writer law student "
    "fire century house merchant species flat"
)
VERBS = (
    "become lie kill release apply destroy sell live die write steal want play have open sleep leave flood give visit "
    "win make say work"
)
ADJECTIVES = "small foreign rich rare old long high unknown large famous red new expensive young beautiful"
ADVERBS = "completely south together still quickly extremely well soon often very"


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


def make_sentence_wordnet(folder: Path) -> Path:
    """The words of the sentences that the parser is tested on, in their base forms, and a few names."""
    synsets = [("n", word) for word in NOUNS.split()] + [("v", word) for word in VERBS.split()]
    synsets += [("a", word) for word in ADJECTIVES.split()] + [("r", word) for word in ADVERBS.split()]
    irregular = [("n", "thieves", "thief"), ("n", "children", "child"), ("v", "wrote", "write"), ("v", "won", "win")]
    irregular += [
        ("v", "stolen", "steal"),
        ("v", "gave", "give"),
        ("v", "made", "make"),
        ("v", "said", "say"),
        ("v", "became", "become"),
        ("v", "sold", "sell"),
    ]
    return make_wordnet(
        folder,
        synsets,
        instances=[("Paris|City of Light", 15), ("Marie Curie", 18), ("Nile", 17)],
        exceptions=irregular,
        counts=[("play", "v", 50), ("play", "n", 5), ("visit", "v", 20), ("sleep", "v", 20), ("work", "n", 30)],
    )
