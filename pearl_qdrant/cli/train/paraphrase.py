"""`pearl-qdrant train paraphrase` and `train synonyms`: augmentation that is computed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pearl_qdrant.cli.common.terminal import echo
from pearl_qdrant.cli.train.options import PATH, option_of, taken
from pearl_qdrant.cli.train.output import training_stage
from training.options import DEFAULT_PARAPHRASER, MIN_COUNT, ParaphraseOptions, SynonymOptions

_option = option_of(ParaphraseOptions)
_synonym = option_of(SynonymOptions)


@click.command()
@click.argument("corpus", type=PATH, metavar="CORPUS")
@click.option("--model", default=DEFAULT_PARAPHRASER, show_default=True,
              help="Sequence-to-sequence model: a folder, or a hub id as OWNER/NAME[@REVISION].")  # fmt: skip
@click.option("--out", type=PATH, help="File to write.  [default: phrase_aug.jsonl in the corpus]")
@_option("--variants", "n_variants", type=click.IntRange(1), help="Paraphrases generated per phrase.")
@_option("--prefix", "prefix", help="Text before each phrase.")
@_option("--sample", "sample", is_flag=True, help="Draw tokens instead of a beam search.")
@_option("--seed", "seed", type=int, help="Seed of the draws.")
@_option("--batch-size", "batch_size", type=click.IntRange(1), help="Phrases generated at once.")
@click.option("--min-count", type=click.IntRange(1), default=MIN_COUNT, show_default=True,
              help="Phrases that occur less often are skipped.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="Where the model runs.")
def paraphrase(corpus: Path, out: Path | None, **others: Any) -> None:
    """Paraphrase the phrases of a corpus with a model, once; `train fit` draws from the file.

    CORPUS is a folder with freq_phrase.txt. The same command resumes a run that was interrupted.

    \b
    pearl-qdrant train paraphrase corpus
    pearl-qdrant train paraphrase corpus --model my-t5/ --variants 10 --device cuda
    """
    from tqdm import tqdm

    options = taken(ParaphraseOptions, others)
    bar = tqdm(unit=" phrases", unit_scale=True, desc="paraphrasing", dynamic_ncols=True, disable=None)
    with bar, training_stage():
        from pearl_qdrant import paraphrase_corpus

        written = paraphrase_corpus(corpus, out, options=options, on_phrases=bar.update, **others)
    echo(f"{written.path}: {written.rows:,} phrases written")


@click.command()
@click.argument("corpus", type=PATH, metavar="CORPUS")
@click.option("--vectors", type=PATH, required=True, help="Word vectors: a .vec file of FastText, or GloVe's.")
@click.option("--out", type=PATH, help="File to write.  [default: word_neighbours.jsonl in the corpus]")
@_synonym("--threshold", "threshold", type=click.FloatRange(0, 1, min_open=True),
          help="Cosine above which two words are synonyms.")  # fmt: skip
@_synonym("--neighbours", "neighbours", type=click.IntRange(1), help="Neighbours per word, at most.")
@_synonym("--max-words", "max_words", type=click.IntRange(1),
          help="Words of the corpus that are compared; those with the most frequent vectors come first.")  # fmt: skip
def synonyms(corpus: Path, vectors: Path, out: Path | None, **options: Any) -> None:
    """Find neighbours of the words of a corpus among word vectors, once; `train fit` draws from the file.

    \b
    pearl-qdrant train synonyms corpus --vectors crawl-300d-2M.vec
    """
    with training_stage():
        from pearl_qdrant import find_synonyms

        written = find_synonyms(corpus, vectors, out, options=SynonymOptions(**options))
    echo(f"{written.path}: {written.rows:,} words with neighbours")
