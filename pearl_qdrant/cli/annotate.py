"""The command `pearl-qdrant annotate`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import tee
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from pearl_qdrant.cli.common.options import (
    InputFile,
    Target,
    json_option,
    name_of,
    on_tie_option,
    progress_bar,
    report_newer_state,
    target_options,
    type_option,
    workers_option,
)
from pearl_qdrant.cli.common.terminal import echo, echo_json, visible
from pearl_qdrant.settings import DEFAULT_PASSAGE_THRESHOLD

if TYPE_CHECKING:
    from pearl_qdrant.linking.linker import EntityLinker
    from pearl_qdrant.linking.mention_detection.passages import Passage, PassageFormat
    from pearl_qdrant.linking.options import AnnotateOptions
    from pearl_qdrant.records import Annotation


@click.command()
@click.argument("text", required=False)
@click.option("--file", "file", type=InputFile(), help="File with passages, UTF-8; - is stdin.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["lines", "jsonl", "whole"]),
    show_default="jsonl for a file that ends in .jsonl or .ndjson, else lines",
    help="Passages of the file: one a line (lines); JSON objects with text and maybe id, one a line (jsonl); the whole "
    "file is one passage (whole).",
)
@target_options(many=True)
@type_option
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    default=DEFAULT_PASSAGE_THRESHOLD,
    show_default=True,
    help="Minimum probability of a mention.",
)
@on_tie_option
@click.option("--context", metavar="TEXT", help="What the text is about; chooses between entities with the same name.")
@click.option("--nil", "include_nil", is_flag=True, help="Also print spans that look like mentions but have no entity.")
@click.option("--nested", is_flag=True, help="Also print mentions inside other mentions.")
@click.option(
    "--document",
    is_flag=True,
    help="Link the mentions of a passage together, as those of a document: partial names, entities linked in the base.",
)
@click.option(
    "--common-words",
    type=click.Choice(["skip", "capitalised", "all"]),
    default="capitalised",
    show_default=True,
    help="Frequent words that are also names, such as Reading: never mentions if they stand alone; mentions where they "
    "are written as names; or always, whatever their case.",
)
@click.option(
    "--assertion",
    "assertions",
    multiple=True,
    type=click.Choice(["affirmed", "negated", "possible", "historical", "other_person"]),
    help="Only mentions of which the text says this; may be repeated.",
)
@click.option(
    "--triggers", metavar="FILE", help="Table of words that negate a mention and the like, in place of the English one."
)
@click.option("--markup", type=click.Choice(["html", "markdown"]), help="How the text is written: tags are no text.")
@click.option(
    "--offsets",
    type=click.Choice(["characters", "utf-16"]),
    default="characters",
    show_default=True,
    help="What offsets count: characters, or UTF-16 code units, as in JavaScript.",
)
@click.option(
    "--label-type",
    "label_types",
    multiple=True,
    metavar="LABEL=TYPE",
    help="For spans of a file: what a label of a recogniser means, such as Drug=drug; may be repeated.",
)
@workers_option
@json_option
def annotate(
    text: str | None,
    file: BinaryIO | None,
    kind: PassageFormat | None,
    target: Target,
    workers: int | None,
    as_json: bool,
    **given: Any,  # the fields of `AnnotateOptions`, of which two are made of what is typed
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
    pearl-qdrant annotate --file book.txt --format whole --workers 4
    pearl-qdrant annotate --file page.html --format whole --markup html --offsets utf-16 --json
    pearl-qdrant annotate "She denies fever but reports asthma." --assertion affirmed
    """
    if (text is None) == (file is None):
        raise click.UsageError("Give either a text as an argument, or a file with --file.")
    if kind is not None and file is None:
        raise click.UsageError("--format is for --file.")
    if workers is not None and file is None:
        raise click.UsageError("--workers is for --file.")
    from pearl_qdrant.linking.mention_detection.assertions import read_triggers
    from pearl_qdrant.linking.options import AnnotateOptions

    triggers = given.pop("triggers")
    given["label_types"] = _label_types(given["label_types"])
    options = AnnotateOptions(**given, triggers=None if triggers is None else read_triggers(triggers))
    with target.open() as linker:
        for key, found in _annotated(linker, text, file, kind, options, workers):
            if as_json:
                for one in found:
                    echo_json(_as_record(one, key))
            else:
                for line in _as_text(found, key, with_base=target.has_several):
                    echo(line)
        if file is not None:
            report_newer_state(linker)


def _annotated(
    linker: EntityLinker,
    text: str | None,
    file: BinaryIO | None,
    kind: PassageFormat | None,
    options: AnnotateOptions,
    workers: int | None,
) -> Iterator[tuple[dict[str, object], list[Annotation]]]:
    """The annotations of each passage, with what names it: nothing, its line, or its id."""
    from pearl_qdrant.linking.mention_detection.passages import read_passages

    if file is None:
        yield {}, linker.annotate(text or "", options)
        return
    # `tee` keeps the few passages that were read and are not annotated yet.
    keyed, passages = tee(read_passages(file, name_of(file), kind, offsets=options.offsets))
    with progress_bar("annotate", " bytes") as on_progress:
        size = _size_of(file)
        report = None if sys.stdout.isatty() else lambda done: on_progress(done, max(done, size))
        batches = linker.annotate_batch(passages, options, workers=workers, on_progress=report)
        for passage, found in zip(keyed, batches, strict=True):
            yield {} if kind == "whole" else _name_of_passage(passage), found


def _size_of(file: BinaryIO) -> int:
    """The bytes of a file; 0 of a stream."""
    try:
        return os.fstat(file.fileno()).st_size
    except (OSError, AttributeError):
        return 0


def _label_types(given: Sequence[str]) -> dict[str, list[str]]:
    """The types of each label, of LABEL=TYPE."""
    table: dict[str, list[str]] = {}
    for one in given:
        label, sign, name = one.rpartition("=")
        if not sign:
            raise click.BadParameter(f"{one!r} is not LABEL=TYPE.", param_hint="--label-type")
        table.setdefault(label, []).append(name)
    return table


def _name_of_passage(passage: Passage) -> dict[str, object]:
    return {"line": passage.line} if passage.id is None else {"id": passage.id}


def _as_record(found: Annotation, key: dict[str, object]) -> dict[str, object]:
    """The JSON record of an annotation, starting with what names its passage."""
    link = found.link
    chosen = next((c for c in link.candidates if (c.kb, c.entity_id) == (link.kb, link.entity_id)), None)
    return {
        **key,
        "start": found.start,
        "end": found.end,
        "text": found.text,
        "kb": link.kb,
        "entity_id": link.entity_id,
        "canonical_name": link.canonical_name,
        "probability": link.probability,
        "types": list(dict.fromkeys([*chosen.types, *chosen.kb_types])) if chosen else [],
        "long_form": found.long_form,
        "assertion": found.assertion,
        "trigger": found.trigger,
        "sentence": found.sentence,
        "section": found.section,
        **({"warnings": list(link.warnings)} if link.warnings else {}),
    }


def _as_text(annotations: list[Annotation], key: dict[str, object], *, with_base: bool) -> Iterator[str]:
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
