"""What training learns from: `train corpus`, `ngrams`, `paraphrase`, `synonyms` and `negatives`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import (
    device_option,
    json_option,
    shipped_model_option,
)
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import (
    FOLDER,
    PATH,
    aliases_option,
    options_of,
    phrases_option,
    taken,
    training_stage,
)
from training.options import (
    DEFAULT_PARAPHRASER,
    CorpusOptions,
    NgramOptions,
    ParaphraseOptions,
    SynonymOptions,
)

if TYPE_CHECKING:
    from training.corpus.make_corpus import CorpusReport
    from training.ngrams.find_ngrams import NgramReport

_corpus_options = options_of(
    CorpusOptions,
    flags={"bases": "--base"},
    without=("max_words", "max_keys", "limit", "type_columns", "max_errors", "min_count"),
)


@click.command("corpus")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--out", type=FOLDER, required=True, help="Folder of the corpus.")
@_corpus_options
@json_option
def corpus(inputs: tuple[str, ...], out: Path, as_json: bool, **options: Any) -> None:
    """Make phrases with lexical classes and entity types from text, and positives from bases.

    INPUT is plain text or JSON Lines, compressed or not; - is standard input. Writes freq_phrase.txt and
    phrase_with_etype.txt, and for bases entities.jsonl.

    \b
    pearl-qdrant train corpus articles.jsonl.gz --wordnet /usr/share/wordnet --out corpus
    pearl-qdrant train corpus wiki.txt.zst --wordnet /usr/share/wordnet --typer ner --ner-model MODEL --out corpus
    pearl-qdrant train corpus --base umls.tsv --out corpus
    """
    from tqdm import tqdm

    bar = tqdm(unit=" texts", unit_scale=True, desc="parsing", dynamic_ncols=True, disable=None)
    with bar, training_stage():
        from pearl_qdrant import make_corpus

        report = make_corpus(inputs, out, CorpusOptions(**options), on_texts=bar.update)
    if as_json:
        echo_json(_corpus_record(report, out))
    else:
        echo(*_corpus_text(report, out))


def _corpus_record(report: CorpusReport, out: Path) -> dict[str, object]:
    counts = report.counts
    return {
        "out": str(out),
        "texts": report.texts,
        "phrases": dict(counts.phrases) if counts else {},
        "types": dict(counts.types) if counts else {},
        "entities": report.entities,
        "skipped": dict(report.skipped),
        "seconds": round(report.seconds, 1),
    }


def _corpus_text(report: CorpusReport, out: Path) -> list[str]:
    """Return lines with the counts by class and by type."""
    lines = [f"{out}: {report.texts:,} texts, {report.entities:,} entities, {report.seconds:.0f} s"]
    if report.counts is not None:
        for lexical_class, count in report.counts.phrases.most_common():
            lines.append(f"  {lexical_class:<12}{count:>12,}  {report.counts.share(lexical_class):6.1%}")
        for kind, count in report.counts.types.most_common():
            lines.append(f"  {kind:<12}{count:>12,}  {count / max(1, report.counts.types.total()):6.1%}")
    return [*lines, *_skipped(report.skipped)]


def _skipped(counts: Counter[str]) -> list[str]:
    return ["  skipped: " + ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))] if counts else []


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="TEXT...")
@click.argument("out", type=FOLDER)
@options_of(NgramOptions, without=("max_per_document", "max_sequence_words", "limit", "max_errors", "block_words"))
@json_option
def ngrams(inputs: tuple[str, ...], out: Path, as_json: bool, **options: Any) -> None:
    """Find the meaningful n-grams of texts by PMI, and mark them in the sentences: the first stage of ULR.

    TEXT is plain text with a document on each line, or JSON Lines, compressed or not; - is standard input. OUT is a
    folder: ngrams.tsv has each n-gram with its count and PMI; the other files have the sentences and where their
    n-grams are. Memory is bounded; with the defaults temporary files take 9 times the size of the text.

    \b
    pearl-qdrant train ngrams articles.jsonl.gz ngrams/
    pearl-qdrant train ngrams wiki.txt.zst ngrams/ --threshold 4
    """
    from tqdm import tqdm

    bar = tqdm(unit=" documents", unit_scale=True, desc="reading", dynamic_ncols=True, disable=None)

    def counted(level: int) -> None:
        if level == 1:
            bar.close()
        echo(f"n-grams of {level} words are counted" if level > 1 else "words are counted", err=True)

    with bar, training_stage():
        from pearl_qdrant import find_ngrams

        report = find_ngrams(inputs, out, NgramOptions(**options), on_texts=bar.update, on_level=counted)
    if as_json:
        echo_json(_ngram_record(report, out))
    else:
        echo(*_ngram_text(report, out))


def _ngram_record(report: NgramReport, out: Path) -> dict[str, object]:
    return {
        "out": str(out),
        "documents": report.documents,
        "sequences": report.sequences,
        "marked_sequences": report.marked_sequences,
        "words": report.words,
        "ngrams": {str(n): count for n, count in sorted(report.ngrams.items())},
        "spans": report.spans,
        "skipped": dict(report.skipped),
        "seconds": round(report.seconds, 1),
    }


def _ngram_text(report: NgramReport, out: Path) -> list[str]:
    """Return lines with the counts by length."""
    share = report.marked_sequences / max(1, report.sequences)
    lines = [f"{out}: {report.documents:,} documents, {report.words:,} words, {report.seconds:.0f} s"]
    lines.append(f"  {report.ngrams.total():,} n-grams; {report.spans:,} spans in {report.sequences:,} sequences")
    lines.append(f"  {share:.1%} of the sequences have a span")
    lines += [f"  {n} words{count:>12,}" for n, count in sorted(report.ngrams.items())]
    return [*lines, *_skipped(report.skipped)]


@click.command()
@click.argument("corpus", type=PATH, metavar="CORPUS")
@click.option("--model", default=DEFAULT_PARAPHRASER, show_default=True,
              help="Sequence-to-sequence model: a folder, or a hub id as OWNER/NAME[@REVISION].")  # fmt: skip
@options_of(
    ParaphraseOptions, flags={"n_variants": "--variants"}, without=("sample", "prefix", "max_new_tokens", "batch_size")
)
@click.option("--device", default="cpu", show_default=True, help="Where the model runs.")
def paraphrase(corpus: Path, **others: Any) -> None:
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

        written = paraphrase_corpus(corpus, options=options, on_phrases=bar.update, **others)
    echo(f"{written.path}: {written.rows:,} phrases written")


@click.command()
@click.argument("corpus", type=PATH, metavar="CORPUS")
@click.option("--vectors", type=PATH, required=True, help="Word vectors: a .vec file of FastText, or GloVe's.")
@options_of(SynonymOptions, without=("max_words",))
def synonyms(corpus: Path, vectors: Path, **options: Any) -> None:
    """Find neighbours of the words of a corpus among word vectors, once; `train fit` draws from the file.

    \b
    pearl-qdrant train synonyms corpus --vectors crawl-300d-2M.vec
    """
    with training_stage():
        from pearl_qdrant import find_synonyms

        written = find_synonyms(corpus, vectors, options=SynonymOptions(**options))
    echo(f"{written.path}: {written.rows:,} words with neighbours")


@click.command()
@phrases_option
@aliases_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="hard_negative.txt.")
@shipped_model_option("Base encoder: the candidates with its lowest cosines are kept.")
@device_option
def negatives(out: Path, **inputs: Any) -> None:
    """Find hard negatives: phrases that are spelled almost like a phrase and mean something else.

    A hard negative is never of the same entity, equal after case and punctuation folding, or close in meaning.

    \b
    pearl-qdrant train negatives --phrases corpus --out corpus/hard_negative.txt
    pearl-qdrant train negatives --aliases umls.tsv --model all-MiniLM-L6-v2/ --out hard_negative.txt
    """
    with training_stage() as output:
        from pearl_qdrant import mine_negatives

        n_rows = mine_negatives(out, events=output, **inputs)
    echo(f"{out}: {n_rows:,} phrases with hard negatives", err=True)
