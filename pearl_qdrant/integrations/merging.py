"""The nodes of a graph that mean the same, for all connectors to graph builders: what to merge, a dry run, undoing.

    merger = NameMerger("nodes.tsv", dry_run=True)
    merger.merge({"n1": NameRecord("Albert Einstein", "PERSON"), "n2": NameRecord("A. Einstein", "PERSON")})
    print(merger.report())        # A. Einstein -> Albert Einstein (0.996: part of the name)

The file has the node of each name (`docs/resolve.md`): a later run keeps it, and keeps apart what was undone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pearl_qdrant.errors import OptionError
from pearl_qdrant.resolution import NameRecord, Resolution, ResolvedName, ReviewPair, resolve
from pearl_qdrant.resolution.names import key_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pearl_qdrant.resolution.resolving import PathLike, ResolveKeywords

K = TypeVar("K", bound=Hashable)
N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class Merged(Generic[K]):
    """Nodes of a graph that are one, or one alone.

    Attributes:
        key: The node that stays: the one that has the name, else the first.
        others: Those that go into it.
        name: What it is called; maybe a name of an earlier run or of a collection, but never one of another node.
        type: The type of the node that stays.
        aliases: Its other names, those of earlier runs among them.
        rows: What `resolve` says of each, in the order of `key` and `others`; none for a blank name.
    """

    key: K
    others: tuple[K, ...]
    name: str
    type: str
    aliases: list[str]
    rows: tuple[ResolvedName, ...]

    @property
    def added(self) -> dict[str, Any]:
        """What a builder should keep of it beside its name: `aliases`, and the `entity_id` of a collection."""
        entity_id = self.rows[0].entity_id if self.rows else None
        return {name: value for name, value in (("aliases", self.aliases), ("entity_id", entity_id)) if value}


class NameMerger:
    """Finds the nodes that mean the same, run after run.

    Attributes:
        dry_run: Whether `merge` merges nothing, and `merges` alone has what it would do.
        merges: What the last call merged, or would have.
        review: Pairs of names that are not certain enough, which stay two nodes.
        resolution: The node of each name so far.
    """

    def __init__(
        self, nodes: PathLike | None = None, *, dry_run: bool = False, **keywords: Unpack[ResolveKeywords]
    ) -> None:
        """Read the nodes of earlier runs from the file `nodes`, where there is one; each run writes it, but no dry one.
        The keywords are those of `resolve`, but `previous`.
        """
        if "previous" in keywords:
            raise OptionError("previous", "The earlier nodes are the first argument of NameMerger, as a file.")
        self._path, self._keywords = None if nodes is None else Path(nodes), keywords
        self.dry_run, self.merges, self.review = dry_run, list[Merged[Any]](), tuple[ReviewPair, ...]()
        self.resolution = Resolution.read(self._path) if self._path and self._path.exists() else Resolution(())

    def merge(self, records: Mapping[K, NameRecord]) -> list[Merged[K]]:
        """The nodes that are left of a graph's, whose names are given by key, in the order of their first one."""
        keywords: ResolveKeywords = {**self._keywords, "previous": self.resolution}
        found = resolve(list(records.values()), **keywords)
        groups: dict[object, list[tuple[K, ResolvedName | None]]] = {}
        for key, record in records.items():
            row = found.row(record)
            groups.setdefault((key,) if row is None else row.node_id, []).append((key, row))
        nodes: dict[str, set[object]] = {}
        names: dict[object, dict[str, None]] = {}
        for row in found.names:
            nodes.setdefault(row.name, set()).add(row.node_id)
            names.setdefault(row.node_id, {})[row.name] = None
        every = []
        for node, group in groups.items():
            rows = {key: row for key, row in group if row is not None}
            first, given = group[0][0], {row.name for row in rows.values()}
            name = next((row.canonical_name for row in rows.values()), records[first].name)
            if name not in given and nodes.get(name, {node}) != {node}:  # the name of another node
                name = records[first].name
            stays = next((key for key, row in rows.items() if row.name == name), first)
            others = tuple(key for key, _ in group if key != stays)
            aliases = [one for one in names.get(node, ()) if one != name]
            ordered = tuple(rows[key] for key in (stays, *others) if key in rows)
            every.append(Merged(stays, others, name, records[stays].type, aliases, ordered))
        self.merges = [one for one in every if one.others or one.name != records[one.key].name]
        self.review = found.review
        if self.dry_run:
            return [Merged(key, (), one.name, one.type, [], ()) for key, one in records.items()]
        self._keep(found)
        return every

    def undo(self, names: Iterable[str | NameRecord]) -> None:
        """Take names out of their nodes; later runs keep them apart. Raises OptionError if a name is unknown or alone
        in its node.
        """
        self._keep(self.resolution.undo(names))

    def take_apart(self, name: str, merges: list[list[N]], record: Callable[[N], NameRecord]) -> list[N]:
        """Remove from merges, whose nodes have these records, the one with a name, and return it, the node that stayed
        first: `undo` for its other names, but for those that are equal to the first except for case and spaces, which
        stay. Raises OptionError if there is none, or all are.
        """
        found = next((one for one in merges if name in [record(node).name for node in one]), None)
        if found is None:
            raise OptionError("undo", f"No node named {name!r} is in the {len(merges):,} merges of this object.")
        kept, *others = map(record, found)
        spelling = key_of(kept.name, kept.type)[0]
        apart = [other for other in others if key_of(other.name, other.type)[0] != spelling]
        if not apart:
            raise OptionError("undo", f"All nodes of {kept.name!r} have one name; nothing would keep them apart.")
        for other in apart:
            if self.resolution.node(other) == self.resolution.node(kept):
                self.undo([other])
        merges.remove(found)
        return found

    def report(self) -> str:
        """A line for each node that goes into another, or gets another name."""
        return "\n".join(
            f"{row.name} -> {one.name} ({row.probability:.3f}: {'same name' if row.name == one.name else row.reason})"
            for one in self.merges
            for place, row in enumerate(one.rows)
            if place or row.name != one.name
        )

    def _keep(self, found: Resolution) -> None:
        self.resolution = found
        if self._path is not None:
            found.write(self._path)


def new_names(before: Iterable[str], after: Iterable[str]) -> dict[str, str]:
    """The new name of each name of one text, for the ends of its relations. Where two entities have one name, nothing
    says which one a relation is of: the one that keeps the name has it.
    """
    found: dict[str, list[str]] = {}
    for old, new in zip(before, after, strict=True):
        found.setdefault(old, []).append(new)
    return {old: old if old in every else every[0] for old, every in found.items()}


def latest(key: str, merged: Mapping[str, str]) -> str:
    """The node that one is now, by the node that each merged one went into."""
    while key in merged:
        key = merged[key]
    return key
