"""Kill real loads many times: ``python tests/soak/soak.py --chains 100``, or ``make soak``.

A chain is a load with up to three kills at moments drawn by seed and number, resumed by the same command and compared
with a load that nobody killed: ids, payloads, vectors, counts, manifest, `collections verify`. Chains with even numbers
load into a folder, the others into the Qdrant double. `--seed S --chain 17` draws one again, although the scheduler
has an influence too. Linux only: it reads /proc.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from qdrant_double import QdrantDouble
from soak_chains import Chain, EdgePlace, Lab, ServerPlace


def run_chain(lab: Lab, seed: int, number: int) -> tuple[Chain, str]:
    """Run one chain; the result has its failure, or "". The folder of a chain that failed stays."""
    folder = lab.folder / str(number)
    folder.mkdir()
    with QdrantDouble() as double:
        place = ServerPlace(double) if number % 2 else EdgePlace(folder)
        chain = Chain(lab, place, folder, random.Random(f"{seed}:{number}"))
        try:
            chain.run()
        except Exception:  # noqa: BLE001 - an error of the harness is told like one of the load
            return chain, f"chain {number} (seed {seed}, left in {folder}):\n{traceback.format_exc()}"
    shutil.rmtree(folder)
    return chain, ""


@click.command()
@click.option("--chains", default=100, show_default=True, help="Each with one to three kills.")
@click.option("--entities", default=700, show_default=True, help="Of the base; about 2.5 names each.")
@click.option("--seed", type=int, help="Default: drawn, and printed.")
@click.option("--jobs", default=2, show_default=True, help="Chains at a time.")
@click.option("--chain", "one", type=int, metavar="N", help="Only this chain.")
def main(chains: int, entities: int, seed: int | None, jobs: int, one: int | None) -> None:
    """Kill loads, resume them, and compare the results."""
    from tiny_models import make_pearl

    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="pearl-qdrant-soak-"))
    make_pearl(folder / "tiny")
    lab = Lab.make(folder / "lab", folder / "tiny", entities)
    click.echo(f"seed {seed}, a load takes {lab.seconds:.1f} s")
    moments: Counter[str] = Counter()
    failures = []
    with ThreadPoolExecutor(jobs) as pool:
        for chain, failure in pool.map(lambda number: run_chain(lab, seed, number), [one] if one else range(chains)):
            moments.update(f"{chain.place.kind} {kill.moment} {kill.victim}" for kill in chain.kills)
            failures += [failure] if failure else []
            click.echo(f"{chain.folder.name:4} {chain.place.kind:6} {chain.kills} {'FAILED' if failure else 'same'}")
    for moment, n_kills in sorted(moments.items()):
        click.echo(f"{n_kills:4} {moment}")
    click.echo("\n".join(failures))
    click.echo(f"{moments.total()} kills, {len(failures)} failures in {time.monotonic() - start:.0f} s")
    if failures:
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
