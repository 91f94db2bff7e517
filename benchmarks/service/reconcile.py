"""OpenRefine's sequence of requests, timed: manifest, types, 1,000 names in batches of 10, preview, suggest, extend.

    python benchmarks/service/reconcile.py [--names 1000] [--batch 10] [--base BASE.tsv]
    python benchmarks/service/reconcile.py --url http://127.0.0.1:8765/reconcile/demo --base BASE.tsv

Without --url, the base is loaded into a folder that is deleted afterwards, and `pearl-qdrant serve` answers over it.
Requests are sent one after the other, as OpenRefine sends them, on one connection. Names are those of the base:
canonical names, aliases, and names with a slip by turns. All columns that the service proposes are fetched. Printed are
seconds by the clock, and seconds of processor time of the service. The goal is 10 s for 1,000 names.
"""

from __future__ import annotations

import csv
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
import httpx
from process import Service, running

from pearl_qdrant import load_base

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sample_base.tsv"

GOAL_S = 10.0

EXTEND_BATCH = 10  # entities of a request for columns, as OpenRefine sends them


def read_names(base: Path, n_names: int, rng: random.Random) -> list[str]:
    """Names of a table by turns: canonical, an alias, with a slip."""
    with base.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    names = []
    for i in range(n_names):
        row = rng.choice(rows)
        aliases = [one for one in (row.get("aliases") or "").split("|") if one]
        name = rng.choice(aliases) if i % 3 == 1 and aliases else row["name"]
        names.append(swap(name, rng) if i % 3 == 2 else name)
    return names


def swap(name: str, rng: random.Random) -> str:
    """A name with two letters in the wrong order."""
    at = rng.randrange(max(1, len(name) - 1))
    return name[:at] + name[at : at + 2][::-1] + name[at + 2 :]


@contextmanager
def serving(base: Path) -> Iterator[tuple[str, Service]]:
    """The endpoint of a service over a base, and the service."""
    with tempfile.TemporaryDirectory() as folder:
        load_base(base, "bench", store=folder)
        with running(folder, "--cache", f"{folder}/cache") as service:
            yield f"http://127.0.0.1:{service.port}/reconcile/bench", service


class Steps:
    """Times the steps of the sequence.

    Args:
        service: The service; None if it runs elsewhere, so that its processor time is not known.
    """

    def __init__(self, service: Service | None) -> None:
        self._service = service

    def time(self, name: str, step: Callable[[], Any]) -> Any:
        """Run a step and print how long it took."""
        cpu, start = self._cpu(), time.perf_counter()
        result = step()
        self.seconds = time.perf_counter() - start
        print(f"{name:34} {self.seconds:8.3f} s {self._cpu() - cpu:8.2f} s of processor time")
        return result

    def _cpu(self) -> float:
        return 0.0 if self._service is None else self._service.cpu_s()


def in_batches(client: httpx.Client, endpoint: str, queries: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    """The result of each query, sent in forms."""
    results = []
    for start in range(0, len(queries), size):
        batch = {f"q{i}": one for i, one in enumerate(queries[start : start + size])}
        answer = client.post(endpoint, data={"queries": json.dumps(batch)}).raise_for_status().json()
        results += [answer[key]["result"] for key in batch]
    return results


def run(client: httpx.Client, endpoint: str, names: list[str], size: int, steps: Steps) -> float:
    """The sequence; returns the seconds of reconciling the names."""
    manifest = steps.time("manifest", lambda: client.get(endpoint).raise_for_status().json())
    sample = [{"query": name, "limit": 3} for name in names[:10]]
    guessed = steps.time("guess types, 10 names", lambda: in_batches(client, endpoint, sample, 10))
    types = [one["id"] for result in guessed for candidate in result for one in candidate["type"]]
    wanted = max(set(types), key=types.count)
    queries = [{"query": name, "type": wanted, "type_strict": "should"} for name in names]
    found = steps.time(f"{len(names):,} names, batches of {size}", lambda: in_batches(client, endpoint, queries, size))
    seconds = steps.seconds
    ids = [result[0]["id"] for result in found if result and result[0]["match"]]
    print(f"{'':34} {len(ids):8,} matches")
    described = [{**one, "properties": [{"pid": "description", "v": "a city"}]} for one in queries]
    steps.time("the same with a property", lambda: in_batches(client, endpoint, described, size))
    wanted_id = httpx.QueryParams({"id": ids[0]})
    preview = manifest["preview"]["url"].replace("id={{id}}", str(wanted_id))
    steps.time("preview", lambda: client.get(preview).raise_for_status())
    for kind, place in manifest["suggest"].items():
        address = place["service_url"] + place["service_path"]
        steps.time(f"suggest {kind}", lambda at=address: client.get(at, params={"prefix": names[0][:4]}))
    propose = "{service_url}{service_path}".format(**manifest["extend"]["propose_properties"])
    proposed = steps.time("propose columns", lambda: client.get(propose, params={"type": wanted}).json())
    columns = [{"id": one["id"]} for one in proposed["properties"]]

    def fetch() -> None:
        for start in range(0, len(ids), EXTEND_BATCH):
            asked = {"ids": ids[start : start + EXTEND_BATCH], "properties": columns}
            client.post(endpoint, data={"extend": json.dumps(asked)}).raise_for_status()

    steps.time(f"{len(columns)} columns of {len(ids):,} entities", fetch)
    return seconds


@click.command(help=__doc__)
@click.option("--names", "n_names", default=1000, show_default=True, help="Names to reconcile.")
@click.option("--batch", default=10, show_default=True, help="Names of a request.")
@click.option("--base", type=click.Path(path_type=Path, exists=True), default=SAMPLE, help="Table of the names.")
@click.option("--url", help="Endpoint of a service that runs already.")
@click.option("--seed", default=13, show_default=True)
def main(n_names: int, batch: int, base: Path, url: str | None, seed: int) -> None:
    """Run the sequence and compare it with the goal."""
    names = read_names(base, n_names, random.Random(seed))
    started = nullcontext((url, None)) if url else serving(base)
    with started as (endpoint, service), httpx.Client(timeout=120) as client:
        host, _, collection = endpoint.partition("/reconcile/")
        while client.get(f"{host}/v1/search", params={"q": "a", "collection": collection}).status_code == 503:
            time.sleep(0.2)
        seconds = run(client, endpoint, names, batch, Steps(service))
    per_thousand = 1000 * seconds / n_names
    print(f"1,000 names: {per_thousand:.1f} s ({GOAL_S / per_thousand:.1f} times as fast as the goal of {GOAL_S:g} s)")
    sys.exit(per_thousand > GOAL_S)


if __name__ == "__main__":
    main()
