"""What decisions change in earlier nodes: names leave, or two nodes become one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pearl_qdrant.resolution.names import key_of
from pearl_qdrant.resolution.pairs.reasons import DECIDED
from pearl_qdrant.resolution.records import Decision, NameRecord, ResolvedName
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
