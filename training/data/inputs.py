"""Read all inputs of a training stage as examples."""

from __future__ import annotations

from ingest.formats import open_reader
from ingest.io.report import ReadReport
from pearl_qdrant.errors import OptionError
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS
from training.corpus.bases import base_key
from training.corpus.typing.typed_lists import read_typed_names
from training.data.training_files import base_examples, read_examples, type_examples
from training.defaults import MIN_COUNT
from training.events import TrainingEvents
from training.examples.example import Example, sort_examples
from training.paths import Paths, as_paths


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
