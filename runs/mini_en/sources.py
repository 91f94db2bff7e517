"""The sources of the shipped model: those of `data.py`, and further ones.

MeSH, the Cell and Sequence Ontologies ("craft") and pages of the AIDA base ("news") give names by training fold. Names
within longer names are replaced by aliases of their own ("substituted"). Text gives definitions of abbreviations, and
`X, also known as Y` ("mined").
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from recipe_tables import read_texts, read_tsv

from mini_en.data import plain_phrases, proper_names, read_sources
from mini_en.examples import ExampleSource, alias_examples, without_strings
from pearl_qdrant.linking.mention_detection.abbreviations import find_abbreviations
from training.examples.example import TRAIN_SPLITS, Example, sort_examples, split_of

PROPER = 0.05
FURTHER = {"mesh": 0.10, "craft": 0.01, "news": 0.06, "substituted": 0.08, "mined": 0.03}
"""Share of each further source, relative to the shares of the others."""

_KNOWN_AS = re.compile(
    r"\b((?:[A-Z][\w'-]+ ){0,3}[A-Z][\w'-]+),? "
    r"\(?(?:also|formerly|better|previously|commonly) (?:known|called|named) as "
    r"(?:the )?((?:[A-Z][\w'-]+ ){0,3}[A-Z][\w'-]+)"
)


def first_sources(data: Path, wordnet: Path) -> list[ExampleSource]:
    """Return the sources of `mini_en/data.py`, and proper names."""
    sources = read_sources(data, wordnet)
    return [*sources, ExampleSource(proper_names(sources), PROPER)]


def further_sources(data: Path, sources: list[ExampleSource]) -> list[ExampleSource]:
    """Return the further sources; `sources` are those whose names are looked for within longer ones."""
    context = data / "context"
    held_out = _held_out(context)
    mesh = alias_examples(context / "base_mesh.tsv", kb="mesh", entity_types=("OTHER",))
    ontologies = [
        e for kb in ("cl", "so") for e in alias_examples(context / f"base_{kb}.tsv", kb=kb, entity_types=("OTHER",))
    ]
    found = {
        "mesh": _short(mesh),
        "craft": [_spaced(example) for example in _short(ontologies)],
        "news": _short([*alias_examples(context / "base_aida.tsv", kb="aida"), *_news_mentions(context)]),
        "mined": list(mined_pairs(data / "text" / "enwiki_sample.jsonl.gz")),
    }
    found["substituted"] = list(substituted([*found["mesh"], *(e for s in sources for e in s.examples if e.others)]))
    return [
        ExampleSource(sort_examples(without_strings(examples, held_out)), FURTHER[name])
        for name, examples in found.items()
    ]


def all_plain(data: Path, sources: list[ExampleSource], rng: random.Random) -> list[str]:
    """Return phrases to distil: of plain text, and a quarter names."""
    plain = plain_phrases(data / "text" / "enwiki_sample.jsonl.gz", rng)
    names = sorted({e.name for source in sources for e in source.examples if e.others})
    return [*plain, *rng.sample(names, min(len(names), len(plain) // 3))]


def _held_out(context: Path) -> set[str]:
    """Case-folded names of the entities outside the training folds."""
    held: set[str] = set()
    for kb in ("mesh", "cl", "so", "aida"):
        for row in read_tsv(context / f"base_{kb}.tsv"):
            if split_of(row["id"]) not in TRAIN_SPLITS:
                held.update(alias.casefold() for alias in row["aliases"].split("|") if alias)
    return held


def _news_mentions(context: Path) -> Iterator[Example]:
    """Mentions of the training part of AIDA beside the name of their page."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in read_tsv(context / "mentions.tsv"):
        if row["corpus"] == "aida-train" and row["gold_id"] != "NIL" and split_of(row["gold_id"]) in TRAIN_SPLITS:
            found.setdefault((row["gold_name"], row["gold_id"]), set()).add(row["mention"])
    for (name, page), mentions in found.items():
        if others := sorted(mentions - {name}):
            yield Example(name, tuple(others), f"aida:{page}", ())


def _short(examples: Iterable[Example]) -> list[Example]:
    """Leave out other names of more than 80 characters, and examples without one."""
    kept = []
    for example in examples:
        others = tuple(other for other in example.others if len(other) <= 80)
        if others and len(example.name) <= 80:
            kept.append(replace(example, others=others))
    return kept


def _spaced(example: Example) -> Example:
    name = example.name.replace("_", " ")
    others = dict.fromkeys(other.replace("_", " ") for other in example.others)
    return replace(example, name=name, others=tuple(other for other in others if other != name))


def substituted(examples: Iterable[Example], *, limit: int = 60_000) -> Iterator[Example]:
    """Yield names that hold another entity's name, with its aliases in its place."""
    examples = list(examples)
    # A word of everyday language has many senses: its synonyms do not fit within a name.
    is_word = re.compile("noun|verb|adj|adv")
    by_name = {e.name.casefold(): e for e in examples if len(e.name) >= 5 and not is_word.match(e.entity)}
    rng = random.Random(3)
    rng.shuffle(examples)
    made = 0
    for example in examples:
        words = example.name.split()
        if not 2 <= len(words) <= 8:
            continue
        variants = []
        for length in range(len(words) - 1, 0, -1):
            for start in range(len(words) - length + 1):
                part = " ".join(words[start : start + length])
                inner = by_name.get(part.casefold())
                if inner is None or inner.entity == example.entity or (length == 1 and part != inner.name):
                    continue
                folded = inner.name.casefold()
                short = [other for other in inner.others if len(other) <= 40 and other.casefold() != folded]
                chosen = rng.sample(short, min(2, len(short)))
                variants += [" ".join([*words[:start], other, *words[start + length :]]) for other in chosen]
        if variants:
            made += 1
            yield Example(example.name, tuple(dict.fromkeys(variants[:4])), example.entity, ())
        if made == limit:
            return


def mined_pairs(path: Path) -> Iterator[Example]:
    """Yield pairs of phrases that a text says mean the same."""
    seen: set[tuple[str, str]] = set()
    for text in read_texts(path):
        defined = find_abbreviations(text)
        pairs = [(found.long, found.short) for found in defined if sum(map(str.isupper, found.short)) >= 2]
        pairs += [(match[1], match[2]) for match in _KNOWN_AS.finditer(text)]
        for pair in pairs:
            if pair not in seen and pair[0].casefold() != pair[1].casefold() and len(pair[0]) <= 80:
                seen.add(pair)
                yield Example(pair[0], (pair[1],), f"text:{pair[0].casefold()}", ())
