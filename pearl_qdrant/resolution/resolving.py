"""`resolve`: names of a graph or table to nodes: earlier ones, entities of collections, clusters of the rest."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, compress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import UnknownTypeError
from pearl_qdrant.linking.linker import EntityLinker
from pearl_qdrant.linking.options import check_threshold
from pearl_qdrant.linking.ranking.scoring import EXACT_CERTAINTY
from pearl_qdrant.records import Link
from pearl_qdrant.resolution.clusters import Cluster, Group, NearPair, NilClusters, Pair
from pearl_qdrant.resolution.contexts import Contexts
from pearl_qdrant.resolution.names import CanonicalNames, Forms, NameRecord, free_id, gather, key_of, read_names
from pearl_qdrant.resolution.pairs.model import DECIDED, EQUAL, FOUNDED, shipped_model
from pearl_qdrant.resolution.resolution import (
    DEFAULT_BUDGET,
    Decision,
    Judge,
    Resolution,
    ResolvedName,
    ReviewPair,
    apply_judge,
    apply_to_nodes,
    in_order_of_change,
    read_decisions,
)
from pearl_qdrant.settings import DEFAULT_DEVICE, DEFAULT_MODEL

if TYPE_CHECKING:
    from typing_extensions import Unpack

PathLike = str | os.PathLike[str]
TypeMode = Literal["hard", "off"]

DEFAULT_PRECISION = 0.98  # Share of the merges that are right where nothing else is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveOptions:
    """How names are resolved.

    Attributes:
        linker: Links names to its collections first. Default: no collection, or those that `collection` names.
        collection: Name of one or several collections to open read-only; an alternative to `linker`.
        store: Where they are; default as for `EntityLinker.open`.
        encoder: Makes the vectors. Default: that of the linker, else `model`.
        model: Shipped name, folder or hub id of the encoder.
        device: Device of the encoder.
        type_mode: "hard" keeps names of types that differ apart, but not of unknown and coarser ones (`names.py`);
            "off" ignores types.
        precision: Share of the merges that should be right; what is less certain goes to the review. From 0.9 on, no
            pair with a doubt is merged.
        propose: Merge nothing; what would have been merged is asked.
        link_threshold: Least probability of a link to the collection; default is the linker's.
        previous: An earlier result, or its file. Its names keep their nodes; new names join them or found nodes. Where
            it has counted the very same names already, they are not counted again.
        decisions: What a person decided, or the file of a review with its column `decision` filled in.
        judge: A function that decides the pairs for review, in batches; a language model can do so.
        judge_budget: Pairs that it gets, at most.
        judge_cache: File of its answers, by the content of the questions.

    Raises:
        OptionError: If `precision` is out of reach.
        ValueError: If it or a threshold is not in [0, 1], or both `linker` and `collection` are given.
    """

    linker: EntityLinker | None = None
    collection: str | Sequence[str] | None = None
    store: str | None = None
    encoder: Encoder | None = None
    model: str | None = None
    device: str = DEFAULT_DEVICE
    type_mode: TypeMode = "hard"
    precision: float = DEFAULT_PRECISION
    propose: bool = False
    link_threshold: float | None = None
    previous: Resolution | Iterable[ResolvedName] | PathLike | None = None
    decisions: Iterable[Decision] | PathLike = ()
    judge: Judge | None = None
    judge_budget: int = DEFAULT_BUDGET
    judge_cache: PathLike | None = None

    def __post_init__(self) -> None:
        check_threshold(self.precision)
        shipped_model().threshold(self.precision)
        check_threshold(self.link_threshold)
        if self.type_mode not in ("hard", "off"):
            raise ValueError(f"type_mode is 'hard' or 'off', not {self.type_mode!r}")
        if self.linker is not None and self.collection is not None:
            raise ValueError("give either an open linker, or the name of a collection")


class ResolveKeywords(TypedDict, total=False):
    """The fields of `ResolveOptions` as keyword arguments."""

    linker: EntityLinker | None
    collection: str | Sequence[str] | None
    store: str | None
    encoder: Encoder | None
    model: str | None
    device: str
    type_mode: TypeMode
    precision: float
    propose: bool
    link_threshold: float | None
    previous: Resolution | Iterable[ResolvedName] | PathLike | None
    decisions: Iterable[Decision] | PathLike
    judge: Judge | None
    judge_budget: int
    judge_cache: PathLike | None


def resolve(
    names: Iterable[str | NameRecord] | PathLike,
    options: ResolveOptions | None = None,
    **keywords: Unpack[ResolveKeywords],
) -> Resolution:
    """Find the names of one entity, and give each a node.

    Names that a collection knows get the id of its entity. The others are clustered among themselves: average linkage
    of the probabilities of pairs, where types, numbers, opposites and decisions forbid merges, and every name agrees
    with the name that its node is called by. The result does not depend on the order of the names. Raises FormatError
    if a file cannot be read as what it should be; ValueError if an option is not valid, or the judge gives another
    answer than it should.

    Args:
        names: Strings or records, as any iterable; or a file, see `names.read_names`.
        options: A keyword overrides its field.
    """
    asked = replace(options or ResolveOptions(), **keywords)
    linker, decisions = asked.linker, asked.decisions
    earlier = _earlier(asked.previous)
    decided = read_decisions(Path(decisions)) if isinstance(decisions, (str, os.PathLike)) else list(decisions)
    with ExitStack() as stack:
        if asked.collection is not None:
            wanted = [asked.collection] if isinstance(asked.collection, str) else asked.collection
            opened = EntityLinker.open(
                *wanted, store=asked.store, model=asked.model, device=asked.device, read_only=True
            )
            linker = stack.enter_context(opened)
        records: Iterable[str | NameRecord]
        if isinstance(names, os.PathLike) or (
            isinstance(names, str) and len(names) < 4096 and not {"\n", "\0"} & set(names) and Path(names).is_file()
        ):
            file = stack.enter_context(Path(names).open("rb"))
            records = read_names(file, str(names))
        elif isinstance(names, str):
            raise TypeError(f"names is one string that is no file: {names[:80]!r}; pass a list of names")
        else:
            records = names
        if asked.type_mode == "off":
            records = (replace(one, type="") if isinstance(one, NameRecord) else one for one in records)
        known = {one.key: (one.count, one.node_id) for one in earlier.names}
        encoder = cache(lambda: _encoder(asked, linker))
        contexts = Contexts(encoder)
        forms = gather(records, known=known, inputs=earlier.inputs, contexts=contexts)
        assignment = Assignment(forms, earlier.names, decided)
        if linker is not None:
            assignment.link(linker, asked.link_threshold)
        found = assignment.cluster(encoder, asked.precision, contexts)
        if asked.propose:
            found = found.proposed(earlier.names)
        elif asked.judge is not None:
            found = apply_judge(found, asked.judge, budget=asked.judge_budget, cache=asked.judge_cache)
        return replace(found, inputs=forms.inputs, is_repeated=bool(known) and forms.inputs == earlier.inputs)


def _encoder(asked: ResolveOptions, linker: EntityLinker | None) -> Encoder:
    if asked.encoder is not None:
        return asked.encoder
    if linker is not None:
        return linker.encoder
    from pearl_qdrant.encoder.loading import load_encoder

    return load_encoder(asked.model or DEFAULT_MODEL, device=asked.device)


def _earlier(previous: Resolution | Iterable[ResolvedName] | PathLike | None) -> Resolution:
    if previous is None or isinstance(previous, Resolution):
        return previous or Resolution(())
    if isinstance(previous, (str, os.PathLike)):
        return Resolution.read(previous)
    return Resolution(tuple(previous))


ASKED_FROM = 0.5  # Least probability of a pair that a person is asked about
STRICT_FROM = 0.9  # Precision from which a doubt forbids a merge


class Assignment:
    """The names of one run, those of the earlier one among them, while they get their nodes."""

    def __init__(self, forms: Forms, earlier: Sequence[ResolvedName], decisions: Sequence[Decision]) -> None:
        self._forms = forms
        # Tables of all names take 250 bytes a name, so they are made only where they are needed.
        self._form: dict[tuple[str, str], list[int]] = {}
        for form, key in enumerate(forms.keys if decisions else ()):
            self._form.setdefault(key, []).append(form)
        held = apply_to_nodes(earlier, decisions)
        number = {name[:n]: i for i, name in enumerate(forms.names) for n in (2, 3)} if held else {}
        self._rows: dict[int, ResolvedName] = {number.get(one.key, number[one.key[:2]]): one for one in held}
        self._taken = {one.node_id for one in held}
        self._decisions = decisions
        self._equal = EXACT_CERTAINTY  # what equal spellings are shown with: they are one at any precision
        self._several = False
        self._of_form: dict[int, ResolvedName] = {}
        for i, row in sorted(self._rows.items()):
            known = self._of_form.get(forms.form_of[i])
            if known is None or row.founded:
                self._of_form[forms.form_of[i]] = row

    def link(self, linker: EntityLinker, threshold: float | None) -> None:
        """Give new names the entities of the linker's collections; a type that these do not have is no filter."""
        by_type: dict[str, list[int]] = {}
        for number, (_, type_, _) in enumerate(self._forms.names):
            if number not in self._rows:
                by_type.setdefault(type_, []).append(number)
        found: dict[int, Link] = {}
        for type_, rows in sorted(by_type.items()):
            names = [self._forms.names[row][0] for row in rows]
            try:
                links = linker.link_batch(names, types=[type_] if type_ else (), threshold=threshold)
            except UnknownTypeError:
                links = linker.link_batch(names, threshold=threshold)
            found.update((row, link) for row, link in zip(rows, links, strict=True) if link.entity_id is not None)
        self._several = len({link.kb for link in found.values()}) > 1
        apart = self._decided_apart()
        for number, link in found.items():
            row = self._linked(number, link)
            if row.node_id in apart.get(number, ()):
                continue
            self._rows[number] = row
            form = self._forms.form_of[number]
            known = self._of_form.get(form)
            if known is None or (known.entity_id and known.probability < row.probability):
                self._of_form[form] = row

    def _linked(self, number: int, link: Link) -> ResolvedName:
        """The row of a name with an entity; its node is the entity's id, with its base where there are several."""
        name, type_, context = self._forms.names[number]
        entity_id = link.entity_id or ""
        return ResolvedName(
            *(name, type_, f"{link.kb}:{entity_id}" if self._several else entity_id, link.canonical_name or entity_id),
            *(entity_id, link.kb, link.probability or 0.0, f"linked: {link.rule}" if link.rule else "linked"),
            self._forms.counts[number],
            context=context,
        )

    def _decided_apart(self) -> dict[int, list[str]]:
        """Nodes that names must not have, by their number."""
        found: dict[int, list[str]] = {}
        for decision in self._decisions:
            if decision.verdict == "different" and decision.other_node:
                key = key_of(" ".join(decision.name.split()), decision.type)
                for number, form in enumerate(self._forms.form_of):
                    if self._forms.keys[form] == key:
                        found.setdefault(number, []).append(decision.other_node)
        return found

    def cluster(self, encoder: Callable[[], Encoder], precision: float, contexts: Contexts) -> Resolution:
        """Cluster what has no entity; all names with their nodes. The encoder is loaded if it is needed."""
        known, self._equal = self._of_form, max(EXACT_CERTAINTY, precision)
        together = self._together_with_entities()
        is_open = (
            form not in together and (form not in known or not known[form].entity_id)
            for form in range(len(self._forms))
        )
        open_ = array("q", compress(range(len(self._forms)), is_open))
        near: Iterable[NearPair] = ()
        if any(form not in known for form in open_):
            near = self._cluster(open_, encoder(), precision, contexts)
        names = tuple(sorted(self._all_rows(together), key=lambda one: (one.node_id, not one.founded, one.name)))
        near_forms = (replace(pair, a=open_[pair.a], b=open_[pair.b]) for pair in near)
        return Resolution(names, _review_pairs(self._forms, names, near_forms))

    def _cluster(
        self, open_: Sequence[int], encoder: Encoder, precision: float, contexts: Contexts
    ) -> Iterable[NearPair]:
        place = self._places(open_)
        forms, model = self._forms.subset(open_), shipped_model()
        groups = self._groups(place)
        threshold = model.threshold(precision)
        clusters = NilClusters(
            *(forms, encoder, model, self._apart(place)),
            threshold=threshold,
            asked_from=min(ASKED_FROM, threshold),
            is_strict=precision >= STRICT_FROM,
            contexts=contexts,
        )
        found = clusters.cluster(groups=groups, prefer=CanonicalNames(forms).weights)
        for cluster in found:
            cluster.agreement = {member: model.precision_at(one) for member, one in cluster.agreement.items()}
        held = {member for group in groups for member in group.members}
        pairs = [(c.representative, m) for c in found for m in c.members if m != c.representative]
        reasons = dict(zip(pairs, clusters.reasons(pairs), strict=True))
        for cluster in found:
            self._place(cluster, open_, held, reasons)
        clustered = {member for cluster in found for member in cluster.members}
        for i in range(len(open_)):
            if i not in clustered and open_[i] not in self._of_form:
                self._place(Cluster([i], i, {i: 1.0}), open_, held, {})
        return clusters.near_pairs()

    def _place(self, cluster: Cluster, open_: Sequence[int], held: set[int], reasons: dict[Pair, str]) -> None:
        """Give the forms of a cluster their node."""
        first = open_[cluster.representative]
        model = self._of_form.get(first)
        if model is None:
            name, type_, context = self._forms.names[self._forms.first[first]]
            node_id = free_id(self._forms.keys[first], self._taken)
            self._taken.add(node_id)
            count = self._forms.counts[self._forms.first[first]]
            model = ResolvedName(
                *(name, type_, node_id, name, None, None, 1.0, FOUNDED, count), founded=True, context=context
            )
            self._of_form[first] = model
        for member in cluster.members:
            form = open_[member]
            if form in self._of_form:
                continue
            is_decided, reason = member in held, reasons.get((cluster.representative, member), FOUNDED)
            probability = cluster.agreement[member]
            name, type_, context = self._forms.names[self._forms.first[form]]
            self._of_form[form] = ResolvedName(
                *(name, type_, model.node_id, model.canonical_name, None, None),
                1.0 if is_decided else min(probability, self._equal) if reason == EQUAL else probability,
                DECIDED if is_decided else reason,
                self._forms.counts[self._forms.first[form]],
                context=context,
            )

    def _all_rows(self, together: dict[int, ResolvedName]) -> Iterable[ResolvedName]:
        """The row of each distinct name."""
        for number, (name, type_, context) in enumerate(self._forms.names):
            form, count = self._forms.form_of[number], self._forms.counts[number]
            if (row := self._rows.get(number)) is not None:
                yield replace(row, count=count, context=context)
                continue
            model = together.get(form) or self._of_form[form]
            own = replace(model, name=name, type=type_, context=context, count=count)
            if form in together:
                yield replace(own, probability=1.0, reason=DECIDED, founded=False, apart=())
            elif own.key == model.key:
                yield own
            else:
                yield replace(own, probability=min(model.probability, self._equal), reason=EQUAL, founded=False)

    def _form_of(self, name: str, type_: str, context: str) -> int | None:
        forms = self._form.get(key_of(" ".join(name.split()), type_), ())
        return next((one for one in forms if context in self._forms.contexts.get(one, ("",))), next(iter(forms), None))

    def _pairs(self, verdict: str) -> Iterable[Pair]:
        """Forms of decisions."""
        for decision in self._decisions:
            if decision.verdict == verdict:
                a = self._form_of(decision.name, decision.type, decision.context)
                b = self._form_of(decision.other, decision.other_type, decision.other_context)
                if a is not None and b is not None and a != b:
                    yield a, b

    def _together_with_entities(self) -> dict[int, ResolvedName]:
        """Forms that a person put to a name of an entity, with a row of it."""
        found: dict[int, ResolvedName] = {}
        for a, b in self._pairs("same"):
            for one, other in ((a, b), (b, a)):
                row = self._of_form.get(other)
                if one not in self._of_form and row is not None and row.entity_id:
                    found[one] = row
        return found

    def _places(self, open_: Sequence[int]) -> dict[int, int]:
        """The places in `open_` of the forms that earlier runs or decisions have, in order."""
        wanted = {form for pair in chain(self._pairs("same"), self._pairs("different")) for form in pair}
        found = {form: bisect_left(open_, form) for form in sorted(wanted | self._of_form.keys())}
        return {form: i for form, i in found.items() if i < len(open_) and open_[i] == form}

    def _groups(self, place: dict[int, int]) -> list[Group]:
        """Earlier nodes, and forms that a person put together."""
        groups: dict[int, Group] = {}  # by member
        nodes: dict[str, Group] = {}
        for form, i in place.items():
            if (row := self._of_form.get(form)) is not None:
                group = nodes.setdefault(row.node_id, Group([]))
                group.members.append(i)
                if row.founded or group.founder is None:
                    group.founder = i
                groups[i] = group
        for a, b in self._pairs("same"):
            if a in place and b in place:
                one, other = (groups.get(i) or Group([i]) for i in (place[a], place[b]))
                if one is other or (one.founder is not None and other.founder is not None):
                    continue
                one.members += other.members
                one.founder = other.founder if one.founder is None else one.founder
                groups.update(dict.fromkeys(one.members, one))
        return list({id(group): group for group in groups.values()}.values())

    def _apart(self, place: dict[int, int]) -> set[Pair]:
        """Pairs that a person decided to be different, now or in an earlier run."""
        found = {(place[a], place[b]) for a, b in self._pairs("different") if a in place and b in place}
        of_node: dict[str, list[int]] = {}
        for form, i in place.items():
            if (row := self._of_form.get(form)) is not None:
                of_node.setdefault(row.node_id, []).append(i)
        for form, i in place.items():
            if (row := self._of_form.get(form)) is not None:
                found |= {(i, other) for node in row.apart for other in of_node.get(node, ()) if other != i}
        return found


def _review_pairs(forms: Forms, names: Sequence[ResolvedName], near: Iterable[NearPair]) -> tuple[ReviewPair, ...]:
    """Of each two nodes that may be one, the most probable pair; those whose decision changes most first."""
    by_name = {one.key: one for one in names}
    given = Counter[str]()
    for one in names:
        given[one.node_id] += one.count
    best: dict[tuple[str, str], ReviewPair] = {}
    for pair in near:
        one, other = (by_name[forms.names[forms.first[form]]] for form in (pair.a, pair.b))
        if one.node_id == other.node_id or one.node_id in other.apart or other.node_id in one.apart:
            continue
        key = (min(one.node_id, other.node_id), max(one.node_id, other.node_id))
        if key not in best or best[key].probability < pair.probability:
            best[key] = ReviewPair(
                *(one.name, one.type, one.node_id, other.name, other.type, other.node_id),
                *(pair.probability, pair.reason, min(given[one.node_id], given[other.node_id])),
                *(one.context, other.context),
            )
    return in_order_of_change(best.values())
