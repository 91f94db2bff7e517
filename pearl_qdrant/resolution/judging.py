"""Decisions about pairs: asked of a function of the user's, such as a language model, and carried out in earlier nodes.

The function gets a batch of questions and returns "same", "different" or None for each. Answers are kept by the content
of their question, in a file if one is given: a question that was answered costs nothing again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from pearl_qdrant.resolution.files import VERDICTS
from pearl_qdrant.resolution.names import key_of
from pearl_qdrant.resolution.pairs.model import DECIDED
from pearl_qdrant.resolution.records import Decision, NameRecord, ResolvedName, ReviewPair, Verdict
from pearl_qdrant.resolution.resolution import Resolution


def apply_to_nodes(names: Sequence[ResolvedName], decisions: Iterable[Decision]) -> list[ResolvedName]:
    """Earlier names with the nodes that decisions give them; decisions about other names change nothing."""
    current = list(names)
    places: dict[tuple[str, str], list[int]] = {}  # decisions change rows, and not their order
    for i, one in enumerate(current):
        places.setdefault(key_of(one.name, one.type), []).append(i)

    def rows(name: str, type_: str) -> list[ResolvedName]:
        return [current[i] for i in places.get(key_of(" ".join(name.split()), type_), ())]

    for decision in decisions:
        ours, theirs = rows(decision.name, decision.type), rows(decision.other, decision.other_type)
        if not ours:
            continue
        if decision.verdict == "different":
            current = _apart(current, decision, ours, theirs)
        elif theirs and ours[0].node_id != theirs[0].node_id:
            current = _together(current, ours[0].node_id, theirs[0].node_id)
    return current


def _apart(
    names: list[ResolvedName], decision: Decision, ours: list[ResolvedName], theirs: list[ResolvedName]
) -> list[ResolvedName]:
    nodes = {one.node_id for one in theirs} or {decision.other_node}
    leaving = next((one for one in ours if one.node_id in nodes), None)
    if leaving is None:
        wanted = {(one.name, one.type) for one in ours}
        return [
            replace(one, apart=tuple(dict.fromkeys((*one.apart, *sorted(nodes - {""})))))
            if (one.name, one.type) in wanted
            else one
            for one in names
        ]
    if leaving.founded and theirs:  # the name that the node is called by stays
        leaving = next((one for one in theirs if not one.founded), leaving)
    return list(Resolution(tuple(names)).undo([NameRecord(leaving.name, leaving.type)]).names)


def _together(names: list[ResolvedName], one_id: str, other_id: str) -> list[ResolvedName]:
    """Make two nodes one: that of an entity stays, else the one with more names, else the first."""
    sizes: Mapping[str, tuple[bool, int]] = {
        node: (any(x.entity_id for x in names if x.node_id == node), sum(x.node_id == node for x in names))
        for node in (one_id, other_id)
    }
    kept, gone = (one_id, other_id) if sizes[one_id] >= sizes[other_id] else (other_id, one_id)
    model = next((x for x in names if x.node_id == kept and x.founded), None) or next(
        x for x in names if x.node_id == kept
    )
    return [
        replace(
            x,
            node_id=kept,
            canonical_name=model.canonical_name,
            entity_id=model.entity_id,
            kb=model.kb,
            probability=1.0,
            reason=DECIDED,
            founded=False,
            apart=tuple(node for node in x.apart if node not in (kept, gone)),
        )
        if x.node_id == gone
        else replace(x, apart=tuple(node for node in x.apart if node != gone or x.node_id != kept))
        for x in names
    ]


BATCH = 32
"""Questions that the function gets at once, at most."""

DEFAULT_BUDGET = 1000
"""Questions that the function gets in one run, at most; answers that are kept do not count."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whether two names mean the same.

    Attributes:
        pair: The names with their types, the probability, and why they were not merged.
        description, other_description: What the graph says of each, or "".
    """

    pair: ReviewPair
    description: str = ""
    other_description: str = ""

    @property
    def key(self) -> str:
        """A hash of the names, types and descriptions, whichever comes first."""
        pair = self.pair
        sides = sorted(
            ([pair.name, pair.type, self.description], [pair.other, pair.other_type, self.other_description])
        )
        return blake2b(json.dumps(sides).encode(), digest_size=16).hexdigest()


Judge = Callable[[Sequence[Question]], Sequence[Verdict | None]]
"""Decides questions: "same", "different", or None where it cannot tell."""


def apply_judge(
    found: Resolution,
    judge: Judge,
    *,
    budget: int = DEFAULT_BUDGET,
    cache: str | os.PathLike[str] | None = None,
    descriptions: Mapping[tuple[str, str], str] | None = None,
) -> Resolution:
    """Ask the judge about the pairs for review, in their order, and do what it decides. Raises ValueError if the judge
    returns another number of answers than it got questions, or another answer.

    Args:
        found: A resolution with pairs for review.
        judge: Gets at most `BATCH` questions at once.
        budget: Questions that it gets, at most.
        cache: File of earlier answers (JSON Lines), to which new ones are added as they come.
        descriptions: What is known of names, by name and type.
    """
    known = {} if cache is None else _read(Path(cache))
    said = descriptions or {}
    questions = [
        Question(pair, said.get((pair.name, pair.type), ""), said.get((pair.other, pair.other_type), ""))
        for pair in found.review
    ]
    new = [question for question in questions if question.key not in known][:budget]
    for start in range(0, len(new), BATCH):
        batch = new[start : start + BATCH]
        answers = list(judge(batch))
        _check(batch, answers)
        known.update({question.key: answer for question, answer in zip(batch, answers, strict=True)})
        if cache is not None:
            with Path(cache).open("a", encoding="utf-8") as file:
                file.writelines(
                    json.dumps({"key": question.key, "answer": answer}) + "\n"
                    for question, answer in zip(batch, answers, strict=True)
                )
    decided = [(question.pair, known.get(question.key)) for question in questions]
    decisions = [_decision(pair, verdict) for pair, verdict in decided if verdict is not None]
    names = apply_to_nodes(found.names, decisions)
    node_of = {(one.name, one.type): one.node_id for one in names}
    left = [
        replace(pair, node_id=node_of[pair.name, pair.type], other_node_id=node_of[pair.other, pair.other_type])
        for pair, verdict in decided
        if verdict is None
    ]
    return replace(
        found,
        names=tuple(sorted(names, key=lambda one: (one.node_id, not one.founded, one.name))),
        review=tuple(pair for pair in left if pair.node_id != pair.other_node_id),
    )


def _decision(pair: ReviewPair, verdict: Verdict) -> Decision:
    return Decision(pair.name, pair.other, verdict, pair.type, pair.other_type, pair.other_node_id)


def _check(batch: Sequence[Question], answers: Sequence[object]) -> None:
    if len(answers) != len(batch):
        raise ValueError(
            f"the judge got {len(batch)} questions and returned {len(answers)} answers; return one for each"
        )
    wrong = [answer for answer in answers if answer not in ("same", "different", None)]
    if wrong:
        raise ValueError(f"the judge returned {wrong[0]!r}; an answer is 'same', 'different' or None")


def _read(path: Path) -> dict[str, Verdict | None]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.endswith("}")]
    return {row["key"]: VERDICTS.get(row["answer"]) if row["answer"] else None for row in rows}
