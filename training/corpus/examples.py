"""Read a corpus as training examples: our own files, or PEARL's published ones."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

from ingest.io.report import ReadReport
from pearl_qdrant.errors import FormatError
from pearl_qdrant.phrase_types import ENTITY_TYPES
from training.corpus.files import ENTITY_TYPES_FILE, FREQUENCIES, read_entity_types, read_frequencies
from training.corpus.keys import phrase_key
from training.examples.example import Example, one_class


class PhraseTypes:
    """Entity types by phrase, 9 bytes per phrase."""

    def __init__(self, path: Path, report: ReadReport) -> None:
        """Read phrase_with_etype.txt. Raises as `read_entity_types`."""
        place = {kind: i for i, kind in enumerate(ENTITY_TYPES)}
        keys, kinds = array("Q"), array("B")
        for phrase, kind in read_entity_types(path, report):
            keys.append(phrase_key(phrase))
            kinds.append(place[kind])
        unsorted = np.array(keys, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        self._keys, self._kinds = unsorted[order], np.array(kinds, np.uint8)[order]

    def get(self, phrase: str) -> str | None:
        """Return the type of a phrase, or None."""
        key = np.uint64(phrase_key(phrase))
        place = int(np.searchsorted(self._keys, key))
        if place < len(self._keys) and self._keys[place] == key:
            return ENTITY_TYPES[int(self._kinds[place])]
        return None


def corpus_phrases(folder: Path, *, min_count: int = 1, report: ReadReport | None = None) -> Iterator[str]:
    """Yield the phrases of a corpus; adjacent rows of one phrase count once. Raises as `corpus_examples`."""
    _check_there(folder, FREQUENCIES)
    rows = read_frequencies(folder / FREQUENCIES, report or ReadReport())
    return (phrase for phrase, _ in groupby(phrase for phrase, _, count in rows if count >= min_count))


def corpus_examples(folder: Path, report: ReadReport, *, min_count: int = 1) -> Iterator[Example]:
    """Yield an example per phrase of a corpus, with the lexical class and entity type of the files.

    A phrase with two classes in adjacent rows allows either. A phrase without an entity type has no label: unknown is
    not OTHER.

    Args:
        folder: Has freq_phrase.txt and phrase_with_etype.txt, our own or the published ones.
        report: Counts rows of both files, and those skipped.
        min_count: Phrases that occur less often are skipped.

    Raises:
        FormatError: If a file is missing or is of another format.
        TooManyErrorsError: If more rows are bad than the report allows.
    """
    for name in (FREQUENCIES, ENTITY_TYPES_FILE):
        _check_there(folder, name)
    return _examples(folder, report, min_count)


def _examples(folder: Path, report: ReadReport, min_count: int) -> Iterator[Example]:
    types = PhraseTypes(folder / ENTITY_TYPES_FILE, report)
    rows = (row for row in read_frequencies(folder / FREQUENCIES, report) if row[2] >= min_count)
    for phrase, same in groupby(rows, key=lambda row: row[0]):
        kind = types.get(phrase)
        labels = (
            {}
            if kind is None
            else dict.fromkeys(i for _, lexical_class, _ in same for i in one_class(lexical_class, [kind]))
        )
        yield Example(phrase, (), f"name:{phrase.casefold()}", tuple(labels))


def _check_there(folder: Path, name: str) -> None:
    if not (folder / name).exists():
        message = f"is not a corpus: {name} is missing. Make one with: pearl-qdrant train corpus TEXT --out {folder}"
        raise FormatError(str(folder), None, message)
