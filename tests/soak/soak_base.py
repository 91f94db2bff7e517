"""A generated base with everything that makes a load difficult, for the soak."""

from __future__ import annotations

import random
from pathlib import Path

_SYLLABLES = "ba co di fu ga he ki lo mu ne or pa qui ro sa tu ve wi xy zo".split()
_UNENCODABLE = "\U0001f5de \U0001f984 \U0001f9ea \U0001f332".split()
_TYPES = ("ORG", "PERSON", "Place|City", "disease", "")


def write_base(path: Path, n_entities: int) -> Path:
    """Write a TSV file with about 2.5 names for each entity.

    It has names that many entities share, ids with scattered rows, names that no model can encode, types,
    descriptions, an extra column, and a few bad rows.
    """
    rng = random.Random(7)
    shared = [_name(rng) for _ in range(max(4, n_entities // 25))]
    rows = []
    for i in range(n_entities):
        name = rng.choice(shared) if rng.random() < 0.1 else f"{_name(rng)} {i}"
        aliases = [_alias(rng, shared) for _ in range(rng.randrange(4))]
        description = f"the {i}th of its kind" if rng.random() < 0.3 else ""
        rows.append(f"E{i}\t{name}\t{rng.choice(_TYPES)}\t{'|'.join(aliases)}\t{description}\tbook {i % 9}")
        if rng.random() < 0.06:  # of an entity that came before
            rows.append(f"E{rng.randrange(i + 1)}\t{_name(rng)}\tORG\t{rng.choice(shared)}\t\tbook 1")
        if i % (n_entities // 5) == 1:
            rows.append(("no id at all", "\ta name without an id\tORG\t\t\t")[i % 2])
    path.write_text("\n".join(["id\tname\ttype\taliases\tdescription\tsource", *rows]) + "\n", encoding="utf-8")
    return path


def _name(rng: random.Random) -> str:
    words = ("".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(rng.randint(1, 4)))
    return " ".join(words)


def _alias(rng: random.Random, shared: list[str]) -> str:
    drawn = rng.random()
    if drawn < 0.03:
        return rng.choice(_UNENCODABLE)
    return rng.choice(shared) if drawn < 0.2 else _name(rng)
