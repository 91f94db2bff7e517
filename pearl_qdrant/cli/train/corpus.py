"""`pearl-qdrant train corpus`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from pearl_qdrant.cli.common.extras import needs_extra
from pearl_qdrant.cli.common.options import json_option
from pearl_qdrant.cli.common.terminal import echo, echo_json
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS

if TYPE_CHECKING:
    from training.corpus.make import CorpusReport

_PATH = click.Path(path_type=Path)


@click.command("corpus")
@click.argument("inputs", nargs=-1, metavar="[INPUT]...")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the corpus.")
@click.option("--field", default="text", show_default=True, help="JSON Lines: the field that holds the text.")
@click.option("--parser", type=click.Choice(["builtin", "benepar"]), default="builtin", show_default=True,
              help="Finds phrases: WordNet and patterns, or benepar with spaCy (extra: corpus).")  # fmt: skip
@click.option("--wordnet", type=_PATH, metavar="DIR", help="WordNet's dict folder; the built-in parser needs it.")
@click.option("--spacy-model", default="en_core_web_md", show_default=True, help="benepar: tokens and sentences.")
@click.option("--benepar-model", default="benepar_en3", show_default=True, help="benepar: name or path.")
@click.option("--typer", type=click.Choice(["distant", "ner"]), default="distant", show_default=True,
              help="Types phrases: names and rules, or a token-classification model.")  # fmt: skip
@click.option("--ner-model", metavar="M", help="Folder, or hub id as OWNER/NAME[@REVISION].")
@click.option("--device", default="cpu", show_default=True, help="Where the NER model runs.")
@click.option("--base", "bases", type=_PATH, multiple=True, help="Base of typed names and aliases; may be repeated.")
@click.option("--type-column", "type_columns", multiple=True, metavar="C", help="Of a base that is TSV.")
@click.option("--typed-names", type=_PATH, multiple=True, metavar="F", help="List of names and types; may be repeated.")
@click.option("--min-count", type=click.IntRange(1), default=2, show_default=True, help="Rarer phrases are left out.")
@click.option("--max-words", type=click.IntRange(1), default=10, show_default=True, help="Longer ones are left out.")
@click.option("--max-phrases", type=click.IntRange(1), default=2_000_000, show_default=True,
              help="Distinct phrases in memory; more go to temporary files.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that parse.")
@click.option("--limit", type=click.IntRange(1), help="Read only so many texts.")
@click.option("--max-errors", type=click.IntRange(0), default=DEFAULT_MAX_ERRORS, show_default=True,
              help="Bad rows that an input may have.")  # fmt: skip
@json_option
def corpus(
    inputs: tuple[str, ...],
    out: Path,
    field: str,
    parser: Literal["builtin", "benepar"],
    wordnet: Path | None,
    spacy_model: str,
    benepar_model: str,
    typer: Literal["distant", "ner"],
    ner_model: str | None,
    device: str,
    bases: tuple[Path, ...],
    type_columns: tuple[str, ...],
    typed_names: tuple[Path, ...],
    min_count: int,
    max_words: int,
    max_phrases: int,
    workers: int,
    limit: int | None,
    max_errors: int,
    as_json: bool,
) -> None:
    """Make phrases with lexical classes and entity types from text, and positives from bases.

    INPUT is plain text or JSON Lines, compressed or not; - is standard input. Writes freq_phrase.txt,
    phrase_with_etype.txt, and from bases entities.jsonl.

    \b
    pearl-qdrant train corpus articles.jsonl.gz --wordnet /usr/share/wordnet --out corpus
    pearl-qdrant train corpus wiki.txt.zst --parser benepar --typer ner --ner-model MODEL --out corpus
    pearl-qdrant train corpus --base umls.tsv --out corpus
    """
    from tqdm import tqdm

    from training.corpus.make import CorpusOptions, make_corpus

    options = CorpusOptions(
        parser=parser, typer=typer, wordnet=wordnet, field=field, min_count=min_count, max_words=max_words,
        max_keys=max_phrases, workers=workers, limit=limit, bases=bases, type_columns=type_columns,
        typed_names=typed_names, max_errors=max_errors, spacy_model=spacy_model, benepar_model=benepar_model,
        ner_model=ner_model, device=device,
    )  # fmt: skip
    bar = tqdm(unit=" texts", unit_scale=True, desc="parsing", dynamic_ncols=True, disable=None)
    with bar, needs_extra("train"):
        report = make_corpus(inputs, out, options, on_texts=bar.update)
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
    """Counts by class and by type."""
    lines = [f"{out}: {report.texts:,} texts, {report.entities:,} entities, {report.seconds:.0f} s"]
    if report.counts is not None:
        for lexical_class, count in report.counts.phrases.most_common():
            lines.append(f"  {lexical_class:<12}{count:>12,}  {report.counts.share(lexical_class):6.1%}")
        for kind, count in report.counts.types.most_common():
            lines.append(f"  {kind:<12}{count:>12,}  {count / max(1, report.counts.types.total()):6.1%}")
    if report.skipped:
        lines.append("  passed over: " + ", ".join(f"{reason} {n}" for reason, n in sorted(report.skipped.items())))
    return lines
