"""`pearl-qdrant ingest`: its options, those of the formats from their registry, and what it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ingest.load.request import LoadEvents, LoadRequest, reading_counts
from pearl_qdrant.cli import shared
from pearl_qdrant.cli.setting import flag_of, set_option
from pearl_qdrant.cli.terminal import confirm, echo, echo_result
from pearl_qdrant.progress import counting_bar, skip_stored
from pearl_qdrant.settings import DEFAULT_WAIT_S

if TYPE_CHECKING:
    from ingest.base.format import ReadOptions
    from ingest.base.reader import ScanResult
    from ingest.load.request import LoadResult
    from pearl_qdrant.encoder.protocol import Encoder

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = {"id_column": "id", "name_column": "name", "type_column": "types", "alias_column": "aliases",
            "description_column": "description", "popularity_column": "popularity"}  # fmt: skip


def _formats() -> Iterator[tuple[str, str]]:
    """The formats and known bases, with the files that each reads."""
    from ingest.formats import FORMATS, known_bases

    return ((one.name, f"{one.title}: {one.what}") for one in (*FORMATS, *known_bases()))


def _many(flag: str, name: str, help: str) -> Callable[[F], F]:  # noqa: A002 - click's name
    return click.option(flag, name, multiple=True, help=f"{help}; may be repeated.")


def read_options(given: Mapping[str, Any]) -> ReadOptions:
    """The options of reading from the parameters and settings of the command."""
    from ingest.base.format import ReadOptions, TableColumns, read_bases

    columns = TableColumns(**{of: given[name] for name, of in _COLUMNS.items() if name in given})
    values = {name: given[name] for name in ReadOptions.model_fields if name in given}
    bases = tuple(base for path in given.get("layouts", ()) for base in read_bases(path))
    return ReadOptions(**values, bases=bases, columns=None if columns == TableColumns() else columns)


_STEP = 0.1  # of the vectors, between two lines
_SMALL = 10_000  # vectors that are searched exactly in any case, or indexed in a moment


class LoadOutput(LoadEvents):
    """Reports on stderr what a load does: skipped rows, the model, a progress bar, the graph.

    Attributes:
        stored: Entities that are stored and stay stored if the load fails.
    """

    def __init__(self, doing: str, input_name: str) -> None:
        self.stored = 0
        self._doing = doing
        self._input = input_name
        self._bar: Any = None
        self._graph_reports: list[int] = []

    def close(self) -> None:
        """End the progress bar, so that the next message starts on a new line."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def scanned(self, result: ScanResult) -> None:
        report = result.report
        for note in report.notes:
            echo(note, err=True)
        for warning in report.warnings:
            flags = " and ".join(flag_of(ingest, one) or one for one in warning.options)
            echo(f"warning: {warning.message}{f' with {flags}' if flags else ''}", err=True)
        for skip in report.examples:
            echo(f"skipped {skip}", err=True)
        if (more := report.n_skipped - len(report.examples)) > 0:
            echo(f"skipped {more} more rows", err=True)
        if report.conflicting_names:
            echo(
                f"warning: {report.conflicting_names:,} rows have the id of an earlier row and another name, which "
                "becomes one more name of that entity. This is right for synonyms, and wrong if an id was used twice:",
                *(f"  {one}" for one in report.conflicts),
                err=True,
            )

    def model_loaded(self, encoder: Encoder) -> None:
        info = encoder.info
        head = "with phrase types" if info.has_head else "without a type head: points get no predicted types"
        echo(
            f"model {info.name}, {info.dim} dim, on {info.device} ({info.runtime}, {info.precision}), {head}", err=True
        )

    def unchanged(self, edited: bool) -> None:
        echo(f"{self._input} is unchanged since it was loaded; nothing to do", err=True)
        if edited:
            echo(
                "Entities were added or deleted by hand since then, and stay so. --update makes the collection equal "
                "to the input again.",
                err=True,
            )

    def newer_release(self) -> None:
        self._doing = "compare"
        echo(
            f"{self._input} is a newer release of what the collection holds: only what has changed is written", err=True
        )

    def resumed(self, entities: int) -> None:
        echo(f"resuming: {entities:,} entities are stored", err=True)

    def started(self, names: int) -> None:
        self._bar = counting_bar(self._doing, " names", names)

    def names_stored(self, names: int) -> None:
        if self._bar is not None:
            skip_stored(self._bar, names)

    def names_done(self, names: int) -> None:
        if self._bar is not None:
            self._bar.update(names)

    def entities_stored(self, entities: int) -> None:
        self.stored = entities

    def graph_built(self, done: int, total: int) -> None:
        """Report that a graph is being built, and its progress after each tenth."""
        reports = self._graph_reports
        if done >= total or total <= _SMALL or (reports and done < reports[-1] + total * _STEP):
            return
        so_far = f", {done:,} done" if reports else " (search is exact until it is ready)"
        echo(f"building the graph of {total:,} vectors{so_far}", err=True)
        reports.append(done)


def report_result(result: LoadResult) -> None:
    """Explain what the counts of a load do not show."""
    if result.rewritten:
        echo(f"names that had disappeared from the collection and were written again: {result.rewritten:,}", err=True)
    if result.unfinished:
        echo(
            f"other loads are not finished (still running, or interrupted): {', '.join(result.unfinished)}. The last "
            f"one builds the graph; search is exact until then. To build it now: pearl-qdrant collections finalize "
            f"{result.collection}",
            err=True,
        )
    elif result.kept:
        why = "correct the bad rows first" if result.report.n_skipped else "delete them with --update --yes"
        echo(f"{result.kept:,} names that the new release lacks were kept: {why}", err=True)
    elif result.other_names and not result.is_update:
        echo(
            f"The collection holds {result.other_names:,} names that this input lacks; an entity whose names "
            f"or types changed has old and new ones side by side. If the input is a newer release of the same base, "
            f"--update removes the old ones.",
            err=True,
        )


def _in_words(of: dict[str, Any]) -> Iterator[str]:
    """What happened, one line a subject; the numbers of a line add up."""
    is_dry = of.get("dry_run", False)
    state = "counted, nothing is stored" if is_dry else "stored before" if of["is_unchanged"] else "all stored"
    yield f"{of['collection']}: {of['entities']:,} entities with {of['names']:,} names, {state}"
    skipped, left_out = (_reasons(of[key]) for key in ("skipped", "left_out"))
    yield f"  rows: {of['rows']:,} read; bad and skipped: {skipped}; left out by the options: {left_out}"
    if of["merged_rows"]:
        merged, other = of["merged_rows"], of["conflicting_names"]
        yield f"  ids: {merged:,} rows joined to an earlier row with their id, {other:,} of them with another name"
    if is_dry:
        return
    if of["is_update"]:
        parts = " + ".join(f"{of[key]:,} {key}" for key in ("added", "changed", "unchanged"))
        gone = f"{of['removed']:,} removed, {of['kept']:,} kept"
        yield f"  changes: {of['names']:,} names = {parts}; no longer in the input: {gone}"
    yield f"  collection: {of['points']:,} names = {of['names']:,} of this input + {of['other_names']:,} others"
    without = f"{of['without_vector']:,} without (no character that the model knows), found by spelling only"
    yield f"  vectors: {of['points']:,} names = {of['with_vector']:,} with one + {without}"
    load, graph = f"{of['load_seconds']:,.1f} to read, encode and store", f"{of['graph_seconds']:,.1f} for the graph"
    yield f"  seconds: {of['load_seconds'] + of['graph_seconds']:,.1f} = {load} + {graph}"
    yield f"  model: {of['model']} on {of['device']}"


def _reasons(counts: dict[str, int]) -> str:
    """Counts by reason: their sum, and each."""
    parts = ", ".join(f"{reason.replace('_', ' ')} {n:,}" for reason, n in sorted(counts.items()))
    return f"{sum(counts.values()):,}" + (f" ({parts})" if parts else "")


_INCOMPLETE = 3  # exit status of a load that lacks bad rows
_MANY = 0.1  # share of a collection that an update deletes without asking

_HINTS = {
    "collection": "Give one with --collection.",
    "quantization": "Start over with --restart, or choose another --collection.",
    "placement": "Omit the shards and replicas, start over with --restart, or choose another --collection.",
}


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@shared.named_option("--format", "kind", default="auto", show_default="auto: by the content", metavar="FORMAT",
                     names=_formats, help="Format of the base, or its name; `--format help` lists them.")  # fmt: skip
@click.option("--collection", metavar="NAME", help="Default: the first file's name without its endings.")
@shared.store_option
@shared.shipped_model_option("Shipped name, folder, or hub id as OWNER/NAME[@REVISION].")
@click.option(
    "--restart",
    is_flag=True,
    help="Delete an existing collection first, its calibration included, and start over. What it learned stays.",
)
@click.option(
    "--update/--no-update",
    "is_update",
    default=None,
    help="Newer release of what is stored: write only what has changed, or add its names beside. [default: asks]",
)
@click.option("--dry-run", is_flag=True, help="Read and count only; needs neither model nor store.")
@_many("--language", "languages", "UMLS, Wikidata, RDF: languages of names, the preferred one first")
@click.option("--id-column", help="Tables: name, number or path of the column of ids.")
@click.option("--name-column", help="Tables: name, number or path of the column of names.")
@_many("--alias-column", "alias_column", "Tables: columns of aliases")
@_many("--type-column", "type_column", "Tables: columns of types")
@shared.yes_option()
@set_option("IngestSettings")
@shared.json_option
def ingest(  # long: help has its examples
    paths: tuple[str, ...],
    collection: str | None,
    is_update: bool | None,
    dry_run: bool,
    yes: bool,
    settings: dict[str, Any],
    as_json: bool,
    **given: Any,  # the options of `load_base`, and those of the formats
) -> None:
    """Read a base of names, encode every name, and store it; `-` reads standard input.

    An interrupted ingest resumes when the same command is given again.

    \b
    pearl-qdrant ingest umls.tsv
    pearl-qdrant ingest names.csv --id-column QID --name-column Label --type-column Kind
    pearl-qdrant ingest names.parquet products.parquet --collection names
    pearl-qdrant ingest 2024AB/META --collection umls --set sabs=SNOMEDCT_US --set semantic_types=DISO
    pearl-qdrant ingest latest-all.json.gz --collection wikidata --language fi --language en
    zcat base.tsv.gz | pearl-qdrant ingest - --collection base
    pearl-qdrant ingest umls.tsv --store http://localhost:6333 --set ray=auto
    """
    from ingest.load_base import collection_name, load_base, scan_base
    from pearl_qdrant.store.protocol import Placement
    from pearl_qdrant.store.schema import check_name

    if is_update and (given["restart"] or "limit" in settings):
        raise click.UsageError("--update compares with the whole of the new release: omit --set limit and --restart.")
    given |= {"type_map": None, "wait_s": DEFAULT_WAIT_S, "device": shared.device_of_environment(), **settings}
    chosen = {one.name: given[one.name] for one in fields(LoadRequest) if one.name in given}
    chosen["options"] = read_options(given)
    output = LoadOutput("compare" if is_update else "ingest", " ".join(paths))
    with closing(output), _explained_errors(output):
        name = collection or collection_name(paths[0])
        if dry_run:
            check_name(name)
            reading = {one: chosen[one] for one in ("kind", "options", "type_map", "max_errors") if one in chosen}
            scanned = scan_base(paths, **reading, events=output)
            counts = {"collection": name, **reading_counts(scanned.report), "distinct_names": scanned.distinct_names}
            counts |= {"points": 0, "dry_run": True}
        else:
            if given["restart"] and not yes:
                _ask_before_deleting(given["store"], name, given["wait_s"])
            result = load_base(
                paths,
                name,
                **chosen,
                placement=Placement(given.get("shards"), given.get("replicas")),
                update=is_update,
                may_update=partial(_may_update, name, yes),
                may_remove=partial(_may_remove, yes),
                events=output,
            )
            output.close()
            report_result(result)
            counts = result.to_json()
    echo_result(counts, *_in_words(counts), as_json=as_json)
    n_skipped = sum(counts["skipped"].values())
    if n_skipped and not dry_run and "max_errors" not in settings:
        echo(
            f"the exit status is {_INCOMPLETE}, since bad rows were skipped: {n_skipped:,}. Correct them, or accept "
            f"them with --set max_errors={n_skipped}",
            err=True,
        )
        click.get_current_context().exit(_INCOMPLETE)


def _may_update(name: str, yes: bool) -> bool:
    """Ask before a collection is updated to a newer release, without `--update`."""
    if yes:
        return True
    question = f"Most of these names are in collection '{name}' already: update it to this newer release?"
    try:
        if confirm(question, abort=False):
            return True
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise
    raise click.UsageError(
        f"Nothing was done: most of these names are in collection '{name}' already, so this looks like a newer "
        f"release of what it holds. Add --update to update it, --no-update to add the names beside the old ones, "
        f"or choose another --collection."
    )


@contextmanager
def _explained_errors(output: LoadOutput) -> Iterator[None]:
    """Name the flag of an option that does not fit; report what is stored if the store fails."""
    from ingest.base.format import ReadOptions
    from pearl_qdrant.errors import OptionError, StoreError

    try:
        yield
    except OptionError as error:
        option = error.option
        fact = str(error).replace(f"'{option}'", flag_of(ingest, option) or option, 1)
        omit = "Omit it, or name the format with --format." if option in ReadOptions.model_fields else ""
        raise click.UsageError(f"{fact} {_HINTS.get(option, omit)}".rstrip()) from error
    except StoreError:
        output.close()
        if output.stored:
            echo(f"{output.stored:,} entities are stored and kept: the same command resumes there.", err=True)
        raise


def _may_remove(yes: bool, removed: int, total: int) -> bool:
    """Ask before an update deletes more than a tenth of a collection."""
    if yes or removed <= _MANY * total:
        return True
    try:
        return confirm(f"The new release lacks {removed:,} of {total:,} names: delete them?", abort=False)
    except click.Abort:  # nobody to ask
        return False


def _ask_before_deleting(location: str, name: str, wait_s: float) -> None:
    from pearl_qdrant.store.open import use_store

    with use_store(location, wait_s=wait_s) as store:
        exists = name in store.collections()
    if exists:
        confirm(f"Delete collection '{name}' in {store.location}, its calibration included, and start over?")
