"""The command `pearl-qdrant link`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from pearl_qdrant.cli.common.options import (
    InputFile,
    Target,
    check_folder_of,
    json_option,
    name_of,
    on_tie_option,
    report_newer_state,
    target_options,
    type_option,
    workers_option,
)
from pearl_qdrant.cli.common.terminal import echo, echo_json, table_lines, visible
from pearl_qdrant.settings import DEFAULT_LIMIT, DEFAULT_THRESHOLD

if TYPE_CHECKING:
    from pearl_qdrant.linking.linker import EntityLinker
    from pearl_qdrant.linking.options import LinkOptions
    from pearl_qdrant.records import Candidate, Link
    from pearl_qdrant.report import LinkReport


@click.command()
@click.argument("mentions", nargs=-1, metavar="[MENTION]...")
@click.option(
    "--file",
    "file",
    type=InputFile(),
    help="File with one mention per line, UTF-8; - is stdin. An empty line gets an empty answer.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["lines", "jsonl"]),
    show_default="jsonl for a file that ends in .jsonl or .ndjson, else lines",
    help="One mention a line (lines), or documents with the places of their mentions as JSON objects, one a line "
    "(jsonl): the mentions of a document are linked together.",
)
@click.option("--context", metavar="TEXT", help="Text around the mentions; chooses between their candidates.")
@target_options(many=True)
@type_option
@click.option(
    "--name-language",
    "languages",
    multiple=True,
    metavar="CODE",
    help="Find only names in this language, such as de, and names without a stated language; may be repeated.",
)
@click.option(
    "--type-mode",
    type=click.Choice(["hard", "soft", "off"]),
    default="hard",
    show_default=True,
    help="hard: only entities of the types; soft: prefer them; off: ignore types, the predicted ones too.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    show_default=f"those that the answer needs, at most {DEFAULT_LIMIT}",
    help="Maximum number of candidates.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    show_default=f"the calibrated one, or {DEFAULT_THRESHOLD}",
    help="Minimum probability of a link; below it a mention is NIL.",
)
@on_tie_option
@workers_option
@click.option(
    "--adapt",
    is_flag=True,
    help="With --file: estimate how much of the list is in the base from its scores, without labels, and decide by "
    "that; at least 200 different mentions. What it assumes is printed to stderr.",
)
@click.option(
    "--explain", is_flag=True, help="Explain each link: the rule, or what speaks for the best candidate and against it."
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --file: also write a report to this HTML file: shares, reasons of NIL, doubtful mentions, types.",
)
@json_option
def link(  # long: help has its examples
    mentions: tuple[str, ...],
    file: BinaryIO | None,
    kind: str | None,
    target: Target,
    adapt: bool,
    report: Path | None,
    as_json: bool,
    **given: Any,  # the fields of `LinkOptions`, `workers` and `explain`
) -> None:
    """Link mentions to entities, or report that there is none (NIL).

    The mentions of a document are linked together: a partial name takes the entity of a longer mention, and entities
    that the base links to each other are preferred. A line of such a file:
    {"id": 7, "text": "She left NYC.", "mentions": [{"start": 9, "end": 12}]}

    \b
    pearl-qdrant link "heart attack" "NYTimes"
    pearl-qdrant link "Paris" --type PERSON --json
    pearl-qdrant link "Genf" --name-language de
    pearl-qdrant link "NYTimes" --explain
    pearl-qdrant link --file mentions.txt --json > links.jsonl
    pearl-qdrant link --file products.txt --adapt --json > links.jsonl
    pearl-qdrant link --file documents.jsonl --json > links.jsonl
    pearl-qdrant link --file mentions.txt --report out.html --json > links.jsonl
    pearl-qdrant link Clinton --context "Bill Clinton met reporters in Washington."
    """
    workers, explain = given.pop("workers"), given.pop("explain")
    has_documents = file is not None and (kind or _kind_of(name_of(file))) == "jsonl"
    _check_usage(
        {"mentions": mentions, "file": file, "format": kind, "workers": workers, "adapt": adapt, "report": report},
        given["context"],
        has_documents=has_documents,
    )
    from pearl_qdrant.linking.options import LinkOptions
    from pearl_qdrant.linking.ranking.explain import explain_link

    options = LinkOptions(**given)
    if explain:
        options = options.updated(limit=options.most_candidates)
    with target.open(threshold=options.threshold) as linker:
        if file is not None and has_documents:
            found_links = _in_documents(linker, file, options)
        else:
            listed: Iterable[str] = mentions if file is None else _read_mentions(file)
            listed, options = _adapted(linker, listed, options) if adapt else (listed, options)
            found_links = (({}, one) for one in linker.link_batch(listed, options, workers=workers))
        calibration = linker.calibration.with_bias(options.nil_bias)
        counts = None if report is None else _new_report(calibration.threshold)
        for key, found in found_links:
            if counts is not None:
                counts.add(found)
            if as_json:
                echo_json({**key, **_as_record(found, explain)})
                continue
            head, *table = link_lines(found, with_base=target.has_several)
            echo("".join(f"{visible(str(value))}:" for name, value in key.items() if name != "end") + head, *table)
            if explain and found.mention.strip():
                echo(*(f"    {line}" for line in explain_link(found, calibration, linker.model)))
        if file is not None:
            report_newer_state(linker)
            if counts is not None and report is not None:
                counts.write(report, title=Path(name_of(file)).name)


def _new_report(threshold: float) -> LinkReport:
    from pearl_qdrant.report import LinkReport

    return LinkReport(threshold=threshold)


def _check_usage(given: Mapping[str, object], context: str | None, *, has_documents: bool) -> None:
    """Raise for options that do not go together."""
    if bool(given["mentions"]) == bool(given["file"]):
        raise click.UsageError("Give either mentions as arguments, or a file of mentions with --file.")
    for name in ("format", "workers", "adapt", "report"):
        if given[name] and given["file"] is None:
            raise click.UsageError(f"--{name} is for --file.")
    if context is not None and (has_documents or given["adapt"]):
        raise click.UsageError(
            "--context is for mentions without a text; a document is the context of its mentions, and a list that "
            "--adapt reads has none."
        )
    report = cast("Path | None", given["report"])
    if report is not None:
        check_folder_of(report, "report")
    for name in ("workers", "adapt"):
        if given[name] and has_documents:
            raise click.UsageError(f"--{name} is for mentions, one a line; documents are linked one after the other.")


def _adapted(linker: EntityLinker, mentions: Iterable[str], options: LinkOptions) -> tuple[list[str], LinkOptions]:
    """All mentions, and the options with what they say of themselves, which is printed to stderr."""
    given = list(mentions)
    adaptation = linker.adapt(given, options)
    echo(str(adaptation), err=True)
    return given, options.updated(nil_bias=adaptation.nil_bias)


def _kind_of(name: str) -> str:
    return "jsonl" if name.lower().endswith((".jsonl", ".ndjson")) else "lines"


def _in_documents(
    linker: EntityLinker, file: BinaryIO, options: LinkOptions
) -> Iterator[tuple[dict[str, object], Link]]:
    """The links of all mentions of the documents of a file, with the id or line of the document and the place."""
    from pearl_qdrant.linking.documents.mentions import read_document_lines

    for passage in read_document_lines(file, name_of(file)):
        document: dict[str, object] = {"line": passage.line} if passage.id is None else {"id": passage.id}
        for found in linker.link_document(passage.text, passage.ents, options):
            yield {**document, "start": found.start, "end": found.end}, found.link


_WIDEST = 80  # characters of a name in the table; --json prints the whole name
_LONGEST_MENTION = 1000  # characters of a mention in text output; --json prints all


def _read_mentions(file: BinaryIO) -> Iterator[str]:
    """The mentions of a file, one for each line; an empty line is an empty mention, so that answers match lines. Raises
    FormatError at a line that is not UTF-8 or too long; the batches of mentions before it are printed by then.
    """
    from pearl_qdrant.linking.mentions import read_text_lines

    return (line for _, line in read_text_lines(file, name_of(file)))


def _as_record(found: Link, explain: bool) -> dict[str, object]:
    """The JSON record of a link; warnings and what was learned only if there are any, features only for --explain."""
    record = asdict(found)
    for name in ("warnings", "learned"):
        if not record[name]:
            del record[name]
    if not explain:
        for candidate in record["candidates"]:
            del candidate["features"], candidate["document"]
    return record


def link_lines(found: Link, *, with_base: bool = False) -> list[str]:
    """Lines of a link and a table of its candidates; with the bases if there may be several.

    An empty mention has an empty line.
    """
    if not found.mention.strip():
        return [""]
    mention = found.mention if len(found.mention) <= _LONGEST_MENTION else found.mention[:_LONGEST_MENTION] + "…"
    if found.entity_id is None:
        reason = found.nil_reason.value.replace("_", " ") if found.nil_reason else ""
        head = f"{mention}  ->  NIL ({reason})"
    else:
        entity = f"{found.kb}: {found.entity_id}" if with_base else found.entity_id
        head = f"{mention}  ->  {found.canonical_name}  [{entity}]  {found.probability:.2f}"
    columns = ("prob", "dense", "lexical", *(["base"] if with_base else []), "id", "name", "types")
    rows = [_row(c, with_base=with_base) for c in found.candidates]
    return [head, *(f"    {line}" for line in table_lines(columns, rows))]


def _row(candidate: Candidate, *, with_base: bool) -> tuple[str, ...]:
    """The cells of a candidate in the table."""
    shown = candidate.canonical_name
    if candidate.name != candidate.canonical_name:
        shown += f' ("{candidate.name}")'
    kinds = "|".join(dict.fromkeys([*candidate.types, *candidate.kb_types])) or f"{candidate.phrase_type or ''}?"
    dense = "-" if candidate.dense_score is None else f"{candidate.dense_score:.3f}"
    lexical = "-" if candidate.lexical_score is None else f"{candidate.lexical_score:.3f}"
    shown = shown if len(shown) <= _WIDEST else shown[: _WIDEST - 1] + "…"
    probability = f"{candidate.probability or 0:.2f}"
    base = [candidate.kb] if with_base else []
    return (probability, dense, lexical, *base, candidate.entity_id, shown, kinds + " tie" * candidate.tie)
