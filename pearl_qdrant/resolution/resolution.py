"""`Resolution`: the node of each name, pairs for review, their files (TSV, no quoting), undoing; and a judge of pairs.

nodes     one row for each distinct name and type (and meaning), see `ResolvedName`; it is all that a later run needs.
          The column `inputs` of the first row has the digests of the files of names that were counted
review    one row for each pair, see `ReviewPair`; a person writes `same` or `different` into the column `decision`

The judge is a function of the user's: it gets a batch of questions and returns "same", "different" or None for each.
Answers are kept by the content of their question, in a file if one is given: an answered question costs nothing again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from pearl_qdrant.cells import join_list, split_list, table_line
from pearl_qdrant.errors import FormatError, OptionError
from pearl_qdrant.linking.mentions import read_text_lines
from pearl_qdrant.resolution.contexts import shortened
from pearl_qdrant.resolution.names import NameKey, NameRecord, free_id, key_of
from pearl_qdrant.resolution.pairs.model import DECIDED, FOUNDED
from pearl_qdrant.store.system import write_lines

Verdict = Literal["same", "different"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided of two names: the same entity, or different ones.

    Attributes:
        name, other: The names.
        type, other_type: Their types, or "".
        verdict: "same" or "different".
        other_node: The node of `other` when it was decided, or ""; needed where `other` is a name of a collection.
        context, other_context: What tells each from its namesakes, or "".
    """

    name: str
    other: str
    verdict: Verdict
    type: str = ""
    other_type: str = ""
    other_node: str = ""
    context: str = ""
    other_context: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """A name with its node; one for each distinct name and type.

    Attributes:
        name: The string.
        type: Its type, or "".
        node_id: The node: the id of the entity of a collection, or one that starts with ``nil-``.
        canonical_name: The name of the node.
        entity_id: The entity of the collection; None if it has none.
        kb: Short name of its base; None if there is none.
        probability: That the name belongs to the node, in [0, 1]; 1 for the name that founded the node.
        reason: Why it does.
        count: How often the name was given.
        founded: Whether the node is named and identified by this name.
        apart: Ids of nodes that it must not join, since a person decided so.
        context: A context of the name, or ""; names of several meanings have a row for each context.
    """

    name: str
    type: str
    node_id: str
    canonical_name: str
    entity_id: str | None
    kb: str | None
    probability: float
    reason: str
    count: int = 1
    founded: bool = False
    apart: tuple[str, ...] = ()
    context: str = ""

    @property
    def key(self) -> NameKey:
        """What tells it from other names."""
        return self.name, self.type, self.context


@dataclass(frozen=True, slots=True)
class ReviewPair:
    """Two names in two nodes that may be one, for a person to decide.

    Attributes:
        name, type, node_id: One name.
        other, other_type, other_node_id: The other.
        probability: That both mean the same, in [0, 1].
        reason: Why they were not merged.
        change: How often the names were given that would move to another node by the other decision.
        context, other_context: A context of each, or "".
    """

    name: str
    type: str
    node_id: str
    other: str
    other_type: str
    other_node_id: str
    probability: float
    reason: str
    change: int = 1
    context: str = ""
    other_context: str = ""


NODE_COLUMNS = tuple(
    "name type node_id canonical_name entity_id kb probability reason count founded apart inputs context".split()
)
REVIEW_COLUMNS = tuple(
    "decision probability name type other other_type node_id other_node_id context other_context reason change".split()
)
VERDICTS: dict[str, Verdict] = {
    **dict.fromkeys(("same", "yes", "y", "1", "merge"), "same"),
    **dict.fromkeys(("different", "no", "n", "0", "split"), "different"),
}
"""What a person may write into the column `decision`; an empty cell decides nothing."""


@dataclass(frozen=True)
class Resolution:
    """What `resolve` found.

    Attributes:
        names: One for each distinct name and type, and context of a name of several meanings, sorted by node.
        review: Pairs that are asked, those whose decision changes most first.
        inputs: Digests of the names that were given and counted, run after run.
        is_repeated: Whether the names of this run were counted by an earlier one.
    """

    names: tuple[ResolvedName, ...]
    review: tuple[ReviewPair, ...] = ()
    inputs: tuple[str, ...] = ()
    is_repeated: bool = False

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, str], Mapping[str, ResolvedName]]:
        found: dict[tuple[str, str], dict[str, ResolvedName]] = {}
        for one in self.names:
            found.setdefault((one.name, one.type), {})[one.context] = one
        return found

    @property
    def nodes(self) -> Iterator[tuple[str, list[ResolvedName]]]:
        """Ids of nodes with their names, the founding name first."""
        grouped: dict[str, list[ResolvedName]] = {}
        for one in self.names:
            grouped.setdefault(one.node_id, []).append(one)
        for node_id, names in grouped.items():
            yield node_id, sorted(names, key=lambda one: (not one.founded, -one.probability))

    def node(self, name: str | NameRecord, kind: str = "") -> str | None:
        """The node of a name (of the type `kind`) that was given; None if it was not."""
        found = self.row(name if isinstance(name, NameRecord) else NameRecord(name, kind))
        return None if found is None else found.node_id

    def row(self, one: NameRecord) -> ResolvedName | None:
        """What was found of a name that was given; None if it was not, or is blank, or nothing says which of several
        meanings it has.
        """
        name = " ".join(one.name.split())
        rows = self._by_name.get((name, one.type.strip())) or self._by_name.get((name, "")) or {}
        if len(rows) == 1:
            return next(iter(rows.values()))
        return rows.get(shortened(one.context)) or rows.get("")

    def write(self, nodes: str | os.PathLike[str], *, review: str | os.PathLike[str] | None = None) -> None:
        """Write the nodes, and before them the pairs for review where a path is given. A run that was killed can be
        repeated with the nodes that it has written as `previous`: the pairs of a run that is repeated stay as they are.
        """
        if review is not None and not (self.is_repeated and Path(review).exists()):
            self.write_review(review)
        write_lines(Path(nodes), node_lines(self.names, self.inputs))

    def write_review(self, path: str | os.PathLike[str]) -> None:
        """Write the pairs for review alone."""
        write_lines(Path(path), review_lines(self.review))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Resolution:
        """Read what `write` wrote, without pairs for review. Raises FormatError if a column is missing, or a number is
        none.
        """
        names, inputs = [], dict[str, None]()
        for number, row in _read_rows(Path(path), NODE_COLUMNS[:-1]):
            try:
                probability, count = float(row["probability"]), int(row["count"])
            except ValueError as error:
                raise FormatError(str(path), number, f"probability and count are numbers ({error})") from error
            inputs.update(dict.fromkeys(split_list(row["inputs"])))
            name, type_, node_id, canonical_name = (row[column] for column in NODE_COLUMNS[:4])
            of = name, type_, node_id, canonical_name, row["entity_id"] or None, row["kb"] or None
            is_founder, apart = row["founded"] == "yes", split_list(row["apart"])
            said = probability, row["reason"], count, is_founder, apart, row.get("context", "")
            names.append(ResolvedName(*of, *said))
        return cls(tuple(names), inputs=tuple(inputs))

    def undo(self, names: Iterable[str | NameRecord]) -> Resolution:
        """Take names out of their nodes: each founds a node of its own, and later runs keep it apart from the former.
        Names that are equal but for case and spaces leave together. Raises OptionError if a name is unknown, or alone
        in its node.
        """
        current = {one.key: one for one in self.names}
        taken = {one.node_id for one in self.names}
        for name in names:
            one = name if isinstance(name, NameRecord) else NameRecord(name)
            keys = self._keys_like(one)
            if not keys:
                raise OptionError("undo", f"There is no name {one.name!r} among the {len(self.names):,} names.")
            for node_id in sorted({current[key].node_id for key in keys}):
                leaving = [key for key in keys if current[key].node_id == node_id]
                staying = [key for key, held in current.items() if held.node_id == node_id and key not in leaving]
                if not staying and current[leaving[0]].entity_id is None:
                    raise OptionError("undo", f"{one.name!r} is alone in its node {node_id}: there is nothing to undo.")
                current.update(_founded(leaving, current, taken))
                if staying and not any(current[key].founded for key in staying):
                    first = max(staying, key=lambda key: (current[key].probability, current[key].count))
                    current[first] = replace(current[first], founded=True)
                    current.update(
                        {key: replace(current[key], canonical_name=first[0]) for key in staying}
                        if current[first].entity_id is None
                        else {}
                    )
        return replace(self, names=tuple(current.values()))

    def proposed(self, earlier: Iterable[ResolvedName] = ()) -> Resolution:
        """The names with their merges undone, each a pair for review; names of `earlier` keep their nodes."""
        held = {one.key for one in earlier}
        founders = {one.node_id: one for one in self.names if one.founded}
        taken = {one.node_id for one in self.names}
        names, pairs = [], []
        for one in self.names:
            founder = founders.get(one.node_id)
            if one.entity_id is not None or one.founded or founder is None or one.key in held:
                names.append(one)
                continue
            node_id = free_id((one.name, one.type), taken)
            taken.add(node_id)
            names.append(
                replace(one, node_id=node_id, canonical_name=one.name, probability=1.0, reason=FOUNDED, founded=True)
            )
            pairs.append(
                ReviewPair(
                    *(one.name, one.type, node_id, founder.name, founder.type, founder.node_id),
                    *(one.probability, f"would merge: {one.reason}", min(one.count, founder.count)),
                    *(one.context, founder.context),
                )
            )
        return replace(self, names=tuple(names), review=in_order_of_change([*pairs, *self.review]))

    def _keys_like(self, one: NameRecord) -> list[NameKey]:
        """Names of the same form; of any type and context, if none is given."""
        wanted = key_of(" ".join(one.name.split()), one.type)
        like = [
            row.key
            for row in self.names
            if (form := key_of(row.name, row.type)) == wanted or (not one.type and form[0] == wanted[0])
        ]
        return [key for key in like if key[2] == shortened(one.context)] or like


def in_order_of_change(pairs: Iterable[ReviewPair]) -> tuple[ReviewPair, ...]:
    """Pairs by how many names a decision is expected to move: how often they were given, times the probability."""
    return tuple(sorted(pairs, key=lambda pair: (-pair.change * pair.probability, pair.name, pair.other)))


def _founded(
    leaving: list[NameKey], current: Mapping[NameKey, ResolvedName], taken: set[str]
) -> dict[NameKey, ResolvedName]:
    """Names with a node of their own, apart from their former one."""
    first = max(leaving, key=lambda key: (current[key].count, key))
    node_id = free_id(key_of(*first[:2]), taken)
    taken.add(node_id)
    return {
        key: replace(
            current[key],
            node_id=node_id,
            canonical_name=first[0],
            entity_id=None,
            kb=None,
            probability=1.0,
            reason=FOUNDED if key == first else DECIDED,
            founded=key == first,
            apart=tuple(dict.fromkeys((*current[key].apart, current[key].node_id))),
        )
        for key in leaving
    }


def apply_to_nodes(names: Sequence[ResolvedName], decisions: Iterable[Decision]) -> list[ResolvedName]:
    """Earlier names with the nodes that decisions give them; decisions about other names change nothing."""
    current = list(names)
    places: dict[tuple[str, str], list[int]] = {}  # decisions change rows, and not their order
    for i, one in enumerate(current):
        places.setdefault(key_of(one.name, one.type), []).append(i)

    def rows(name: str, type_: str, context: str) -> list[ResolvedName]:
        every = [current[i] for i in places.get(key_of(" ".join(name.split()), type_), ())]
        return [one for one in every if one.context == context] or every

    for decision in decisions:
        ours = rows(decision.name, decision.type, decision.context)
        theirs = rows(decision.other, decision.other_type, decision.other_context)
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
        wanted = {one.key for one in ours}
        return [
            replace(one, apart=tuple(dict.fromkeys((*one.apart, *sorted(nodes - {""}))))) if one.key in wanted else one
            for one in names
        ]
    if leaving.founded and theirs:  # the name that the node is called by stays
        leaving = next((one for one in theirs if not one.founded), leaving)
    return list(Resolution(tuple(names)).undo([NameRecord(leaving.name, leaving.type, "", leaving.context)]).names)


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


def node_lines(names: Iterable[ResolvedName], inputs: Sequence[str]) -> Iterator[str]:
    """The lines of a file of nodes, with `Resolution.inputs`, without their ends."""
    yield table_line(NODE_COLUMNS)
    for number, one in enumerate(names):
        yield table_line(
            (
                *(one.name, one.type, one.node_id, one.canonical_name, one.entity_id or "", one.kb or ""),
                *(f"{one.probability:.4f}", one.reason, str(one.count), "yes" if one.founded else ""),
                *(join_list(one.apart), "" if number else join_list(inputs), one.context),
            )
        )


def review_lines(pairs: Iterable[ReviewPair]) -> Iterator[str]:
    """The lines of a file of pairs for a person to decide, the column `decision` empty."""
    yield table_line(REVIEW_COLUMNS)
    for one in pairs:
        yield table_line(
            (
                *("", f"{one.probability:.4f}", one.name, one.type, one.other, one.other_type),
                *(one.node_id, one.other_node_id, one.context, one.other_context, one.reason, str(one.change)),
            )
        )


def read_decisions(path: Path) -> list[Decision]:
    """Read the decided rows of a review. Raises FormatError if a column is missing, or a decision unknown."""
    decisions = []
    for number, row in _read_rows(path, ("decision", "name", "other")):
        written = row["decision"].strip().lower()
        if not written:
            continue
        verdict = VERDICTS.get(written)
        if verdict is None:
            message = f"the decision '{row['decision']}' is neither 'same' nor 'different'; or leave it empty"
            raise FormatError(str(path), number, message)
        decisions.append(
            Decision(
                *(row["name"], row["other"], verdict),
                *(row.get(column, "") for column in "type other_type other_node_id context other_context".split()),
            )
        )
    return decisions


def _read_rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    with path.open("rb") as file:
        lines = read_text_lines(file, str(path))
        _, header = next(lines, (1, ""))
        columns = header.split("\t")
        missing = [column for column in needed if column not in columns]
        if missing:
            raise FormatError(
                str(path), 1, f"the column {', '.join(missing)} is missing; the header is: {header[:200]}"
            )
        for number, text in lines:
            if text.strip():
                cells = text.split("\t")
                yield number, dict(zip(columns, cells + [""] * (len(columns) - len(cells)), strict=False))


BATCH = 32  # Questions that the function gets at once, at most
DEFAULT_BUDGET = 1000  # Questions that the function gets in one run, at most; answers that are kept do not count


@dataclass(frozen=True, slots=True)
class Question:
    """Whether two names mean the same: the pair, with a context of each, and why it was not merged."""

    pair: ReviewPair

    @property
    def description(self) -> str:
        """What the graph says of the one name, or ""."""
        return self.pair.context

    @property
    def other_description(self) -> str:
        """What it says of the other."""
        return self.pair.other_context

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
) -> Resolution:
    """Ask the judge about the pairs for review, in their order, and do what it decides. Raises ValueError if it returns
    another number of answers than it got questions, or another answer.

    Args:
        judge: Gets at most `BATCH` questions at once, and `budget` in all.
        cache: File of earlier answers (JSON Lines), to which new ones are added as they come.
    """
    known = {} if cache is None else _read(Path(cache))
    questions = [Question(pair) for pair in found.review]
    new = [question for question in questions if question.key not in known][:budget]
    for start in range(0, len(new), BATCH):
        batch = new[start : start + BATCH]
        answers = list(judge(batch))
        if len(answers) != len(batch):
            raise ValueError(
                f"the judge got {len(batch)} questions and returned {len(answers)} answers; return one for each"
            )
        if wrong := [answer for answer in answers if answer not in ("same", "different", None)]:
            raise ValueError(f"the judge returned {wrong[0]!r}; an answer is 'same', 'different' or None")
        known.update({question.key: answer for question, answer in zip(batch, answers, strict=True)})
        if cache is not None:
            with Path(cache).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps({"key": one.key, "answer": known[one.key]}) + "\n" for one in batch)
    decided = [(question.pair, known.get(question.key)) for question in questions]
    decisions = [
        Decision(
            *(pair.name, pair.other, verdict, pair.type, pair.other_type, pair.other_node_id),
            *(pair.context, pair.other_context),
        )
        for pair, verdict in decided
        if verdict is not None
    ]
    names = apply_to_nodes(found.names, decisions)
    node_of = {one.key: one.node_id for one in names}
    left = [
        replace(
            pair,
            node_id=node_of[pair.name, pair.type, pair.context],
            other_node_id=node_of[pair.other, pair.other_type, pair.other_context],
        )
        for pair, verdict in decided
        if verdict is None
    ]
    return replace(
        found,
        names=tuple(sorted(names, key=lambda one: (one.node_id, not one.founded, one.name))),
        review=tuple(pair for pair in left if pair.node_id != pair.other_node_id),
    )


def _read(path: Path) -> dict[str, Verdict | None]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.endswith("}")]
    return {row["key"]: VERDICTS.get(row["answer"]) if row["answer"] else None for row in rows}
