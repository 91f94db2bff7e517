"""Augmentation of a corpus, computed once: what `pearl-qdrant train paraphrase` and `train synonyms` do.

from pearl_qdrant import find_synonyms, paraphrase_corpus

paraphrase_corpus("corpus")
find_synonyms("corpus", "crawl-300d-2M.vec")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training.augment.paraphrase import Paraphraser, write_paraphrases
from training.augment.sources import NEIGHBOURS
from training.augment.vectors import write_neighbours
from training.corpus.examples import corpus_phrases
from training.corpus.files import PHRASE_VARIANTS
from training.options import DEFAULT_PARAPHRASER, MIN_COUNT, ParaphraseOptions, StrPath, SynonymOptions


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written.

    Attributes:
        path: The file.
        rows: Rows written by this call.
    """

    path: Path
    rows: int


def paraphrase_corpus(
    corpus: StrPath,
    out: StrPath | None = None,
    *,
    model: str = DEFAULT_PARAPHRASER,
    options: ParaphraseOptions | None = None,
    min_count: int = MIN_COUNT,
    device: str = "cpu",
    on_phrases: Callable[[int], None] = lambda n: None,
) -> WrittenFile:
    """Paraphrase the phrases of a corpus with a model; the same call resumes a run that was interrupted.

    Args:
        corpus: A folder with freq_phrase.txt.
        out: The file to write; by default phrase_aug.jsonl in the corpus.
        model: Sequence-to-sequence model: a folder, or a hub id as OWNER/NAME[@REVISION].
        options: How to generate.
        min_count: Phrases that occur less often are skipped.
        device: Where the model runs, as torch names it.
        on_phrases: Called with the number of phrases done since the last call.

    Raises:
        FormatError: If the folder is not a corpus, or the file is of other phrases.
        ModelNotFoundError: If the model does not exist.
        DeviceError: If torch has no such device.
    """
    options = options or ParaphraseOptions()
    phrases = corpus_phrases(Path(corpus), min_count=min_count)
    path = Path(corpus) / PHRASE_VARIANTS if out is None else Path(out)
    paraphraser = Paraphraser(model, options=options, device=device)
    rows = write_paraphrases(phrases, paraphraser, path, batch_size=options.batch_size, on_phrases=on_phrases)
    return WrittenFile(path, rows)


def find_synonyms(
    corpus: StrPath, vectors: StrPath, out: StrPath | None = None, *, options: SynonymOptions | None = None
) -> WrittenFile:
    """Find the nearest neighbours of the words of a corpus among word vectors, and write them to a file.

    Args:
        corpus: A folder with freq_phrase.txt.
        vectors: A .vec file of FastText, or GloVe's text format.
        out: The file to write; by default word_neighbours.jsonl in the corpus.
        options: Which neighbours count as synonyms.

    Raises:
        FormatError: If the folder is not a corpus, or the vectors cannot be read or have none of its words.
    """
    options = options or SynonymOptions()
    words = {word for phrase in corpus_phrases(Path(corpus), min_count=1) for word in phrase.split()}
    path = Path(corpus) / NEIGHBOURS if out is None else Path(out)
    rows = write_neighbours(
        Path(vectors),
        words,
        path,
        threshold=options.threshold,
        limit=options.neighbours,
        max_words=options.max_words,
    )
    return WrittenFile(path, rows)
