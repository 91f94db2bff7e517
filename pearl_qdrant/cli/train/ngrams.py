"""`pearl-qdrant train ngrams`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import FOLDER, PATH, option_of
from pearl_qdrant.cli.train.output import training_stage
from training.options import MAX_NGRAM_WORDS, NgramOptions

if TYPE_CHECKING:
    from training.ngrams.find_ngrams import NgramReport

_option = option_of(NgramOptions)


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="TEXT...")
@click.argument("out", type=FOLDER)
@_option("--field", "field", help="JSON Lines: the field that holds the text.")
@_option("--max-words", "max_words", type=click.IntRange(2, MAX_NGRAM_WORDS), help="Words of the longest n-gram.")
@_option("--min-count", "min_count", type=click.IntRange(1), help="N-grams that occur less often are skipped.")
@_option("--threshold", "threshold", type=float, help="Only n-grams with a higher PMI are kept, in nats.")
@_option("--max-per-document", "max_per_document", type=click.IntRange(1),
         help="Distinct n-grams that a document keeps, those of the highest PMI.")  # fmt: skip
@_option("--factor", "factor", type=click.Choice(["length", "none"]),
         help="length: divide PMI by the number of words, as the paper; none: as the published code.")  # fmt: skip
@_option("--scope", "scope", type=click.Choice(["corpus", "document"]),
         help="Count in the corpus, as the paper, or in each document, as the published code.")  # fmt: skip
@_option("--punctuation", "punctuation", type=click.Choice(["skip", "break"]),
         help="Whether an n-gram may go on after a comma, as in the paper, or not.")  # fmt: skip
@_option("--keep-case", "keep_case", is_flag=True, help="Words that differ only in case are different words.")
@_option("--entities", "entities", type=PATH, multiple=True, metavar="F",
         help="Names, one a line: their mentions are marked as n-grams, too; may be repeated.")  # fmt: skip
@_option("--max-sequence-words", "max_sequence_words", type=click.IntRange(2, 1 << 16),
         help="Longer sentences are cut.")  # fmt: skip
@_option("--limit", "limit", type=click.IntRange(1), help="Read at most this many documents.")
@_option("--max-errors", "max_errors", type=click.IntRange(0), help="Bad rows that each input may have.")
@json_option
def ngrams(inputs: tuple[str, ...], out: Path, as_json: bool, **options: Any) -> None:
    """Find the meaningful n-grams of texts by PMI, and mark them in the sentences: the first stage of ULR.

    TEXT is plain text with a document on each line, or JSON Lines, compressed or not; - is standard input. OUT is a
    folder: ngrams.tsv has each n-gram with its count and PMI; the other files have the sentences and where their
    n-grams are. Memory is bounded; with the defaults temporary files take 9 times the size of the text.

    \b
    pearl-qdrant train ngrams articles.jsonl.gz ngrams/
    pearl-qdrant train ngrams wiki.txt.zst ngrams/ --entities titles.txt --threshold 4
    pearl-qdrant train ngrams articles.jsonl.gz published/ --factor none --scope document --min-count 1
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
        echo_json(_as_record(report, out))
    else:
        echo(*_as_text(report, out))


def _as_record(report: NgramReport, out: Path) -> dict[str, object]:
    return {
        "out": str(out),
        "documents": report.documents,
        "sequences": report.sequences,
        "marked_sequences": report.marked_sequences,
        "words": report.words,
        "ngrams": {str(n): count for n, count in sorted(report.ngrams.items())},
        "spans": report.spans,
        "entity_names": report.entity_names,
        "entity_mentions": report.entity_mentions,
        "skipped": dict(report.skipped),
        "seconds": round(report.seconds, 1),
    }


def _as_text(report: NgramReport, out: Path) -> list[str]:
    """Return lines with the counts by length."""
    share = report.marked_sequences / max(1, report.sequences)
    lines = [f"{out}: {report.documents:,} documents, {report.words:,} words, {report.seconds:.0f} s"]
    lines.append(f"  {report.ngrams.total():,} n-grams; {report.spans:,} spans in {report.sequences:,} sequences")
    lines.append(f"  {share:.1%} of the sequences have a span")
    lines += [f"  {n} words{count:>12,}" for n, count in sorted(report.ngrams.items())]
    if report.entity_names:
        lines.append(f"  {report.entity_mentions:,} mentions of {report.entity_names:,} names")
    if report.skipped:
        lines.append("  skipped: " + ", ".join(f"{reason} {n}" for reason, n in sorted(report.skipped.items())))
    return lines
