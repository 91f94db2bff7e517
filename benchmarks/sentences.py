"""Measures `annotate` on names of a base in plain sentences: found whole, in part, or not at all.

    python benchmarks/sentences.py --data base.tsv
    python benchmarks/sentences.py --data base.tsv --entities 15000 --store STORE --errors
    python benchmarks/sentences.py --data base.tsv --text wikipedia.jsonl.gz

Each name has 2 to 8 words and belongs to a single entity. The rows:

name           one name in a plain sentence; `one word` beside it has names of a single word
small          the same sentences in small letters; `capitals` in capitals
abbreviation   NAME (ABBR) ... ABBR: all three mentions count
negation       no evidence of NAME; NAME was not found; ...
list           A, B and C; A/B; A or B; ...
no name        sentences of --text (JSON Lines with a text) in which no name of the base stands, whatever its case

The columns, in percent of the mentions: `whole` has the place of the name and its entity; `wrong entity` has its place
and another entity; `in part` has a place that overlaps it; `missed` has nothing there. The last column is in percent of
the sentences: those with an annotation that is no whole and right mention.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from ingest.load_base import load_base
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.records import Annotation

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runs"))
from recipe_tables import read_texts

WORDS = range(2, 9)

NAMES = (
    "{} was what most of them asked for.",
    "We read a long article about {} last week.",
    "She asked what {} means, and nobody knew.",
    "There are three chapters about {} in the book.",
    "The first page mentions {}; the second does not.",
    "In the afternoon they talked about {} again.",
    'The word "{}" was new to him.',
    "Most people in the room had heard of {} before.",
    "A question about {} came up twice.",
    "He wrote to us because of {}, as he had promised.",
    "What is {}?",
    "It was, she said, the best example of {} (see below).",
)
ABBREVIATIONS = (
    "We describe {name} ({short}) in detail. Later on, {short} is compared with the others.",
    "The article is about {name} ({short}). It says that {short} is new.",
    "In {short} ({name}) this is different, and {short} was new to us.",
)
NEGATIONS = (
    "There was no evidence of {} in the second report.",
    "{} was not found.",
    "The patient denies {} and came alone.",
    "They wrote without {} in mind.",
    "It is not {}, but something else.",
    "There is neither {} nor anything like it.",
)
LISTS = (
    "They looked for {}, {} and {}.",
    "The report names {}/{} twice.",
    "It was either {} or {}.",
    "We read about {} and {} yesterday.",
    "There were three: {}; {}; {}.",
    "The list ({}, {}) is short.",
)


@dataclass
class Sentence:
    """A sentence and its mentions: (start, end) to entity id."""

    text: str = ""
    mentions: dict[tuple[int, int], str] = field(default_factory=dict)

    def add(self, name: str, entity_id: str) -> None:
        """Append a mention."""
        self.mentions[len(self.text), len(self.text) + len(name)] = entity_id
        self.text += name


@dataclass
class Counts:
    """Mentions by outcome, and sentences."""

    whole: int = 0
    wrong_entity: int = 0
    in_part: int = 0
    missed: int = 0
    sentences: int = 0
    with_errors: int = 0

    def line(self, name: str) -> str:
        n = max(1, self.whole + self.wrong_entity + self.in_part + self.missed)
        shares = [100 * count / n for count in (self.whole, self.wrong_entity, self.in_part, self.missed)]
        columns = "".join(f"{share:14.1f}" for share in shares)
        return f"{name:<19}{n:>9}{columns}{100 * self.with_errors / max(1, self.sentences):16.1f}"


HEAD = (
    f"{'kind':<19}{'mentions':>9}{'whole':>14}{'wrong entity':>14}{'in part':>14}{'missed':>14}{'anything wrong':>16}"
)

Named = tuple[str, str]
"""A name and the id of its entity."""


def fill(template: str, named: Sequence[Named]) -> Sentence:
    """A sentence: each {} of the template is the next name. A name that starts it is capitalised."""
    sentence = Sentence()
    parts = template.split("{}")
    for part, (name, entity_id) in zip(parts, named, strict=False):
        sentence.text += part
        sentence.add(name if sentence.text else name[0].upper() + name[1:], entity_id)
    sentence.text += parts[len(parts) - 1]
    return sentence


def fill_abbreviated(template: str, name: str, entity_id: str) -> Sentence:
    """A sentence with a name and its initials, which the passage defines."""
    short = initials(name)
    sentence = Sentence()
    rest = template
    while "{" in rest:
        before, _, rest = rest.partition("{")
        field_name, _, rest = rest.partition("}")
        sentence.text += before
        sentence.add(name if field_name == "name" else short, entity_id)
    sentence.text += rest
    return sentence


def changed(sentence: Sentence, change: Callable[[str], str]) -> Sentence:
    """The sentence in other letters; itself where they are more or fewer, as the capitals of a sharp s."""
    text = change(sentence.text)
    return Sentence(text, sentence.mentions) if len(text) == len(sentence.text) else sentence


def initials(name: str) -> str:
    """The first letters of the words of a name, in capitals."""
    return "".join(word[0] for word in name.split()).upper()


def make_sentences(
    long_names: Sequence[Named], words: Sequence[Named], n: int, generator: random.Random
) -> Iterator[tuple[str, list[Sentence]]]:
    """The kinds of sentences, each with its sentences."""
    for kind, some in (("name", long_names[:n]), ("one word", words[: n // 2])):
        plain = [fill(NAMES[i % len(NAMES)], [named]) for i, named in enumerate(some)]
        yield kind, plain
        yield f"{kind}, small", [changed(sentence, str.lower) for sentence in plain]
        yield f"{kind}, capitals", [changed(sentence, str.upper) for sentence in plain]
    spelled = [named for named in long_names if all(w.isalpha() for w in named[0].split()) and named[0].count(" ") < 6]
    chosen = generator.sample(spelled, min(n // 2, len(spelled)))
    yield (
        "abbreviation",
        [fill_abbreviated(ABBREVIATIONS[i % len(ABBREVIATIONS)], *named) for i, named in enumerate(chosen)],
    )
    negated = long_names[n : n + n // 2]
    yield "negation", [fill(NEGATIONS[i % len(NEGATIONS)], [named]) for i, named in enumerate(negated)]
    both = [*long_names, *words[: len(long_names) // 4]]
    templates = [LISTS[i % len(LISTS)] for i in range(n // 2)]
    yield "list", [fill(template, generator.sample(both, template.count("{}"))) for template in templates]


def count(
    annotate_batch: Callable[[Iterable[str]], Iterable[Sequence[Annotation]]],
    sentences: Sequence[Sentence],
    *,
    show: Callable[[str], None],
) -> Counts:
    """Annotate sentences and compare with their mentions."""
    total = Counts()
    for sentence, mentions in zip(sentences, annotate_batch(one.text for one in sentences), strict=True):
        found = {(a.start, a.end): a.link.entity_id for a in mentions}
        wrong = {place: i for place, i in found.items() if sentence.mentions.get(place) != i}
        total.sentences += 1
        total.with_errors += bool(wrong)
        for place, entity_id in sentence.mentions.items():
            if found.get(place) == entity_id:
                total.whole += 1
                continue
            is_in_part = any(start < place[1] and place[0] < end for start, end in found)
            total.wrong_entity += place in found
            total.in_part += is_in_part and place not in found
            total.missed += not is_in_part
            show(f"  {sentence.text!r}: {sentence.text[slice(*place)]!r} {entity_id} not found")
        for place, wrong_id in wrong.items():
            show(f"  {sentence.text!r}: {sentence.text[slice(*place)]!r} -> {wrong_id}")
    return total


def read_names(path: Path) -> dict[str, set[tuple[str, str]]]:
    """Names of a base by their folded form, each with the id of its entity."""
    owners: dict[str, set[tuple[str, str]]] = defaultdict(set)
    report = ReadReport(max_errors=None)
    with open_reader([path]) as reader:
        for entity in reader.read(report):
            for name in entity.names():
                owners[fold_name(name)].add((name, entity.entity_id))
    return owners


def choose_names(owners: dict[str, set[tuple[str, str]]], generator: random.Random) -> tuple[list[Named], list[Named]]:
    """Names of 2 to 8 words, and of one word with at least 4 letters; each of one entity, in random order."""
    unique = [min(named) for _, named in sorted(owners.items()) if len({i for _, i in named}) == 1]
    generator.shuffle(unique)
    long_names = [named for named in unique if len(named[0].split()) in WORDS]
    words = [named for named in unique if len(named[0].split()) == 1 and named[0].isalpha() and len(named[0]) > 3]
    return long_names, words


def sample_rows(path: Path, target: Path, n: int, generator: random.Random) -> Path:
    """Write the header and at most `n` random rows of a table."""
    header, *rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    target.write_text("".join([header, *(generator.sample(rows, n) if len(rows) > n else rows)]), encoding="utf-8")
    return target


_SENTENCE = re.compile(r"[A-Z][^.!?\n]{30,250}[.!?](?=\s|$)")


def without_names(path: Path, folded: set[str], n: int, generator: random.Random) -> list[Sentence]:
    """Sentences of texts in which no run of words is, folded, one of some names."""
    found: list[Sentence] = []
    texts = list(read_texts(path))
    generator.shuffle(texts)
    for text in texts:
        sentences = _SENTENCE.findall(text)
        if sentences and not _has_name(sentence := generator.choice(sentences), folded):
            found.append(Sentence(sentence))
            if len(found) == n:
                break
    return found


def _has_name(sentence: str, folded: set[str]) -> bool:
    words = re.findall(r"\w+", sentence)
    return any(
        fold_name(" ".join(words[i:j])) in folded
        for i in range(len(words))
        for j in range(i + 1, min(len(words), i + 9) + 1)
    )


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="TSV: id, name, aliases.")
@click.option("--entities", default=20_000, show_default=True, help="Entities of the base, at random.")
@click.option("--names", "n_names", default=600, show_default=True, help="Names in plain sentences.")
@click.option("--seed", default=0, show_default=True)
@click.option("--store", help="Folder to keep the collection in; a temporary one by default.")
@click.option("--text", type=click.Path(exists=True, path_type=Path), help="JSON Lines, gzip, for `no name`.")
@click.option("--errors", is_flag=True, help="Show every sentence with an error.")
def main(
    data: Path,
    entities: int,
    n_names: int,
    seed: int,
    store: str | None,
    text: Path | None,
    errors: bool,
) -> None:
    """Measure `annotate` on names in sentences."""
    with tempfile.TemporaryDirectory() as folder:
        generator = random.Random(seed)
        base = sample_rows(data, Path(folder) / data.name, entities, generator)
        collection = f"{data.stem}-{entities}-{seed}"
        load_base(base, collection, store=store or folder)
        owners = read_names(base)
        long_names, words = choose_names(owners, generator)
        sentences = list(make_sentences(long_names, words, n_names, generator))
        if text is not None:
            sentences.append(("no name", without_names(text, set(owners), 1000, generator)))
        with EntityLinker.open(collection, store=store or folder, read_only=True) as linker:
            click.echo(HEAD)
            started = time.perf_counter()
            for kind, some in sentences:
                show = click.echo if errors else lambda _: None
                click.echo(count(partial(linker.annotate_batch, workers=1), some, show=show).line(kind))
            n = sum(len(some) for _, some in sentences)
            click.echo(f"{1000 * (time.perf_counter() - started) / n:.1f} ms a sentence")


if __name__ == "__main__":
    main()
