"""`pearl-qdrant train corpus`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.cli.train.options import FOLDER, PATH, option_of
from pearl_qdrant.cli.train.output import training_stage
from training.options import CorpusOptions

if TYPE_CHECKING:
    from training.corpus.make_corpus import CorpusReport

_option = option_of(CorpusOptions)


@click.command("corpus")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--out", type=FOLDER, required=True, help="Folder of the corpus.")
@_option("--field", "field", help="JSON Lines: the field that holds the text.")
@_option("--parser", "parser", type=click.Choice(["builtin", "benepar"]),
         help="Finds phrases: WordNet and patterns, or benepar with spaCy (extra: corpus).")  # fmt: skip
@_option("--wordnet", "wordnet", type=PATH, metavar="DIR", help="WordNet's dict folder; the built-in parser needs it.")
@_option("--spacy-model", "spacy_model", help="benepar: tokens and sentences.")
@_option("--benepar-model", "benepar_model", help="benepar: name or path.")
@_option("--typer", "typer", type=click.Choice(["distant", "ner"]),
         help="Assigns types: by names and rules, or by a token-classification model.")  # fmt: skip
@_option("--ner-model", "ner_model", metavar="M", help="Folder, or hub id as OWNER/NAME[@REVISION].")
@_option("--device", "device", help="Where the NER model runs.")
@_option("--base", "bases", type=PATH, multiple=True, help="Base of typed names and aliases; may be repeated.")
@_option("--type-column", "type_columns", multiple=True, metavar="C", help="Column of the types, for a base in TSV.")
@_option("--typed-names", "typed_names", type=PATH, multiple=True, metavar="F",
         help="List of names and types; may be repeated.")  # fmt: skip
@_option("--min-count", "min_count", type=click.IntRange(1), help="Phrases that occur less often are skipped.")
@_option("--max-words", "max_words", type=click.IntRange(1), help="Longer phrases are skipped.")
@_option("--max-phrases", "max_keys", type=click.IntRange(1),
         help="Distinct phrases in memory; more go to temporary files.")  # fmt: skip
@_option("--workers", "workers", type=click.IntRange(1), help="Processes that parse.")
@_option("--limit", "limit", type=click.IntRange(1), help="Read at most this many texts.")
@_option("--max-errors", "max_errors", type=click.IntRange(0), help="Bad rows that each input may have.")
@json_option
def corpus(inputs: tuple[str, ...], out: Path, as_json: bool, **options: Any) -> None:
    """Make phrases with lexical classes and entity types from text, and positives from bases.

    INPUT is plain text or JSON Lines, compressed or not; - is standard input. Writes freq_phrase.txt and
    phrase_with_etype.txt, and for bases entities.jsonl.

    \b
    pearl-qdrant train corpus articles.jsonl.gz --wordnet /usr/share/wordnet --out corpus
    pearl-qdrant train corpus wiki.txt.zst --parser benepar --typer ner --ner-model MODEL --out corpus
    pearl-qdrant train corpus --base umls.tsv --out corpus
    """
    from tqdm import tqdm

    bar = tqdm(unit=" texts", unit_scale=True, desc="parsing", dynamic_ncols=True, disable=None)
    with bar, training_stage():
        from pearl_qdrant import make_corpus

        report = make_corpus(inputs, out, CorpusOptions(**options), on_texts=bar.update)
    if as_json:
        echo_json(_as_record(report, out))
    else:
        echo(*_as_text(report, out))


def _as_record(report: CorpusReport, out: Path) -> dict[str, object]:
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


def _as_text(report: CorpusReport, out: Path) -> list[str]:
    """Return lines with the counts by class and by type."""
    lines = [f"{out}: {report.texts:,} texts, {report.entities:,} entities, {report.seconds:.0f} s"]
    if report.counts is not None:
        for lexical_class, count in report.counts.phrases.most_common():
            lines.append(f"  {lexical_class:<12}{count:>12,}  {report.counts.share(lexical_class):6.1%}")
        for kind, count in report.counts.types.most_common():
            lines.append(f"  {kind:<12}{count:>12,}  {count / max(1, report.counts.types.total()):6.1%}")
    if report.skipped:
        lines.append("  skipped: " + ", ".join(f"{reason} {n}" for reason, n in sorted(report.skipped.items())))
    return lines
