"""`pearl-qdrant train paraphrase` and `train synonyms`: augmentation that is computed once."""

from __future__ import annotations

from pathlib import Path

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.terminal import echo

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("corpus", type=_PATH, metavar="CORPUS")
@click.option("--model", default="prithivida/parrot_paraphraser_on_T5", show_default=True,
              help="Sequence-to-sequence model: folder, or hub id as OWNER/NAME[@REVISION].")  # fmt: skip
@click.option("--out", type=_PATH, help="Default: phrase_aug.jsonl in the corpus.")
@click.option("--variants", type=click.IntRange(1), default=5, show_default=True, help="Asked for each phrase.")
@click.option("--prefix", default="paraphrase: ", show_default=True, help="Text before each phrase.")
@click.option("--sample", is_flag=True, help="Draw tokens instead of a beam search.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws.")
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Phrases at once.")
@click.option("--min-count", type=click.IntRange(1), default=2, show_default=True, help="Only phrases seen so often.")
@click.option("--device", default="cpu", show_default=True, help="Where the model runs.")
def paraphrase(
    corpus: Path,
    model: str,
    out: Path | None,
    variants: int,
    prefix: str,
    sample: bool,
    seed: int,
    batch_size: int,
    min_count: int,
    device: str,
) -> None:
    """Write phrases in other words by a model, once, for training to draw from.

    CORPUS is a folder with freq_phrase.txt. The same command goes on where a run was stopped.

    \b
    pearl-qdrant train paraphrase corpus
    pearl-qdrant train paraphrase corpus --model my-t5/ --variants 10 --device cuda
    """
    from tqdm import tqdm

    from training.augment.paraphrase import ParaphraseOptions, Paraphraser, write_paraphrases
    from training.corpus.examples import corpus_phrases

    options = ParaphraseOptions(n_variants=variants, sample=sample, seed=seed, prefix=prefix, batch_size=batch_size)
    phrases = corpus_phrases(corpus, min_count=min_count)
    path = out or corpus / "phrase_aug.jsonl"
    with needs_extra("train"):
        maker = Paraphraser(model, options=options, device=device)
    with tqdm(unit=" phrases", unit_scale=True, desc="paraphrasing", dynamic_ncols=True, disable=None) as bar:
        n_rows = write_paraphrases(phrases, maker, path, batch_size=batch_size, on_phrases=bar.update)
    echo(f"{path}: {n_rows:,} phrases written")


@click.command()
@click.argument("corpus", type=_PATH, metavar="CORPUS")
@click.option("--vectors", type=_PATH, required=True, help="Word vectors: a .vec file of FastText, or GloVe's.")
@click.option("--out", type=_PATH, help="Default: word_neighbours.jsonl in the corpus.")
@click.option("--threshold", type=click.FloatRange(0, 1, min_open=True), default=0.7, show_default=True,
              help="Cosine over which two words are synonyms.")  # fmt: skip
@click.option("--neighbours", type=click.IntRange(1), default=10, show_default=True, help="Of a word, at most.")
@click.option("--max-words", type=click.IntRange(1), default=50_000, show_default=True,
              help="Words of the corpus that are compared, the most frequent vectors first.")  # fmt: skip
def synonyms(corpus: Path, vectors: Path, out: Path | None, threshold: float, neighbours: int, max_words: int) -> None:
    """Find neighbours of the words of a corpus among word vectors, once, for training to draw from.

    \b
    pearl-qdrant train synonyms corpus --vectors crawl-300d-2M.vec
    """
    from training.augment.vectors import write_neighbours
    from training.corpus.examples import corpus_phrases

    words = {word for phrase in corpus_phrases(corpus, min_count=1) for word in phrase.split()}
    path = out or corpus / "word_neighbours.jsonl"
    n_rows = write_neighbours(vectors, words, path, threshold=threshold, limit=neighbours, max_words=max_words)
    echo(f"{path}: {n_rows:,} words with neighbours")
