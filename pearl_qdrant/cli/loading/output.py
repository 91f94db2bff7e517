"""The output of `pearl-qdrant ingest`: skipped rows, the model, progress and counts. Only counts go to stdout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ingest.load.events import LoadEvents
from ingest.load.results import reading_counts
from pearl_qdrant.cli.common.terminal import echo, echo_json

if TYPE_CHECKING:
    from ingest.base.scan import ScanResult
    from ingest.load.results import LoadResult
    from pearl_qdrant.encoder.protocol import Encoder

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

    def __enter__(self) -> LoadOutput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the progress bar, so that the next message starts on a new line."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def scanned(self, result: ScanResult) -> None:
        """Show the skipped rows."""
        report = result.report
        for note in report.notes:
            echo(note, err=True)
        for warning in report.warnings:
            flags = " and ".join(f"--{option.replace('_', '-')}" for option in warning.options)
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
        """Show the model in one line."""
        info = encoder.info
        head = "with phrase types" if info.has_head else "without a type head: points get no predicted types"
        echo(
            f"model {info.name}, {info.dim} dim, on {info.device} ({info.runtime}, {info.precision}), {head}", err=True
        )

    def unchanged(self, edited: bool) -> None:
        """Explain why nothing is done."""
        echo(f"{self._input} is unchanged since it was loaded; nothing to do", err=True)
        if edited:
            echo(
                "Entities were added or deleted by hand since then, and stay so. --update makes the collection equal "
                "to the input again.",
                err=True,
            )

    def newer_release(self) -> None:
        """Say that only what has changed is written."""
        self._doing = "compare"
        echo(
            f"{self._input} is a newer release of what the collection holds: only what has changed is written", err=True
        )

    def resumed(self, entities: int) -> None:
        """Show how much the load has not to do again."""
        echo(f"resuming: {entities:,} entities are stored", err=True)

    def started(self, names: int) -> None:
        """Start the progress bar."""
        from tqdm import tqdm

        self._bar = tqdm(
            total=names, unit=" names", unit_scale=True, desc=self._doing, dynamic_ncols=True, disable=None
        )

    def names_done(self, names: int) -> None:
        """Move the progress bar."""
        if self._bar is not None:
            self._bar.update(names)

    def entities_stored(self, entities: int) -> None:
        """Remember the number for the message after a failure."""
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


def dry_run_counts(scanned: ScanResult, collection: str) -> dict[str, Any]:
    """The counts of a dry run."""
    counts = reading_counts(scanned.report)
    return {"collection": collection, **counts, "distinct_names": scanned.distinct_names, "points": 0, "dry_run": True}


def print_counts(counts: dict[str, Any], as_json: bool) -> None:
    """Print the counts on stdout, as JSON or in words."""
    if as_json:
        echo_json(counts)
    else:
        echo(*_in_words(counts))


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
