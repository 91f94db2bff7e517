"""Read the synsets of WordNet 3.0 from its database files: names that mean the same, with their lexical class.

Files: data.noun, data.verb, data.adj, data.adv of the `dict` folder (Debian: wordnet-base). A line is
`offset lex_filenum ss_type w_cnt word lex_id ... p_cnt pointers | gloss`; w_cnt is hexadecimal, words have
underscores for spaces, adjectives may carry a marker such as `(p)`. Lines of the licence start with two spaces.

Source: WordNet 3.0 (Miller 1995), manual page wndb(5WN).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pearl_qdrant.errors import FormatError

_FILES = {"noun": "NP", "verb": "VP", "adj": "ADJP", "adv": "ADVP"}
_MARKER = re.compile(r"\((?:a|p|ip)\)$")


@dataclass(frozen=True, slots=True)
class Synset:
    """One synset."""

    synset_id: str  # file and offset, as "noun:00001740"
    names: tuple[str, ...]  # its lemmas with spaces, at least one
    lexical_class: str  # NP, VP, ADJP or ADVP
    is_instance: bool  # whether it is a named individual (has an instance hypernym)
    lex_file: int  # number of the lexicographer file
    hypernyms: tuple[str, ...] = ()  # ids of its hypernyms and of the synsets that it is an instance of


def read_synsets(folder: Path) -> Iterator[Synset]:
    """Yield all synsets of a WordNet `dict` folder. Raises FormatError if there is none."""
    for part, lexical_class in _FILES.items():
        path = folder / f"data.{part}"
        if not path.exists():
            message = f"is not a WordNet folder: {path} is missing. Debian: apt install wordnet-base"
            raise FormatError(str(folder), None, message)
        with path.open(encoding="utf-8", newline="\n") as file:
            yield from (_synset(line, part, lexical_class) for line in file if not line.startswith("  "))


def _synset(line: str, part: str, lexical_class: str) -> Synset:
    """Parse the synset of a line."""
    head = line.split(" | ", 1)[0].split()
    n_words = int(head[3], 16)
    names = [_MARKER.sub("", head[4 + 2 * i]).replace("_", " ") for i in range(n_words)]
    pointers = head[4 + 2 * n_words + 1 :]
    above = [pointers[i + 1] for i in range(0, 4 * int(head[4 + 2 * n_words]), 4) if pointers[i] in ("@", "@i")]
    return Synset(
        synset_id=f"{part}:{head[0]}",
        names=tuple(dict.fromkeys(names)),
        lexical_class=lexical_class,
        is_instance="@i" in head[4 + 2 * n_words :],
        lex_file=int(head[1]),
        hypernyms=tuple(f"{part}:{offset}" for offset in above),
    )


_PARTS = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}


def read_opposites(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the words that are opposites (pointer `!`), in small letters, in both directions; words of one synset that
    has several are told apart as WordNet does. The folder is that of `read_synsets`, which refuses any other.
    """
    names: dict[str, tuple[str, ...]] = {}
    found: list[tuple[str, int, str, int]] = []
    for part in _FILES:
        with (folder / f"data.{part}").open(encoding="utf-8", newline="\n") as file:
            for line in file:
                if line.startswith("  "):
                    continue
                head = line.split(" | ", 1)[0].split()
                n_words = int(head[3], 16)
                own = f"{part}:{head[0]}"
                names[own] = tuple(_MARKER.sub("", head[4 + 2 * i]).replace("_", " ").lower() for i in range(n_words))
                pointers = head[4 + 2 * n_words + 1 :]
                for i in range(0, 4 * int(head[4 + 2 * n_words]), 4):
                    if pointers[i] == "!":
                        other = f"{_PARTS[pointers[i + 2]]}:{pointers[i + 1]}"
                        source, target = bytes.fromhex(pointers[i + 3])
                        found.append((own, source, other, target))
    for own, at, other, at_other in found:
        if at and at_other and other in names:
            yield names[own][at - 1], names[other][at_other - 1]
