"""`pearl-qdrant ingest`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.ingest_talk import (
    describe,
    dry_run_counts,
    print_counts,
    progress,
    say_graph,
    say_resumed,
    say_rewritten,
    say_unfinished,
    scan_and_report,
)
from pearl_qdrant.cli.options import (
    check_collection_name,
    device_option,
    json_option,
    open_store_at,
    store_option,
    wait_option,
    yes_option,
)
from pearl_qdrant.cli.terminal import confirm, echo
from pearl_qdrant.settings import DEFAULT_MAX_ERRORS, DEFAULT_MODEL, DEFAULT_QUANTIZATION

if TYPE_CHECKING:
    from ingest.formats import ReadOptions
    from ingest.reader import Reader
    from ingest.scan import ScanResult
    from ingest.type_map import TypeMap
    from pearl_qdrant.encoder.protocol import Encoder
    from pearl_qdrant.store.protocol import Collection, Placement, Store
    from pearl_qdrant.store.schema import Quantization

_MANY = 0.1  # share of a collection that an update deletes without asking
FORMATS = ("tsv", "umls", "yago", "wikidata", "obo")  # `ingest.formats.FORMATS`, which --help does not import
_SUFFIXES = re.compile(r"\.(gz|bz2|xz|zst|zip|tsv|txt|csv|tab|json|nt|ttl|obo|rrf)$", re.IGNORECASE)


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
    from ingest.pipeline import ingest as run
    from ingest.reader import ReadReport
    from ingest.tsv_layout import TsvColumns
    from ingest.type_map import TypeMap

    name = collection or _collection_name(paths[0])
    check_collection_name(store, name)
    columns = TsvColumns(id=id_column, name=name_column, types=type_columns, alias=alias_column)
    types = TypeMap.load(type_map)
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
    with _opened_reader(paths, kind, options, types) as reader:
        scanned = scan_and_report(reader, ReadReport(max_errors=max_errors))
        if not scanned.names:
            reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(scanned.report.passed_over.items()))
            raise click.ClickException(f"no entity is left of {' '.join(paths)} (passed over: {reasons or 'nothing'}).")
        if dry_run:
            print_counts(dry_run_counts(scanned, name), as_json)
            return
        from pearl_qdrant.encoder.loading import load_encoder
        from pearl_qdrant.errors import StoreError
        from pearl_qdrant.store.protocol import Placement

        encoder = load_encoder(model, device=device, pooling=pooling, prefix=prefix)
        echo(describe(encoder), err=True)
        opened_store = open_store_at(store, wait_s=wait_s)
        stored_entities = 0

        def note_stored(entities: int) -> None:
            nonlocal stored_entities
            stored_entities = entities

        try:
            if is_update:
                target = opened_store.open(name)
                _prepare(target, kb, encoder, types.version)
                counts = _update(reader, scanned, encoder, target, kb_version, max_errors, yes)
            else:
                if restart:
                    _begin_anew(opened_store, name, yes)
                placement = Placement(shards, replicas, write_consistency)
                target = _open_or_create(
                    opened_store, name, kb, kb_version, encoder, types.version, quantization, placement
                )
                input_name = " ".join(paths)
                say_resumed(target, input_name, scanned.digest)
                with progress(scanned.names) as advance:
                    result = run(
                        reader,
                        scanned,
                        encoder,
                        target,
                        max_errors=max_errors,
                        input_name=input_name,
                        on_progress=advance,
                        on_checkpoint=note_stored,
                        on_finalize=say_graph(),
                    )
                say_rewritten(result.rewritten)
                say_unfinished(result.unfinished, name)
                if result.points > result.names and not result.unfinished:
                    echo(
                        f"The collection holds {result.points - result.names:,} names that this input lacks; an "
                        f"entity whose names or types changed has old and new ones side by side. If the input is a "
                        f"newer release of the same base, --update removes what it has no more.",
                        err=True,
                    )
                counts = result.to_json()
        except StoreError:
            if stored_entities:
                echo(
                    f"{stored_entities:,} entities are stored and kept: the same command goes on from there.", err=True
                )
            raise
        finally:
            opened_store.close()
    print_counts(counts, as_json)


def _opened_reader(paths: tuple[str, ...], kind: str, options: ReadOptions, types: TypeMap) -> Reader:
    from ingest.formats import open_reader
    from pearl_qdrant.errors import SettingsError

    try:
        return open_reader(paths, kind, options, type_map=types)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error


def _update(
    reader: Reader,
    scanned: ScanResult,
    encoder: Encoder,
    target: Collection,
    kb_version: str | None,
    max_errors: int,
    yes: bool,
) -> dict[str, Any]:
    """Bring a collection to a newer release; asks before more than a tenth of it goes."""
    from dataclasses import asdict

    from ingest.update import update

    def may_remove(removed: int, total: int) -> bool:
        if yes or removed <= _MANY * total:
            return True
        try:
            return confirm(f"The new release lacks {removed:,} of {total:,} names: delete them?", abort=False)
        except click.Abort:  # nobody to ask
            return False

    with progress(scanned.names, "compare") as advance:
        result = update(
            reader,
            scanned,
            encoder,
            target,
            kb_version=kb_version,
            max_errors=max_errors,
            on_progress=advance,
            may_remove=may_remove,
            on_finalize=say_graph(),
        )
    if result.kept:
        why = "correct the bad rows first" if scanned.report.n_skipped else "delete them with --update --yes"
        echo(f"{result.kept:,} names that the new release lacks were kept: {why}", err=True)
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(result).items()}


def _collection_name(path: str) -> str:
    """A collection's name from a file's: `data/umls-2024AB.tsv.gz` gives `umls-2024AB`."""
    if path == "-":
        raise click.UsageError("Standard input has no name: give one with --collection.")
    name = Path(path).name
    if name.upper() == "META":  # of UMLS: its release has the better name
        name = Path(path).resolve().parent.name
    while (shorter := _SUFFIXES.sub("", name)) != name:
        name = shorter
    return re.sub(r"[^\w.-]+", "-", name).strip(".-") or "base"


def _begin_anew(store: Store, name: str, yes: bool) -> None:
    """Delete the collection if it is there, after asking."""
    if name in store.collections():
        if not yes:
            confirm(f"Delete collection '{name}' in {store.location}, what was calibrated too, and begin anew?")
        store.delete(name)


def _open_or_create(
    store: Store,
    name: str,
    kb: str | None,
    kb_version: str | None,
    encoder: Encoder,
    type_map_version: str,
    quantization: Quantization | None,
    placement: Placement,
) -> Collection:
    """The collection to load into, with a manifest that fits."""
    from dataclasses import astuple

    from pearl_qdrant.store.schema import Manifest

    if name not in store.collections():
        manifest = Manifest.for_model(
            encoder.info,
            collection=name,
            kb=kb or name,
            kb_version=kb_version,
            quantization=quantization or DEFAULT_QUANTIZATION,
            type_map_version=type_map_version,
        )
        return store.create(manifest, placement)
    target = store.open(name)
    _prepare(target, kb, encoder, type_map_version)
    if quantization not in (None, target.manifest.quantization):
        raise click.UsageError(
            f"Collection '{name}' keeps its vectors as {target.manifest.quantization}. Begin anew with --restart, or "
            f"take another --collection."
        )
    if any(number is not None for number in astuple(placement)):
        raise click.UsageError(
            f"Collection '{name}' exists: --shards, --replicas and --write-consistency count when it is created. Begin "
            f"with --restart, or take another --collection."
        )
    if kb_version is not None:
        target.write_manifest(target.manifest.model_copy(update={"kb_version": kb_version}))
    return target


def _prepare(target: Collection, kb: str | None, encoder: Encoder, type_map_version: str) -> None:
    """See to it that an existing collection fits, and note the type map."""
    manifest = target.manifest
    manifest.check_model(encoder.info)
    if kb is not None and kb != manifest.kb:
        raise click.UsageError(
            f"Collection '{target.name}' holds base '{manifest.kb}', not '{kb}'. Take another --collection."
        )
    target.write_manifest(manifest.model_copy(update={"type_map_version": type_map_version}))
