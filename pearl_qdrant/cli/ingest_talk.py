"""What `pearl-qdrant ingest` says while it works: bad rows, the model, progress, counts. Talk goes to stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pearl_qdrant.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from ingest.reader import Reader, ReadReport
    from ingest.scan import ScanResult
    from pearl_qdrant.encoder.protocol import Encoder
    from pearl_qdrant.store.protocol import Collection

_STEP = 0.1  # of the vectors, between two lines
_SMALL = 10_000  # vectors that are searched exactly in any case, or indexed in a moment


def scan_and_report(reader: Reader, report: ReadReport) -> ScanResult:
    """Count the base, and say what was passed over."""
    from ingest.scan import scan

    scanned = scan(reader, report)
    for note in scanned.report.notes:
        echo(note, err=True)
    for skip in scanned.report.examples:
        echo(f"skipped {skip}", err=True)
    if (more := scanned.report.n_skipped - len(scanned.report.examples)) > 0:
        echo(f"skipped {more} more rows", err=True)
    return scanned


def describe(encoder: Encoder) -> str:
    """The model in a line."""
    info = encoder.info
    head = "with phrase types" if info.has_head else "without a type head: points get no predicted types"
    return f"model {info.name}, {info.dim} dim, on {info.device} ({info.runtime}, {info.precision}), {head}"


@contextmanager
def progress(names: int, doing: str = "ingest") -> Iterator[Callable[[int], None]]:
    """A bar on stderr: names a second, time left."""
    from tqdm import tqdm

    with tqdm(total=names, unit=" names", unit_scale=True, desc=doing, dynamic_ncols=True, disable=None) as bar:
        yield lambda n: bar.update(n) and None


def say_graph() -> Callable[[int, int], None]:
    """That a graph is being built, which takes a while; again only when there is more to say."""
    said: list[int] = []

    def say(done: int, total: int) -> None:
        if done >= total or total <= _SMALL or (said and done < said[-1] + total * _STEP):
            return
        so_far = f", {done:,} done" if said else " (search is exact until it is there)"
        echo(f"building the graph of {total:,} vectors{so_far}", err=True)
        said.append(done)

    return say


def say_resumed(target: Collection, input_name: str, digest: str) -> None:
    """Whether an interrupted load of this input goes on, or why not."""
    for checkpoint in target.read_manifest().checkpoints:
        if checkpoint.input != input_name:
            continue
        if checkpoint.digest != digest:
            echo(
                "the input, or how it is read, has changed since its load was interrupted: from the start. Names that "
                "it has no more stay; --restart begins with an empty collection",
                err=True,
            )
        elif checkpoint.entities:
            echo(f"going on after {checkpoint.entities:,} entities that are stored", err=True)


def say_rewritten(names: int) -> None:
    """That names were gone which an earlier run had stored."""
    if names:
        echo(f"names that were gone from the collection and are written again: {names:,}", err=True)


def say_unfinished(inputs: tuple[str, ...], name: str) -> None:
    """Which other inputs are not loaded completely."""
    if inputs:
        echo(
            f"not finished yet, in another process or since an interruption: {', '.join(inputs)}. The last to finish "
            f"builds the graph; search is exact until then. Or build it with: pearl-qdrant collections finalize {name}",
            err=True,
        )


def dry_run_counts(scanned: ScanResult, collection: str) -> dict[str, Any]:
    """The report of a dry run."""
    return {
        "collection": collection,
        "entities": scanned.entities,
        "names": scanned.names,
        "distinct_names": scanned.distinct_names,
        "points": 0,
        "skipped": scanned.report.passed_over,
        "merged_rows": scanned.report.merged_rows,
        "conflicting_names": scanned.report.conflicting_names,
        "dry_run": True,
    }


def print_counts(counts: dict[str, Any], as_json: bool) -> None:
    """The report, on stdout."""
    if as_json:
        echo_json(counts)
        return
    for key, value in counts.items():
        shown = f"{value:,}" if isinstance(value, (int, float)) and not isinstance(value, bool) else value
        if isinstance(value, dict):
            shown = ", ".join(f"{reason} {n:,}" for reason, n in sorted(value.items())) or "nothing"
        echo(f"{key:>18}  {shown}")
