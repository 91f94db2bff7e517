"""The command `pearl-qdrant link`."""

from __future__ import annotations

import csv
import io
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click
from click.core import ParameterSource

from pearl_qdrant.cli import shared
from pearl_qdrant.cli.setting import set_option
from pearl_qdrant.cli.shared import Target, progress_bar
from pearl_qdrant.cli.terminal import ask, echo, echo_json, table_lines, visible
from pearl_qdrant.records import link_record

if TYPE_CHECKING:
    from pearl_qdrant.linking.linker import EntityLinker
    from pearl_qdrant.linking.mention_detection.blocks import Passage
    from pearl_qdrant.linking.options import AnnotateOptions, LinkOptions, PassageFormat
    from pearl_qdrant.records import Annotation, Candidate, Link


type_option: Callable[[shared.F], shared.F] = click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only entities of these types, native or coarse, ancestors included; may be repeated.",
)


@click.command()
@click.argument("mentions", nargs=-1, metavar="[MENTION]...")
@click.option(
    "--file",
    "file",
    type=shared.InputFile(),
    help="File with one mention per line; - is stdin, UTF-8. An empty line gets an empty answer.",
)
@shared.target_options(many=True)
@type_option
@click.option("--context", help="Text around the mentions; chooses between their candidates.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    show_default="those that the answer needs, at most 10; for a name of the base its entities, found without encoding",
    help="Maximum number of candidates.",
)
@shared.threshold_option("the calibrated one, or 0.5")
@set_option("LinkSettings")
@click.option(
    "--property",
    "given_properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="What else is known of the mention, by the column of the base: city=Emeryville. With --file, which is a table "
    "then, with a header: the column that has it, city=City; name=Company for the mentions, which is found where it is "
    "not given. Repeatable.",
)
@click.option(
    "--explain", is_flag=True, help="Explain each link: the rule, or what speaks for the best candidate and against it."
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --file: also write a report to this HTML file: shares, reasons of NIL, doubtful mentions, types.",
)
@shared.json_option
def link(  # long: help has its examples
    mentions: tuple[str, ...],
    file: BinaryIO | None,
    target: Target,
    report: Path | None,
    settings: dict[str, Any],
    as_json: bool,
    **given: Any,  # fields of `LinkOptions`, `explain` and `given_properties`
) -> None:
    """Link mentions to entities, or report that there is none (NIL).

    The mentions of a document are linked together: a partial name takes the entity of a longer mention, and entities
    that the base links to each other are preferred. A line of such a file:
    {"id": 7, "text": "She left NYC.", "mentions": [{"start": 9, "end": 12}]}

    \b
    pearl-qdrant link "heart attack" "NYTimes"
    pearl-qdrant link "Paris" --type PERSON --json
    pearl-qdrant link "Genf" --set languages=de
    pearl-qdrant link "NYTimes" --explain
    pearl-qdrant link --file mentions.txt --json > links.jsonl
    pearl-qdrant link --file documents.jsonl --json > links.jsonl
    pearl-qdrant link --file mentions.txt --report out.html --json > links.jsonl
    pearl-qdrant link Clinton --context "Bill Clinton met reporters in Washington."
    pearl-qdrant link "NYTimes; Heathrow" --set split=yes
    pearl-qdrant link Zogenix --property city=Emeryville
    pearl-qdrant link --file companies.csv --property name=Company --property city=City --json
    """
    workers, kind, explain = settings.pop("workers", None), settings.pop("format", None), given.pop("explain")
    properties = _read_properties(given.pop("given_properties"))
    column = properties.pop("name", None) if file is not None else None
    has_documents = file is not None and (kind or shared.name_of(file).rpartition(".")[2].lower()) in (
        "jsonl",
        "ndjson",
    )
    _check_usage(
        {
            "mentions": mentions,
            "file": file,
            "format": kind,
            "workers": workers,
            "report": report,
        },
        given["context"],
        has_documents=has_documents,
    )
    from pearl_qdrant.linking.mentions import read_text_lines
    from pearl_qdrant.linking.options import LinkOptions
    from pearl_qdrant.linking.ranking.explain import explain_link
    from pearl_qdrant.linking.tables import find_names
    from pearl_qdrant.report import LinkReport

    options = LinkOptions(**given, **settings)
    if explain:
        options = options.updated(limit=options.most_candidates)
    file = _as_utf8(file, has_lines=not (has_documents or properties or column))
    with target.open(threshold=options.threshold) as linker:
        if file is not None and has_documents:
            found_links = _in_documents(linker, file, options)
        else:
            listed: Iterable[str] = mentions
            beside: dict[str, list[str]] = {name: [value] * len(mentions) for name, value in properties.items()}
            if file is not None and (properties or column):
                columns = _read_table(file, column, properties)
                if column is None:
                    guessed = find_names(linker.state, columns)
                    echo(str(guessed), err=True)
                    column, options = guessed.name, guessed.preferring(options)
                listed, beside = columns[column], {name: columns[one] for name, one in properties.items()}
            elif file is not None:  # an empty line is an empty mention, so that answers match lines
                listed = (line for _, line in read_text_lines(file, shared.name_of(file)))
            found_links = (({}, one) for one in linker.link_batch(listed, options, workers=workers, properties=beside))
        calibration = linker.calibration.with_bias(options.nil_bias)
        counts = None if report is None else LinkReport(threshold=calibration.threshold)
        for key, found in found_links:
            if counts is not None:
                counts.add(found)
            if as_json:
                echo_json({**key, **link_record(found, is_explained=explain)})
                continue
            head, *table = link_lines(found, with_base=target.has_several)
            echo("".join(f"{visible(str(value))}:" for name, value in key.items() if name != "end") + head, *table)
            if explain and found.mention.strip():
                echo(*(f"    {line}" for line in explain_link(found, calibration, linker.model)))
        if file is not None:
            shared.report_newer_state(linker)
            _note_encoding(file)
            if counts is not None and report is not None:
                counts.write(report, title=Path(shared.name_of(file)).name)


def _check_usage(given: Mapping[str, object], context: str | None, *, has_documents: bool) -> None:
    if bool(given["mentions"]) == bool(given["file"]):
        raise click.UsageError("Give either mentions as arguments, or a file of mentions with --file.")
    for flag, name in (("--set format", "format"), ("--set workers", "workers"), ("--report", "report")):
        if given[name] and given["file"] is None:
            raise click.UsageError(f"{flag} is for --file.")
    if context is not None and has_documents:
        raise click.UsageError("--context is for mentions without a text; a document is the context of its mentions.")
    report = cast("Path | None", given["report"])
    if report is not None:
        shared.check_folder_of(report, "report")
    if given["workers"] and has_documents:
        raise click.UsageError("--set workers is for mentions, one a line; documents are linked one after the other.")


def _read_properties(given: Sequence[str]) -> dict[str, str]:
    """What `--property` gives, by the column of the base."""
    parts = [one.partition("=") for one in given]
    if wrong := [one for one, (name, sign, value) in zip(given, parts, strict=True) if not (name and sign and value)]:
        raise click.UsageError(f"--property is NAME=VALUE, such as city=Emeryville, not {wrong[0]!r}.")
    return {name: value for name, _, value in parts}


def _read_table(file: BinaryIO, column: str | None, properties: Mapping[str, str]) -> dict[str, list[str]]:
    """The columns of a table with a header, by their names."""
    from pearl_qdrant.linking.mentions import read_text_lines

    lines = [line for _, line in read_text_lines(file, shared.name_of(file))]
    head, *rows = list(csv.reader(lines, delimiter=_delimiter(lines))) or [[]]
    for name in filter(None, (column, *properties.values())):
        if name not in head:
            raise click.UsageError(f"{shared.name_of(file)} has no column {name!r}; it has: {', '.join(head)}.")
    return {name: [row[at] if at < len(row) else "" for row in rows] for at, name in enumerate(head)}


def _as_utf8(file: BinaryIO | None, *, has_lines: bool) -> BinaryIO | None:
    """A file by its path as UTF-8, whatever its encoding; a table that is linked line by line is noted."""
    if file is None or shared.name_of(file) == "-":
        return file
    decoded = io.BufferedReader(shared.Utf8File(file), _HEAD_BYTES)
    if has_lines and (head := _table_head(shared.name_of(file), decoded.peek(_HEAD_BYTES))):
        one = f"its lines are linked as one mention each. --property name={head[0]} links a column"
        echo(f"{shared.name_of(file)} looks like a table ({', '.join(head)}), and {one}.", err=True)
    return decoded


def _note_encoding(file: BinaryIO) -> None:
    raw = getattr(file, "raw", None)
    if isinstance(raw, shared.Utf8File) and raw.found is not None:
        echo(f"{raw.name} is not UTF-8; it was read as {raw.found}.", err=True)


_HEAD_BYTES = 1 << 16
_HEAD_LINES = 6  # of a table that are looked at


def _table_head(path: str, start: bytes) -> list[str]:
    """The columns of a file that is evidently a table, by its ending and its first lines; none of others."""
    if Path(path).suffix.lower() not in (".csv", ".tsv"):
        return []
    lines = start.replace(b"\0", b"").decode("utf-8", "replace").splitlines()[:_HEAD_LINES]
    sign = _delimiter(lines)
    counts = [line.count(sign) for line in lines if line]  # an open quotation mark must not hide lines
    if len(counts) < 2 or not counts[0] or 2 * counts.count(counts[0]) <= len(counts):
        return []
    return next(csv.reader(lines, delimiter=sign))


def _delimiter(lines: Sequence[str]) -> str:
    return max("\t;,", key=lines[0].count) if lines else ","


def key_of(passage: Passage) -> dict[str, object]:
    """What names a passage in output: its id, or else its line."""
    return {"line": passage.line} if passage.id is None else {"id": passage.id}


def _in_documents(
    linker: EntityLinker, file: BinaryIO, options: LinkOptions
) -> Iterator[tuple[dict[str, object], Link]]:
    """The links of all mentions of the documents of a file, with the id or line of the document and the place."""
    from pearl_qdrant.linking.documents.linking import read_document_lines

    for passage in read_document_lines(file, shared.name_of(file)):
        document = key_of(passage)
        for found in linker.link_document(passage.text, passage.ents, options):
            yield {**document, "start": found.start, "end": found.end}, found.link


_WIDEST = 80  # characters of a name in the table; --json prints the whole name
_LONGEST_MENTION = 1000  # characters of a mention in text output; --json prints all


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
    if found.parts:
        return [head, *(f"    {line}" for part in found.parts for line in link_lines(part, with_base=with_base))]
    rows = [_row(c, with_base=with_base) for c in found.candidates]
    return [head, *(f"    {line}" for line in table_lines(columns, rows))]


def _row(candidate: Candidate, *, with_base: bool) -> tuple[str, ...]:
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


@click.command()
@click.argument("text", required=False)
@click.option("--file", "file", type=shared.InputFile(), help="File with passages, UTF-8; - is stdin.")
@shared.target_options(many=True)
@type_option
@shared.threshold_option("0.5")
@set_option("AnnotateSettings")
@shared.json_option
def annotate(
    text: str | None,
    file: BinaryIO | None,
    target: Target,
    settings: dict[str, Any],
    as_json: bool,
    **given: Any,  # fields of `AnnotateOptions`
) -> None:
    """Find mentions in running text, and link them.

    Offsets count from 0. An abbreviation that the text defines, as in "tumor necrosis factor (TNF)", is
    looked up by its long form. Each mention says whether the text affirms it, or negates it ("denies fever"), holds it
    possible, or speaks of the past or of another person, and by which words.

    With --file, each mention is printed with the id of its passage, or else with the number of its line. Mentions of
    the first passages are printed while the others are read. Where the objects of JSON Lines have "spans", with start,
    end and maybe label, these are linked, and none are found.

    \b
    pearl-qdrant annotate "She read the NYTimes at Heathrow."
    pearl-qdrant annotate --file sentences.txt --type disease --json > mentions.jsonl
    pearl-qdrant annotate --file reports.jsonl --json > mentions.jsonl
    pearl-qdrant annotate --file book.txt --set format=whole --set workers=4
    pearl-qdrant annotate --file page.html --set format=whole --set markup=html --json
    pearl-qdrant annotate "She denies fever but reports asthma." --set assertions=affirmed
    """
    if (text is None) == (file is None):
        raise click.UsageError("Give either a text as an argument, or a file with --file.")
    if file is None and (of_file := settings.keys() & {"format", "workers"}):
        raise click.UsageError(f"--set {min(of_file)} is for --file.")
    workers, kind = settings.pop("workers", None), settings.pop("format", None)
    from pearl_qdrant.linking.options import AnnotateOptions

    options = AnnotateOptions(**given, **settings)
    with target.open() as linker:
        for key, found in _annotated(linker, text, file, kind, options, workers):
            if as_json:
                for one in found:
                    echo_json(_annotation_record(one, key))
            else:
                for line in _annotation_lines(found, key, with_base=target.has_several):
                    echo(line)
        if file is not None:
            shared.report_newer_state(linker)


def _annotated(
    linker: EntityLinker,
    text: str | None,
    file: BinaryIO | None,
    kind: PassageFormat | None,
    options: AnnotateOptions,
    workers: int | None,
) -> Iterator[tuple[dict[str, object], list[Annotation]]]:
    """The annotations of each passage, with what names it: nothing, its line, or its id."""
    from pearl_qdrant.linking.mention_detection.blocks import read_passages

    if file is None:
        yield {}, linker.annotate(text or "", options)
        return
    # `tee` keeps the few passages that were read and are not annotated yet.
    keyed, passages = tee(read_passages(file, shared.name_of(file), kind, offsets=options.offsets))
    with progress_bar("annotate", " bytes") as on_progress:
        size = _size_of(file)
        report = None if sys.stdout.isatty() else lambda done: on_progress(done, max(done, size))
        batches = linker.annotate_batch(passages, options, workers=workers, on_progress=report)
        for passage, found in zip(keyed, batches, strict=True):
            yield {} if kind == "whole" else key_of(passage), found


def _size_of(file: BinaryIO) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, AttributeError):
        return 0


def _annotation_record(found: Annotation, key: dict[str, object]) -> dict[str, object]:
    """The JSON record of an annotation, starting with what names its passage."""
    link = found.link
    chosen = next((c for c in link.candidates if (c.kb, c.entity_id) == (link.kb, link.entity_id)), None)
    record = {**key, **{name: getattr(found, name) for name in ("start", "end", "text")}}
    record |= {name: getattr(link, name) for name in ("kb", "entity_id", "canonical_name", "probability")}
    record["types"] = list(dict.fromkeys([*chosen.types, *chosen.kb_types])) if chosen else []
    said = ("long_form", "assertion", "trigger", "sentence", "section")
    record |= {name: getattr(found, name) for name in said}
    return record | ({"warnings": list(link.warnings)} if link.warnings else {})


def _annotation_lines(annotations: list[Annotation], key: dict[str, object], *, with_base: bool) -> Iterator[str]:
    """One line per mention: offsets, text, entity and what is said of it; with the bases if there may be several."""
    passage = "".join(f"{visible(str(value))}:" for value in key.values())
    for found in annotations:
        link = found.link
        shown = " ".join(found.text.split())
        if found.long_form is not None:
            shown += f" ({found.long_form})"
        said = "" if found.assertion == "affirmed" else f"  {found.assertion} ({visible(found.trigger or '')})"
        if link.entity_id is None:
            reason = link.nil_reason.value.replace("_", " ") if link.nil_reason else ""
            yield f"{passage}{found.start}-{found.end}  {shown}  ->  NIL ({reason}){said}"
        else:
            entity = f"{link.kb}: {link.entity_id}" if with_base else link.entity_id
            shown += f"  ->  {link.canonical_name}  [{entity}]  {link.probability or 0:.2f}"
            yield f"{passage}{found.start}-{found.end}  {shown}{said}"


SHOWN = (
    ("A name of the base, and one that it lacks: no entity is certain enough, so the answer is NIL.",
     "link NYTimes 'hepatitis Z' --limit 1"),
    ("Two entities have this name, and nothing separates them: NIL, with both. A type decides.",
     "link Giants --limit 2"),
    ("A slip, and why it is linked.",
     "link 'heart atack' --limit 1 --explain"),
    ("Mentions in running text.",
     "annotate 'She read the NYTimes after her heart attack (MI).'"),
)  # fmt: skip
"""What each command shows, and the command."""


@click.command()
@shared.store_option
@click.pass_context
def demo(context: click.Context, store: str) -> None:
    """Load a sample base of well-known entities, and link a few mentions to it.

    At a terminal, link mentions of your own then; an empty line ends. The collection stays, for other commands.

    \b
    pearl-qdrant demo
    pearl-qdrant demo --store demo-store
    """
    from ingest.load_base import load_sample

    echo("Loading the sample base, unless it is there: each name is encoded by pearl-mini and stored.", err=True)
    found = load_sample("demo", store=store)
    echo(f"Collection 'demo' in {store}: {found.entities:,} entities with {found.names:,} names.")
    chosen = ["--collection", "demo"]
    if context.get_parameter_source("store") is ParameterSource.COMMANDLINE:
        chosen += ["--store", store]
    for says, line in SHOWN:
        command, *words = shlex.split(line)
        echo("", f"# {says}", f"$ pearl-qdrant {line} {shlex.join(chosen)}")
        given = [*words, "--collection", "demo", "--store", store]
        (link if command == "link" else annotate).main(given, standalone_mode=False)
    if sys.stdin.isatty() and sys.stdout.isatty():
        echo("", "Link mentions of your own; an empty line ends.")
        with Target(store, ("demo",)).open() as linker:
            _answer(linker)


def _answer(linker: EntityLinker) -> None:
    """Ask for mentions, and link and explain each, until an empty line or the end of the input."""
    from pearl_qdrant.linking.ranking.explain import explain_link

    while True:
        try:
            mention = ask("mention")
        except click.Abort:  # Ctrl-D
            echo("", err=True)
            return
        if not mention.strip():
            return
        found = linker.link(mention, limit=3)
        lines = explain_link(found, linker.calibration, linker.model)
        echo(*link_lines(found), *(f"    {line}" for line in lines))
