"""`pearl-qdrant ingest`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
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
from pearl_qdrant.cli.ingest_output import LoadOutput, dry_run_counts, print_counts, say_kept, say_result
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS, DEFAULT_MODEL, DEFAULT_QUANTIZATION

if TYPE_CHECKING:
    from pearl_qdrant.store.schema import Quantization

_MANY = 0.1  # share of a collection that an update deletes without asking
FORMATS = ("tsv", "umls", "yago", "wikidata", "obo")  # `ingest.formats.FORMATS`, which --help does not import

_FLAGS = {
    "columns": "a column option",
    "languages": "--language",
    "sabs": "--sab",
    "srl_max": "--srl-max",
    "semantic_types": "--semantic-type",
    "classes": "--class",
    "require_sitelink": "--require-sitelink",
    "scopes": "--synonym-scope",
}
_HINTS = {
    "collection": "Give one with --collection.",
    "kb": "Take another --collection.",
    "quantization": "Begin anew with --restart, or take another --collection.",
    "placement": (
        "Leave out --shards, --replicas and --write-consistency, begin with --restart, or take another --collection."
    ),
    **dict.fromkeys(_FLAGS, "Leave it out, or name the format with --format."),
}


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--format", "kind", type=click.Choice(["auto", *FORMATS]), default="auto", show_default=True)
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
@click.option(
    "--language",
    "languages",
    multiple=True,
    metavar="L",
    help="Of names; if repeated, the first is preferred. [default: en]",
)
@click.option("--limit", type=click.IntRange(1), help="Read only so many entities.")
@click.option("--restart", is_flag=True, help="Delete the collection first, and begin anew.")
@click.option(
    "--update", "is_update", is_flag=True, help="Newer release of what is stored: write only what has changed."
)
@click.option("--type-map", type=click.Path(dir_okay=False), help="Rows to add to the table of types.")
@click.option(
    "--quantization",
    type=click.Choice(["none", "int8", "binary", "turbo"]),
    help="How a new collection keeps vectors for finding candidates; scores come from the whole ones. "
    f"[default: {DEFAULT_QUANTIZATION}]",
)
@click.option("--dry-run", is_flag=True, help="Read and count only; needs neither model nor store.")
@click.option(
    "--max-errors",
    type=click.IntRange(0),
    default=DEFAULT_MAX_ERRORS,
    show_default=True,
    help="Bad rows to pass over before giving up.",
)
@click.option("--id-column", metavar="C", help="TSV: name or number of the column.")
@click.option("--name-column", metavar="C", help="TSV: likewise.")
@click.option("--type-column", "type_columns", multiple=True, metavar="C", help="TSV: likewise; may be repeated.")
@click.option("--alias-column", metavar="C", help="TSV: likewise.")
@click.option("--sab", "sabs", multiple=True, metavar="S", help="UMLS: only this source vocabulary; may be repeated.")
@click.option("--srl-max", type=click.IntRange(0), metavar="N", help="UMLS: highest restriction level of a source.")
@click.option(
    "--semantic-type", "semantic_types", multiple=True, metavar="T", help="UMLS: TUI, name, tree number or group."
)
@click.option(
    "--class", "classes", multiple=True, metavar="QID", help="Wikidata: only instances and subclasses of this."
)
@click.option("--require-sitelink", is_flag=True, help="Wikidata: only items that have a page in some project.")
@click.option(
    "--synonym-scope",
    "scopes",
    multiple=True,
    type=click.Choice(["EXACT", "NARROW", "BROAD", "RELATED"], case_sensitive=False),
    help="OBO: synonyms to take as names; may be repeated. Default: EXACT.",
)
@yes_option
@click.option(
    "--shards", type=click.IntRange(min=1), help="Parts of a new collection in a cluster. [default: one a node]"
)
@click.option(
    "--replicas", type=click.IntRange(min=1), help="Copies of each part. [default: the server's, 1 as a rule]"
)
@click.option(
    "--write-consistency",
    type=click.IntRange(min=1),
    help="Replicas that must have a write before it counts. [default: the server's, 1 as a rule]",
)
@wait_option
@json_option
def ingest(
    paths: tuple[str, ...],
    kind: str,
    collection: str | None,
    kb: str | None,
    kb_version: str | None,
    store: str,
    model: str,
    pooling: str | None,
    prefix: str | None,
    device: str,
    languages: tuple[str, ...],
    limit: int | None,
    restart: bool,
    is_update: bool,
    type_map: str | None,
    quantization: Quantization | None,
    dry_run: bool,
    max_errors: int,
    id_column: str | None,
    name_column: str | None,
    type_columns: tuple[str, ...],
    alias_column: str | None,
    sabs: tuple[str, ...],
    srl_max: int | None,
    semantic_types: tuple[str, ...],
    classes: tuple[str, ...],
    require_sitelink: bool,
    scopes: tuple[str, ...],
    yes: bool,
    shards: int | None,
    replicas: int | None,
    write_consistency: int | None,
    wait_s: float,
    as_json: bool,
) -> None:
    """Read a base of names, encode every name, and store it; `-` reads standard input.

    An ingest that was interrupted goes on where it stopped when the same command is given again.

    \b
    pearl-qdrant ingest umls.tsv
    pearl-qdrant ingest 2024AB/META --collection umls --sab SNOMEDCT_US --semantic-type DISO
    pearl-qdrant ingest latest-all.json.gz --collection wikidata --language fi --language en
    pearl-qdrant ingest names.tsv.gz --id-column QID --name-column Label --type-column Kind
    zcat base.tsv.gz | pearl-qdrant ingest - --collection base
    """
    from ingest.formats import ReadOptions
    from ingest.load.load_base import collection_name, load_base, scan_base, update_base
    from ingest.readers.tsv.layout import TsvColumns
    from pearl_qdrant.errors import OptionError, StoreError
    from pearl_qdrant.store.open import check_collection_name
    from pearl_qdrant.store.protocol import Placement

    columns = TsvColumns(id=id_column, name=name_column, types=type_columns, alias=alias_column)
    options = ReadOptions(
        limit=limit,
        languages=languages,
        columns=None if columns == TsvColumns() else columns,
        sabs=sabs,
        srl_max=srl_max,
        semantic_types=semantic_types,
        classes=classes,
        require_sitelink=require_sitelink,
        scopes=tuple(scope.upper() for scope in scopes),
    )
    if is_update and (restart or limit is not None):
        raise click.UsageError("--update compares with the whole of the new release: leave out --limit and --restart.")
    reading: dict[str, Any] = {
        "kind": kind,
        "options": options,
        "type_map": type_map,
        "max_errors": max_errors,
    }
    loading: dict[str, Any] = {
        **reading,
        "store": store,
        "model": model,
        "device": device,
        "pooling": pooling,
        "prefix": prefix,
        "kb": kb,
        "kb_version": kb_version,
        "wait_s": wait_s,
    }
    with LoadOutput("compare" if is_update else "ingest") as output:
        try:
            name = collection or collection_name(paths[0])
            if dry_run:
                check_collection_name(name, store)
                counts = dry_run_counts(scan_base(paths, **reading, events=output), name)
            elif is_update:
                updated = update_base(paths, name, **loading, may_remove=_asking(yes), events=output)
                output.close()
                say_kept(updated.kept, has_bad_rows=output.has_bad_rows)
                counts = {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(updated).items()}
            else:
                if restart and not yes:
                    _ask_before_deleting(store, name, wait_s)
                placement = Placement(shards, replicas, write_consistency)
                result = load_base(
                    paths,
                    name,
                    **loading,
                    quantization=quantization,
                    placement=placement,
                    restart=restart,
                    events=output,
                )
                output.close()
                say_result(result)
                counts = result.to_json()
        except OptionError as error:
            option = error.option
            fact = str(error).replace(f"'{option}'", _FLAGS.get(option, option), 1)
            raise click.UsageError(f"{fact} {_HINTS.get(option, '')}".rstrip()) from error
        except StoreError:
            output.close()
            if output.stored:
                echo(f"{output.stored:,} entities are stored and kept: the same command goes on from there.", err=True)
            raise
    print_counts(counts, as_json)


def _asking(yes: bool) -> Callable[[int, int], bool]:
    """Asks before an update deletes more than a tenth of a collection."""

    def may_remove(removed: int, total: int) -> bool:
        if yes or removed <= _MANY * total:
            return True
        try:
            return confirm(f"The new release lacks {removed:,} of {total:,} names: delete them?", abort=False)
        except click.Abort:  # nobody to ask
            return False

    return may_remove


def _ask_before_deleting(location: str, name: str, wait_s: float) -> None:
    """Ask whether a collection that is there may go."""
    store = open_store_at(location, wait_s=wait_s)
    try:
        is_there = name in store.collections()
    finally:
        store.close()
    if is_there:
        confirm(f"Delete collection '{name}' in {store.location}, what was calibrated too, and begin anew?")
