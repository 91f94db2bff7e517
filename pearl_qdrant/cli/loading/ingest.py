"""`pearl-qdrant ingest`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import (
    device_option,
    json_option,
    open_store_at,
    store_option,
    wait_option,
    yes_option,
)
from pearl_qdrant.cli.common.terminal import confirm, echo
from pearl_qdrant.cli.loading.options import FLAGS, format_option, print_formats, read_options, reading_options
from pearl_qdrant.cli.loading.output import LoadOutput, dry_run_counts, print_counts, report_result
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS, DEFAULT_MODEL, DEFAULT_QUANTIZATION

if TYPE_CHECKING:
    from collections.abc import Mapping

_MANY = 0.1  # share of a collection that an update deletes without asking

_HINTS = {
    "collection": "Give one with --collection.",
    "kb": "Choose another --collection.",
    "partitions": "Start over with --restart, choose another --collection, or omit --ray and --partitions.",
    "embed_descriptions": "Start over with --restart, or choose another --collection.",
    "quantization": "Start over with --restart, or choose another --collection.",
    "placement": (
        "Omit --shards, --replicas and --write-consistency, start over with --restart, or choose another --collection."
    ),
    **dict.fromkeys(FLAGS, "Omit it, or name the format with --format."),
}


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@format_option
@click.option("--formats", is_flag=True, is_eager=True, expose_value=False, callback=print_formats, help="List them.")
@click.option("--collection", metavar="NAME", help="Default: the first file's name without its endings.")
@click.option("--kb", metavar="NAME", help="Short name of the base, part of every point's id. Default: the collection.")
@click.option("--kb-version", metavar="V", help="Release of the base, for the record.")
@store_option
@click.option(
    "--model",
    envvar="PEARL_QDRANT_MODEL",
    show_envvar=True,
    default=DEFAULT_MODEL,
    show_default=True,
    help="Shipped name, folder, or hub id as OWNER/NAME[@REVISION].",
)
@click.option("--pooling", type=click.Choice(["mean", "cls"]), help="For a plain encoder: instead of its own.")
@click.option("--prefix", help="For a plain encoder: text put before each name.")
@device_option
@click.option("--limit", type=click.IntRange(1), help="Read at most this many entities.")
@click.option("--restart", is_flag=True, help="Delete the collection first, and start over.")
@click.option(
    "--update/--no-update",
    "is_update",
    default=None,
    help="Newer release of what is stored: write only what has changed, or add its names beside. [default: asks]",
)
@click.option("--type-map", type=click.Path(dir_okay=False), help="Rows to add to the table of types.")
@click.option(
    "--quantization",
    type=click.Choice(["none", "int8", "binary", "turbo"]),
    help="How a new collection keeps vectors for finding candidates; scores come from the whole ones. "
    f"[default: {DEFAULT_QUANTIZATION}]",
)
@click.option(
    "--embed-descriptions",
    is_flag=True,
    help="Also keep a vector of each description in a new collection: it tells namesakes apart in a context.",
)
@click.option(
    "--ray",
    metavar="ADDRESS|auto",
    help="Build a new collection in parts by the workers of a Ray cluster: HOST:PORT, or auto for one on this machine.",
)
@click.option(
    "--partitions",
    type=int,
    help="Build a new collection in so many parts, each with its graph. [default: with --ray by size and workers]",
)
@click.option(
    "--work", type=click.Path(file_okay=False), help="Folder for parts until all are built. [default: the store's]"
)
@click.option("--dry-run", is_flag=True, help="Read and count only; needs neither model nor store.")
@click.option(
    "--max-errors",
    type=click.IntRange(0),
    default=DEFAULT_MAX_ERRORS,
    show_default=True,
    help="Bad rows to skip before giving up; by default also at most 1 % of the rows.",
)
@reading_options
@yes_option
@click.option(
    "--shards", type=click.IntRange(min=1), help="Parts of a new collection in a cluster. [default: one a node]"
)
@click.option("--replicas", type=click.IntRange(min=1), help="Copies of each part. [default: the server's, usually 1]")
@click.option(
    "--write-consistency",
    type=click.IntRange(min=1),
    help="Replicas that must confirm a write. [default: the server's, usually 1]",
)
@wait_option
@json_option
def ingest(
    paths: tuple[str, ...],
    collection: str | None,
    is_update: bool | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **given: Any,  # the options of `load_base`, and those of the formats
) -> None:
    """Read a base of names, encode every name, and store it; `-` reads standard input.

    An interrupted ingest resumes when the same command is given again.

    \b
    pearl-qdrant ingest umls.tsv
    pearl-qdrant ingest names.csv --id-column QID --name-column Label --type-column Kind
    pearl-qdrant ingest names.parquet products.parquet --collection names
    pearl-qdrant ingest 2024AB/META --collection umls --sab SNOMEDCT_US --semantic-type DISO
    pearl-qdrant ingest latest-all.json.gz --collection wikidata --language fi --language en
    zcat base.tsv.gz | pearl-qdrant ingest - --collection base
    pearl-qdrant ingest umls.tsv --ray auto
    """
    from ingest.load_base import collection_name, load_base, scan_base
    from pearl_qdrant.store.names import check_name
    from pearl_qdrant.store.protocol import Placement

    if is_update and (given["restart"] or given["limit"] is not None):
        raise click.UsageError("--update compares with the whole of the new release: omit --limit and --restart.")
    in_parts = given["ray"] is not None or given["partitions"] is not None
    if in_parts and is_update is not None:
        raise click.UsageError("--ray and --partitions make a new collection: omit --update and --no-update.")
    if given["work"] is not None and not in_parts:
        raise click.UsageError("--work is for --ray and --partitions.")
    reading = {**_pick(given, "kind", "type_map", "max_errors"), "options": read_options(given)}
    with LoadOutput("compare" if is_update else "ingest", " ".join(paths)) as output, _explained_errors(output):
        name = collection or collection_name(paths[0])
        if dry_run:
            check_name(name)
            counts = dry_run_counts(scan_base(paths, **reading, events=output), name)
        else:
            if given["restart"] and not yes:
                _ask_before_deleting(given["store"], name, given["wait_s"])
            result = load_base(
                paths,
                name,
                **reading,
                **_pick(given, *_LOADING),
                placement=Placement(given["shards"], given["replicas"], given["write_consistency"]),
                update=False if in_parts else is_update,
                may_update=_make_may_update(name, yes),
                may_remove=_make_may_remove(yes),
                events=output,
            )
            output.close()
            report_result(result)
            counts = result.to_json()
    print_counts(counts, as_json)


_LOADING = (
    *("store", "model", "device", "pooling", "prefix", "kb", "kb_version", "quantization", "embed_descriptions"),
    *("restart", "ray", "partitions", "work", "wait_s"),
)
"""Options that `load_base` takes under the same name, beside those of reading."""


def _pick(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names}


def _make_may_update(name: str, yes: bool) -> Callable[[], bool]:
    """A function that asks before a collection is updated to a newer release, without `--update`."""

    def may_update() -> bool:
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

    return may_update


@contextmanager
def _explained_errors(output: LoadOutput) -> Iterator[None]:
    """Name the flag of an option that does not fit; report what is stored if the store fails."""
    from pearl_qdrant.errors import OptionError, StoreError

    try:
        yield
    except OptionError as error:
        option = error.option
        fact = str(error).replace(f"'{option}'", FLAGS.get(option, option), 1)
        raise click.UsageError(f"{fact} {_HINTS.get(option, '')}".rstrip()) from error
    except StoreError:
        output.close()
        if output.stored:
            echo(f"{output.stored:,} entities are stored and kept: the same command resumes there.", err=True)
        raise


def _make_may_remove(yes: bool) -> Callable[[int, int], bool]:
    """A function that asks before an update deletes more than a tenth of a collection."""

    def may_remove(removed: int, total: int) -> bool:
        if yes or removed <= _MANY * total:
            return True
        try:
            return confirm(f"The new release lacks {removed:,} of {total:,} names: delete them?", abort=False)
        except click.Abort:  # nobody to ask
            return False

    return may_remove


def _ask_before_deleting(location: str, name: str, wait_s: float) -> None:
    """Ask whether an existing collection may be deleted."""
    store = open_store_at(location, wait_s=wait_s)
    try:
        exists = name in store.collections()
    finally:
        store.close()
    if exists:
        confirm(f"Delete collection '{name}' in {store.location}, its calibration included, and start over?")
