"""Read the files that `fit_model`, `train_head` and `mine_negatives` learn from.

    a corpus folder         freq_phrase.txt and phrase_with_etype.txt, with or without entities.jsonl; or only this one
    freq_phrase.txt         CLASS__phrase <TAB> frequency
    phrase_with_etype.txt   phrase <TAB> entity type; beside a freq_phrase.txt it has the types of those phrases
    entities.jsonl          {"entity": ..., "names": [...], "types": [...]}
    hard_negative.txt       phrase <TAB> negative ..., or JSON Lines {"phrase": ..., "negatives": [...]}

The first row of a file decides its kind, not its name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.phrase_types import ENTITY_TYPES, LEXICAL_CLASSES
from pearl_qdrant.records import Entity
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from training.corpus.files import (
    ENTITIES,
    FREQUENCIES,
    NOT_A_ROW,
    PhraseTypes,
    base_key,
    corpus_examples,
    entity_examples,
    entity_type_of,
    frequency_examples,
    read_entities,
    read_entity_types,
    read_rows,
)
from training.corpus.typing import read_typed_names
from training.events import TrainingEvents
from training.examples.example import Example, Phrase, any_class, one_class, sort_examples
from training.options import MIN_COUNT, Paths, as_paths

Kind = Literal["corpus", "frequencies", "types", "entities"]

_FREQUENCY = re.compile(rf"(?:{'|'.join(LEXICAL_CLASSES)})__.+\t\s*\d+\s*")


def read_examples(paths: Sequence[Path], report: ReadReport, *, min_count: int = 1) -> list[Example]:
    """Read the examples of files and folders, in alphabetical order.

    Args:
        paths: As above.
        report: Counts rows, and those skipped.
        min_count: Phrases that occur less often in a corpus are skipped.

    Raises:
        FormatError: If a path does not exist, is of an unknown kind, or is empty.
        TooManyErrorsError: If more rows are bad than the report allows.
    """
    kinds = [(path, detect_kind(path)) for path in paths]
    types = [PhraseTypes(path, report) for path, kind in kinds if kind == "types"]
    has_frequencies = any(kind == "frequencies" for _, kind in kinds)
    examples: list[Example] = []
    for path, kind in kinds:
        if kind == "corpus":
            has_entities = (path / ENTITIES).exists()
            if (path / FREQUENCIES).exists() or not has_entities:
                examples.extend(corpus_examples(path, report, min_count=min_count))
            if has_entities:
                examples.extend(entity_examples(read_entities(path / ENTITIES, report)))
        elif kind == "frequencies":
            examples.extend(frequency_examples(path, types, report, min_count))
        elif kind == "entities":
            examples.extend(entity_examples(read_entities(path, report)))
        elif not has_frequencies:
            examples.extend(type_examples(read_entity_types(path, report)))
    if not examples:
        raise FormatError(", ".join(map(str, paths)), None, "contains no phrases")
    return sort_examples(examples)


def detect_kind(path: Path) -> Kind:
    """Detect the kind of a path by its first row.

    Raises:
        FormatError: If it does not exist or is of an unknown kind.
    """
    if path.is_dir():
        return "corpus"
    first = next((line for _, line in read_rows(path, ReadReport())), "")
    if first.startswith("{") and '"names"' in first:
        return "entities"
    if _FREQUENCY.fullmatch(first):
        return "frequencies"
    if "\t" in first and entity_type_of(first.rpartition("\t")[2]) is not None:
        return "types"
    raise FormatError(
        str(path),
        1,
        "is not a list of phrases: expected CLASS__phrase<TAB>frequency, phrase<TAB>entity type, or a corpus folder. "
        "Give a base of names as 'aliases'",
    )


def read_negatives(path: Path, report: ReadReport) -> Iterator[tuple[str, list[str]]]:
    """Read phrases with their hard negatives. Raises as `read_examples`."""
    for number, line in read_rows(path, report):
        found = parse_negatives(line)
        if found is None:
            report.skip(NOT_A_ROW, path=str(path), line=number, text=line)
        else:
            yield found


def base_examples(entities: Iterable[Entity], *, kb: str) -> Iterator[Example]:
    """Make an example of each entity of a base; with a single name it is a negative, and an anchor with variants."""
    for entity in entities:
        names = [name for name in dict.fromkeys(entity.names()) if name.strip()]
        if names:
            kinds = [kind for kind in entity.types if kind in ENTITY_TYPES]
            yield Example(names[0], tuple(names[1:]), f"{kb}:{entity.entity_id}", one_class("NP", kinds))


def as_phrases(examples: Iterable[Example]) -> Iterator[Phrase]:
    """Return every name of every example, to mine hard negatives for."""
    for example in examples:
        entities = (example.entity,) if example.entity else ()
        for name in (example.name, *example.others):
            yield Phrase(name, entities, example.allowed)


def index_by_name(examples: Iterable[Example]) -> dict[str, Example]:
    """Map each name to its example; if several share a name, to the first one."""
    known: dict[str, Example] = {}
    for example in examples:
        for name in (example.name, *example.others):
            known.setdefault(name, example)
    return known


def with_one_label(example: Example) -> Example:
    """Reduce an example to the paper's form: at most one phrase type, and no other names."""
    return replace(example, others=(), allowed=example.allowed[:1])


def type_examples(rows: Iterable[tuple[str, str]]) -> Iterator[Example]:
    """Make examples of typed phrases with an open lexical class; several types of one phrase allow any of them."""
    types: dict[str, dict[str, None]] = {}
    for phrase, kind in rows:
        types.setdefault(phrase, {})[kind] = None
    for phrase, kinds in types.items():
        yield Example(phrase, (), f"name:{phrase.casefold()}", any_class(kinds))


def read_training_files(
    phrases: Paths = (),
    aliases: Paths = (),
    *,
    typed_names: Paths = (),
    min_count: int = MIN_COUNT,
    max_errors: int | None = DEFAULT_MAX_ERRORS,
    events: TrainingEvents | None = None,
) -> list[Example]:
    """Read examples from files of all kinds, in alphabetical order.

    Args:
        phrases: Corpus folders and lists of phrases, see `training.data.training_files`.
        aliases: Bases in any format that `ingest` reads; the names of one entity are positives of each other.
        typed_names: Lists of names with their entity types.
        min_count: Phrases that occur less often in a corpus are skipped.
        max_errors: Bad rows that all inputs together may have; None for any number.
        events: Gets `examples_read`.

    Raises:
        OptionError: If there is no input.
        FormatError: If an input does not exist, is of an unknown kind, or is empty.
        TooManyErrorsError: If more rows are bad than allowed.
    """
    phrase_paths, alias_paths, typed_paths = as_paths(phrases), as_paths(aliases), as_paths(typed_names)
    if not phrase_paths and not alias_paths and not typed_paths:
        raise OptionError("phrases", "There is nothing to learn from: both 'phrases' and 'aliases' are empty.")
    report = ReadReport(max_errors=max_errors)
    examples = read_examples(phrase_paths, report, min_count=min_count) if phrase_paths else []
    for path in alias_paths:
        with open_reader([path]) as reader:
            examples += base_examples(reader.read(report), kb=base_key(path))
    examples += type_examples(row for path in typed_paths for row in read_typed_names(path, report))
    (events or TrainingEvents()).examples_read(len(examples), report.skip_counts)
    return sort_examples(examples)


def write_hard_negatives(path: Path, rows: Iterable[tuple[str, list[str]]]) -> int:
    """Write hard_negative.txt (`phrase<TAB>negative...`), or JSON Lines if the name ends in .jsonl.

    The file appears when it is complete; until then it has another name. In the first form, tabs and line breaks within
    a phrase become spaces.

    Returns:
        Number of rows.
    """
    part = path.with_name(path.name + ".part")
    n_rows = 0
    with part.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for phrase, negatives in rows:
            if path.suffix == ".jsonl":
                file.write(json.dumps({"phrase": phrase, "negatives": negatives}, ensure_ascii=False) + "\n")
            else:
                file.write("\t".join(" ".join(name.split()) for name in (phrase, *negatives)) + "\n")
            n_rows += 1
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return n_rows


def parse_negatives(line: str) -> tuple[str, list[str]] | None:
    """Parse a row of either form into phrase and negatives; None if it is neither."""
    if not line.startswith("{"):
        phrase, *negatives = line.rstrip("\r\n").split("\t")
        return (phrase, negatives) if phrase.strip() and negatives else None
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("phrase"), str):
        return None
    named: Any = row.get("negatives", row.get("hard_negatives"))
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        return None
    return row["phrase"], list(named)
