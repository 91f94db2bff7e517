"""What goes into `resolve` and what comes out: names, decisions, and the node of each name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["same", "different"]


@dataclass(frozen=True, slots=True)
class NameRecord:
    """A name as a graph, a table or a text has it.

    Attributes:
        name: The string.
        type: Its type in the source's own words (`PERSON`, `disease`), or "". Names of types that differ stay apart.
        source: Where it was found (the id of a document or chunk), or "". An acronym joins its long form only where
            both were found in one source, or one context defines it.
        context: Text around it, or "". Abbreviations that it defines are merged, `tumor necrosis factor (TNF)`.
    """

    name: str
    type: str = ""
    source: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided of two names: the same entity, or different ones.

    Attributes:
        name, other: The names.
        type, other_type: Their types, or "".
        verdict: "same" or "different".
        other_node: The node of `other` when it was decided, or ""; needed where `other` is a name of a collection.
    """

    name: str
    other: str
    verdict: Verdict
    type: str = ""
    other_type: str = ""
    other_node: str = ""


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


@dataclass(frozen=True, slots=True)
class ReviewPair:
    """Two names in two nodes that may be one, for a person to decide.

    Attributes:
        name, type, node_id: One name.
        other, other_type, other_node_id: The other.
        probability: That both mean the same, in [0, 1].
        reason: Why they were not merged.
        change: How often the names were given that would move to another node by the other decision.
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
