"""`Resolution`: the node of each name, pairs for review, and undoing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pearl_qdrant.errors import OptionError
from pearl_qdrant.resolution.files import node_lines, read_nodes, review_lines
from pearl_qdrant.resolution.names import free_id, key_of
from pearl_qdrant.resolution.pairs.model import DECIDED, FOUNDED
from pearl_qdrant.resolution.records import NameRecord, ResolvedName, ReviewPair
from pearl_qdrant.store.atomic import write_lines


@dataclass(frozen=True)
class Resolution:
    """What `resolve` found.

    Attributes:
        names: One for each distinct name and type, sorted by node.
        review: Pairs that are asked, those whose decision changes most first.
        inputs: Digests of the names that were given and counted, run after run.
        is_repeated: Whether the names of this run were counted by an earlier one.
    """

    names: tuple[ResolvedName, ...]
    review: tuple[ReviewPair, ...] = ()
    inputs: tuple[str, ...] = ()
    is_repeated: bool = False

    @cached_property
    def _by_name(self) -> Mapping[tuple[str, str], ResolvedName]:
        return {(one.name, one.type): one for one in self.names}

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
        one = NameRecord(name, kind) if isinstance(name, str) else name
        found = self._by_name.get((" ".join(one.name.split()), one.type.strip()))
        return None if found is None else found.node_id

    def write(self, nodes: str | os.PathLike[str], *, review: str | os.PathLike[str] | None = None) -> None:
        """Write the nodes, and before them the pairs for review where a path is given (`resolution.files`).

        A run that was killed can be repeated with the nodes that it has written, if any, as `previous`: both files are
        then those of one whole run. So the pairs of a run that is repeated stay as they are.
        """
        if review is not None and not (self.is_repeated and Path(review).exists()):
            self.write_review(review)
        write_lines(Path(nodes), node_lines(self.names, self.inputs))

    def write_review(self, path: str | os.PathLike[str]) -> None:
        """Write the pairs for review alone."""
        write_lines(Path(path), review_lines(self.review))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Resolution:
        """Read what `write` wrote, without pairs for review.

        Raises:
            FormatError: If it is not such a file.
        """
        names, inputs = read_nodes(Path(path))
        return cls(tuple(names), inputs=inputs)

    def undo(self, names: Iterable[str | NameRecord]) -> Resolution:
        """Take names out of their nodes: each founds a node of its own, and later runs keep it apart from the former.

        Names that are equal but for case and spaces leave together. All other ids stay.

        Raises:
            OptionError: If a name is unknown, or alone in its node.
        """
        current = {(one.name, one.type): one for one in self.names}
        taken = {one.node_id for one in self.names}
        for name in names:
            one = NameRecord(name) if isinstance(name, str) else name
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
        """The names with their merges undone, and each merge among the pairs for review.

        Args:
            earlier: Names of an earlier run, which keep their nodes.
        """
        held = {(one.name, one.type) for one in earlier}
        founders = {one.node_id: one for one in self.names if one.founded}
        taken = {one.node_id for one in self.names}
        names, pairs = [], []
        for one in self.names:
            founder = founders.get(one.node_id)
            if one.entity_id is not None or one.founded or founder is None or (one.name, one.type) in held:
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
                )
            )
        return replace(self, names=tuple(names), review=in_order_of_change([*pairs, *self.review]))

    def _keys_like(self, one: NameRecord) -> list[tuple[str, str]]:
        """Names of the same form; of any type, if none is given."""
        wanted = key_of(" ".join(one.name.split()), one.type)
        return [
            key for key in self._by_name if (form := key_of(*key)) == wanted or (not one.type and form[0] == wanted[0])
        ]


def in_order_of_change(pairs: Iterable[ReviewPair]) -> tuple[ReviewPair, ...]:
    """Pairs by how many names a decision is expected to move: how often they were given, times the probability."""
    return tuple(sorted(pairs, key=lambda pair: (-pair.change * pair.probability, pair.name, pair.other)))


def _founded(
    leaving: list[tuple[str, str]], current: Mapping[tuple[str, str], ResolvedName], taken: set[str]
) -> dict[tuple[str, str], ResolvedName]:
    """Names with a node of their own, apart from their former one."""
    first = max(leaving, key=lambda key: (current[key].count, key))
    node_id = free_id(key_of(*first), taken)
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
