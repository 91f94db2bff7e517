"""`pearl-qdrant collections`: list, show, delete, finalize, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pearl_qdrant.cli.common.options import json_option, model_option, store_option, wait_option, yes_option
from pearl_qdrant.cli.common.terminal import confirm, echo, echo_json, table_lines

if TYPE_CHECKING:
    from pearl_qdrant.store.administration import CollectionSummary
    from pearl_qdrant.store.verify import Problem


@click.group()
def collections() -> None:
    """List, check and maintain collections."""


@collections.command("list")
@store_option
@json_option
def list_collections(store: str, as_json: bool) -> None:
    """List the collections of a store with their state, base, counts and model.

    For collections that are not ready, messages on standard error say what to do.
    """
    from pearl_qdrant.store.administration import summarize_collections

    summaries = summarize_collections(store)
    if as_json:
        for summary in summaries:
            echo_json(summary.to_json())
        return
    listed = list(summaries)
    if not listed:
        echo(f"No collections in {store}.", err=True)
        return
    echo(*table_lines(_COLUMNS, map(_summary_row, listed), numbers=("entities", "names")))
    for one in listed:
        if one.problem and not one.is_foreign:
            echo(f"{one.name}: {one.problem}", err=True)


_COLUMNS = ("collection", "state", "kb", "entities", "names", "model", "calibrated")


def _summary_row(summary: CollectionSummary) -> tuple[str, ...]:
    """The cells of a collection in the list."""
    counts = ("-" if n is None else f"{n:,}" for n in (summary.entities, summary.names))
    state = "other program's" if summary.is_foreign else summary.state.replace("_", " ")
    is_calibrated = "yes" if summary.is_calibrated else "no"
    base = summary.kb or "-"
    if summary.kb_version:
        base += f" {summary.kb_version}"
    return (summary.name, state, base, *counts, summary.model or "-", is_calibrated if summary.kb else "-")


@collections.command("show")
@click.argument("name")
@store_option
@json_option
def show(name: str, store: str, as_json: bool) -> None:
    """Show a collection's base, model, counts and types."""
    from pearl_qdrant.store.administration import describe_collection

    facts = describe_collection(name, store=store).to_json()
    if as_json:
        echo_json(facts)
        return
    types, problem = facts.pop("types"), facts.pop("problem")
    facts["calibration"] = _format_calibration(facts["calibration"])
    for key, value in facts.items():
        echo(f"{key:>16}  {value}")
    for kind, counts in types.items():
        line = ", ".join(f"{k} {n:,}" for k, n in sorted(counts.items(), key=lambda kv: -kv[1]))
        echo(f"{kind:>16}  {line or '-'}")
    if problem:
        echo(f"{name}: {problem}", err=True)


def _format_calibration(calibration: dict[str, Any] | None) -> str:
    """Format a calibration in one line, without the coefficients of the ranking, which `--json` shows."""
    if calibration is None:
        return "as shipped with the package"
    ranking = "as shipped" if calibration["features"] is None else "fitted too"
    fitted = {key: value for key, value in calibration.items() if key not in ("features", "decision", "nil_features")}
    shown = (f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in fitted.items())
    return ", ".join([*shown, f"ranking {ranking}"])


@collections.command("delete")
@click.argument("name")
@store_option
@yes_option
def delete(name: str, store: str, yes: bool) -> None:
    """Delete a collection with all its points."""
    from pearl_qdrant.store.administration import delete_collection

    if not yes:
        confirm(f"Delete collection '{name}' in {store}? This cannot be undone.")
    delete_collection(name, store=store)
    echo(f"Deleted {name}.", err=True)


@collections.command("finalize")
@click.argument("name")
@store_option
@wait_option
def finalize(name: str, store: str, wait_s: float) -> None:
    """Build the graph of a collection, for fast search."""
    from pearl_qdrant.store.administration import finalize_collection

    status = finalize_collection(name, store=store, wait_s=wait_s)
    echo(f"{name}: {status.indexed_vectors:,} of {status.vectors:,} vectors indexed.", err=True)


@collections.command("verify")
@click.argument("name")
@store_option
@model_option
@json_option
@click.pass_context
def verify(context: click.Context, name: str, store: str, model: str | None, as_json: bool) -> None:
    """Check a collection: complete, counted, indexed, and its model available. The exit status is 1 if not."""
    from pearl_qdrant.store.verify import verify_collection

    verified = verify_collection(name, store=store, model=model)
    problems = [_format_problem(problem) for problem in verified.problems]
    if as_json:
        echo_json({"collection": name, "points": verified.points, "problems": problems})
    else:
        for problem in problems:
            echo(f"{name}: {problem}")
        if not problems:
            echo(f"{name}: {verified.points:,} points, complete, indexed, model verified.")
    if problems:
        context.exit(1)


def _format_problem(problem: Problem) -> str:
    return f"{problem.message} Option: --{problem.option}" if problem.option else problem.message
