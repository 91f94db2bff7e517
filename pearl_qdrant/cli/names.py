"""`pearl-qdrant crosswalk` and `pearl-qdrant resolve`: names of two bases, and of a graph."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from pearl_qdrant.cli.setting import set_option
from pearl_qdrant.cli.shared import (
    InputFile,
    encoder_of_environment,
    json_option,
    name_of,
    store_option,
    threshold_option,
)
from pearl_qdrant.cli.terminal import echo, echo_json, echo_row

if TYPE_CHECKING:
    from pearl_qdrant.records import Entity
    from pearl_qdrant.resolution import NameRecord, Resolution

_FILE = click.Path(path_type=Path, dir_okay=False)
_SSSOM = ".sssom.tsv"


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--out", type=_FILE, help="File for the matches (TSV), NIL ones too; or as SSSOM, if its name ends in "
              f"{_SSSOM}.  [default: stdout]")  # fmt: skip
@click.option("--one-to-one", is_flag=True, help="An entity of B is the partner of one entity of A at most.")
@threshold_option("0.9")
@store_option
@json_option
def crosswalk(
    a: str,
    b: str,
    out: Path | None,
    as_json: bool,
    **options: Any,  # further arguments of `crosswalk`
) -> None:
    """Find each entity of A in the collection B, with a probability, or NIL.

    A is a collection of the store, or a base in a file.

    \b
    pearl-qdrant crosswalk doid mondo --one-to-one --out doid-mondo.sssom.tsv
    pearl-qdrant crosswalk doid.obo mondo --out doid-mondo.tsv
    """
    from pearl_qdrant.crosswalk import crosswalk as find

    given: str | Iterable[Entity] = a
    if Path(a).exists():
        from pearl_qdrant import read_entities

        given = read_entities(a)
    options = {name: value for name, value in options.items() if value is not None}
    options |= encoder_of_environment()
    found = find(given, b, source=None if given is a else Path(a).name.partition(".")[0], **options)
    if out is not None:
        (found.write_sssom if out.name.endswith(_SSSOM) else found.write)(out)
    if as_json:
        for one in found.matches:
            echo_json(asdict(one))
    elif out is None:
        for line in found.lines():
            echo_row(line)
    n_found = sum(1 for _ in found.found)
    echo(f"{len(found.matches):,} entities, {n_found:,} found, {len(found.matches) - n_found:,} NIL", err=True)


_EXISTING = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command()
@click.argument("names", type=InputFile(), required=False)
@click.option("--out", help="File for the nodes (TSV), or for the merged graph.")
@click.option(
    "--graph",
    help="Merge a graph: GraphML, edges (TSV, CSV), a folder of LightRAG, nano-graphrag or GraphRAG.",
)
@click.option("--collection", "collections", multiple=True, metavar="NAME",
              help="Give names that it knows its ids; may be repeated.")  # fmt: skip
@click.option("--previous", type=_EXISTING, help="Nodes of an earlier run, which keep their ids.")
@click.option("--review", type=_FILE, help="File for the merges that a person should look at (TSV).")
@store_option
@set_option("ResolveSettings")
@json_option
def resolve(
    names: BinaryIO | None,
    out: str | None,
    graph: str | None,
    previous: Path | None,
    review: Path | None,
    settings: dict[str, Any],
    as_json: bool,
    **given: Any,  # further arguments of `resolve`
) -> None:
    """Give all names of one entity one node, with a probability and a reason for each merge.

    NAMES has one name a line; or it is a table (TSV with a header) with a column name, title or entity, and columns
    type, source and context where there are any; or it has such objects (JSON Lines). - is stdin.

    \b
    pearl-qdrant resolve names.txt --out nodes.tsv
    pearl-qdrant resolve names.tsv --collection umls --out nodes.tsv --review review.tsv
    pearl-qdrant resolve names.tsv --previous nodes.tsv --set decisions=review.tsv --out nodes.tsv
    pearl-qdrant resolve more.tsv --previous nodes.tsv --out nodes.tsv
    pearl-qdrant resolve --previous nodes.tsv --set undo="Apple Records" --out nodes.tsv
    pearl-qdrant resolve --graph rag_storage
    """
    if names is None and previous is None and graph is None:
        raise click.UsageError("Give a file of names, a --graph, or earlier nodes with --previous.")
    if graph is not None and (names is not None or review is not None):
        raise click.UsageError("--graph has its own names and writes its review beside it; give neither with it.")
    undo = settings.pop("undo", ())
    if undo and (previous is None or names is not None):
        raise click.UsageError("--set undo changes the nodes of --previous NODES; give these, and no names.")
    from pearl_qdrant.resolution import Resolution, read_names, resolve

    earlier = None if previous is None else Resolution.read(previous).undo(undo)
    if undo and earlier is not None and graph is None:
        _write(earlier, out, review, as_json=as_json)
        echo("A later run with these nodes as --previous keeps the names apart, with --graph, too.", err=True)
        return
    collection = given.pop("collections") or None
    given |= {"collection": collection, "previous": earlier, **encoder_of_environment(), **settings}
    resolve_names: Callable[[Iterable[str | NameRecord]], Resolution] = partial(resolve, **given)
    if graph is not None:
        from pearl_qdrant.resolution.graphs import resolve_graph

        merged = resolve_graph(graph, resolve_names, out=out)
        _print(merged.resolution, merged.path, as_json=as_json)
        places = f"{merged.path}; nodes: {merged.nodes}; review: {merged.review}"
        echo(*merged.report.to_text().split("\n"), places, err=True)
        return
    records = () if names is None else read_names(names, name_of(names))
    _write(resolve_names(records), out, review, as_json=as_json)


def _write(found: Resolution, out: str | None, review: Path | None, *, as_json: bool) -> None:
    if out is not None:
        found.write(out, review=review)
    elif review is not None:
        found.write_review(review)
    _print(found, out, as_json=as_json)


def _print(found: Resolution, out: object, *, as_json: bool) -> None:
    if as_json:
        for one in found.names:
            echo_json(asdict(one))
    elif out is None:
        from pearl_qdrant.resolution.resolution import node_lines

        for line in node_lines(found.names, found.inputs):
            echo_row(line)
        sys.stdout.flush()
    sizes = Counter(one.node_id for one in found.names)
    known = len({one.node_id for one in found.names if one.entity_id is not None})
    echo(
        f"{len(found.names):,} names, {len(sizes):,} nodes ({known:,} of a collection); "
        f"{len(found.review):,} pairs for review",
        err=True,
    )
