"""Formats what became of each kind of everyday mention: right, wrong and NIL answers of each method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from training.evaluation.run import TaskResult

OUTCOMES = ("right", "wrong", "nil")


def kind_rows(result: TaskResult, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The heading, a row for each kind, and the milliseconds a mention.

    Args:
        result: The result of a task of everyday mentions.
        names: Methods with the names to show, in order.
    """
    methods = [method for method in names if method in result.outcomes]
    details = {method: result.outcomes[method].details for method in methods}
    yield ("", "n", *(names[method] for method in methods))
    kinds = [key.removesuffix("/n") for key in details[methods[0]] if key.endswith("/n")]
    for kind in kinds:
        n = details[methods[0]][f"{kind}/n"]
        yield (kind, f"{n:,.0f}", *(_cell(details[method], kind) for method in methods))
    yield ("milliseconds", "", *(f"{details[method]['milliseconds']:.2f}" for method in methods))


def _cell(details: Mapping[str, float], kind: str) -> str:
    """Percent of right, wrong and NIL answers; where NIL is right it is not repeated."""
    right, wrong, nil = (f"{details[f'{kind}/{one}']:.1f}" for one in OUTCOMES)
    return f"{right:>5} {wrong:>5} {nil:>5}"


def is_by_kind(details: Mapping[str, float]) -> bool:
    """Whether the details of an outcome are figures by kind."""
    return any(key.endswith("/right") for key in details)
