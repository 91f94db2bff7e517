"""The command `pearl-qdrant crosswalk`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pearl_qdrant.cli.common.options import device_option, json_option, model_option, store_option
from pearl_qdrant.cli.common.terminal import echo, echo_json, echo_row

if TYPE_CHECKING:
    from pearl_qdrant.records import Entity

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--out", type=_FILE, help="File for the matches (TSV), NIL ones too.  [default: stdout]")
@click.option("--sssom", type=_FILE, help="File for the matches as SSSOM TSV.")
@click.option("--license", "license_url", metavar="URL", help="Licence of the mappings, for --sssom.")
@click.option("--one-to-one", is_flag=True, help="An entity of B is the partner of one entity of A at most.")
@click.option(
    "--threshold", type=click.FloatRange(0, 1), show_default="0.9", help="Least probability of a match; below it NIL."
)
@click.option("--format", "kind", default="auto", show_default=True, help="Format of A, if it is a file.")
@store_option
@model_option
@device_option
@json_option
def crosswalk(
    a: str,
    b: str,
    out: Path | None,
    sssom: Path | None,
    license_url: str | None,
    one_to_one: bool,
    threshold: float | None,
    kind: str,
    store: str,
    model: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Find each entity of A in the collection B, with a probability, or NIL.

    A is a collection of the store, or a base in a file.

    \b
    pearl-qdrant crosswalk doid mondo --one-to-one --sssom doid-mondo.sssom.tsv
    pearl-qdrant crosswalk doid.obo mondo --out doid-mondo.tsv
    """
    from pearl_qdrant.crosswalk import crosswalk as find
    from pearl_qdrant.crosswalk.matching import DEFAULT_CROSSWALK_THRESHOLD

    given: str | Iterable[Entity] = a
    if Path(a).exists():
        from pearl_qdrant import read_entities

        given = read_entities(a, kind=kind)
    found = find(
        *(given, b),
        store=store,
        one_to_one=one_to_one,
        threshold=DEFAULT_CROSSWALK_THRESHOLD if threshold is None else threshold,
        model=model,
        device=device,
        source=None if given is a else Path(a).name.partition(".")[0],
    )
    if out is not None:
        found.write(out)
    if sssom is not None:
        found.write_sssom(sssom, license_url=license_url)
    if as_json:
        for one in found.matches:
            echo_json(asdict(one))
    elif out is None and sssom is None:
        for line in found.lines():
            echo_row(line)
    n_found = sum(1 for _ in found.found)
    echo(f"{len(found.matches):,} entities, {n_found:,} found, {len(found.matches) - n_found:,} NIL", err=True)
