"""Mentions with a joint: several names in a cell, or a name and its place.

    Munich; London          both are names of the base       NIL (several names), or each linked (`split`)
    Munich / London         names of two entities            the same
    Finland (Suomi)         names of one entity alone        that entity; so are `Finland/Suomi` and `Suomi, Finland`
    Siemens; Bayer          each is surely linked alone      the same, for `;`, `|` and newlines
    Robertet, Grasse        a field of the base has Grasse   Robertet, with Grasse compared as a value of its row
    Paris, Texas            a name and a place around it     as the whole is linked
    Johnson & Johnson       a name of the base               as the whole is linked

A whole that is a name by one of its keys goes before its parts. A list is cut into as few names as there can be.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rapidfuzz.distance import OSA

from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import is_common
from pearl_qdrant.linking.columns import OWN, EntityColumns, of_candidates
from pearl_qdrant.linking.mentions import is_no_name
from pearl_qdrant.linking.options import LinkOptions
from pearl_qdrant.linking.outcomes import as_nil
from pearl_qdrant.linking.plain_mentions import plain_mention
from pearl_qdrant.linking.values import EQUAL, BaseColumn
from pearl_qdrant.records import Link, NilReason
from pearl_qdrant.store.schema import NamePoint

if TYPE_CHECKING:
    from pearl_qdrant.linking.state import LinkerState

_JOINT = re.compile(r"[;|,&/\n；、]|\s(?:and|und|et|y|e|\+|or|oder|ou|vs\.?|[-–—])\s")
_BRACKET = re.compile(r"([^()\[\]]+)[(\[]([^()\[\]]+)[)\]]")
_LISTING = re.compile(r"[;|\n；]")  # between the parts of a list, and seldom within a name
_DASHES, _SLASH = frozenset("-–—"), "/"
_SHORT = 3  # letters of a word from which it is no sign of a unit
_SURELY = 0.8  # probability from which a part of such a list is one without being a name as it stands
_WINDOW = 128  # links that wait until their parts are looked up together
_MOST_PIECES = 60  # of a mention
_MOST_OF_NAME = 3  # pieces of a name that has joints itself, such as `Washington, D.C.`
_MOST_CHARACTERS = 2000
_SAME_KIND = 0.5  # share of the types of two entities that are common to both, from which they are of one kind
_COMMON = 0.8  # share of the names of a base that have a type which says nothing
_MOST_EDITS, _LETTERS_AN_EDIT = 2, 4  # of a slip of the whole
_PLACES = frozenset(("GPE", "LOC"))
_SETTLED = frozenset(("entity id", "learned name"))  # rules after which nothing is cut


def links_of_cells(state: LinkerState, mentions: Iterable[str], options: LinkOptions) -> Iterator[Link]:
    """`LinkerState.links` of mentions that may be lists of names, or names with their place."""
    return _unjoined(state, state.links(mentions, options, has_slips=True), options)


def _unjoined(state: LinkerState, links: Iterable[Link], options: LinkOptions) -> Iterator[Link]:
    """Links in their order; of mentions with a joint, those of lists are NIL, and places count as values."""
    waiting: list[Link] = []
    for link in links:
        if not waiting and not _is_jointed(link):
            yield link
            continue
        waiting.append(link)
        if len(waiting) == _WINDOW:
            yield from _decided(state, waiting, options)
            waiting = []
    yield from _decided(state, waiting, options)


def _is_jointed(link: Link) -> bool:
    """Whether a mention may be several names, or a name and its place."""
    text: object = link.mention  # what is no text is NIL
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
        return False
    if _JOINT.search(text) is None and "(" not in text and "[" not in text:
        return False
    if link.rule in _SETTLED or not link.candidates or link.nil_reason is NilReason.NO_NAME:
        return False
    return _key(link.candidates[0].name) != _key(text)


def _key(text: str) -> str:
    return spelling_key(fold_name(text))


@dataclass(frozen=True, slots=True)
class _Cut:
    """A mention cut at its joints: n pieces as they stand, and the n - 1 joints, without white space."""

    text: str
    places: Sequence[tuple[int, int]]
    joints: Sequence[str]

    @classmethod
    def of(cls, text: str) -> _Cut:
        start = 0
        places: list[tuple[int, int]] = []
        joints: list[str] = []
        for found in _JOINT.finditer(text):
            if text[start : found.start()].strip():
                places.append((start, found.start()))
                joints.append("")
            if joints:  # of several joints between two pieces the last one counts, as in `X, and Y`
                is_tight = not text[: found.start()][-1:].isspace() and not text[found.end() :][:1].isspace()
                joints[-1] = " / " if found[0] == _SLASH and not is_tight else found[0].strip()
            start = found.end()
        if text[start:].strip():
            places.append((start, len(text)))
        return cls(text, places, joints[: len(places) - 1])

    def run(self, first: int, last: int) -> str:
        """The pieces from one to another, with the joints between them."""
        return self.text[self.places[first][0] : self.places[last][1]].strip()

    def runs(self) -> list[str]:
        """All strings that may be one of several names."""
        n = len(self.places)
        ends = {i: range(i, min(n, i + _MOST_OF_NAME)) for i in range(n)}
        return [self.run(i, j) for i in ends for j in ends[i] if j - i < n - 1]

    def names(self, known: Mapping[str, Sequence[NamePoint]]) -> list[tuple[int, int]]:
        """The fewest known names that it consists of, as first and last pieces; none if there are none."""
        best: list[list[tuple[int, int]] | None] = [[]]
        for end in range(len(self.places)):
            found: list[tuple[int, int]] | None = None
            for start in range(max(0, end + 1 - _MOST_OF_NAME), end + 1):
                before, text = best[start], self.run(start, end)
                if before is not None and text in known and not is_no_name(text):
                    found = [*before, (start, end)] if found is None or len(before) + 1 < len(found) else found
            best.append(found)
        return best[-1] or []

    def parts(self, known: Mapping[str, Sequence[NamePoint]], common: Set[str]) -> list[str]:
        """The names of a list, each with the places behind it; none if all are names of one entity. `common` are types
        that nearly all entities have.
        """
        parts: list[tuple[int, int]] = []
        entities: list[set[tuple[str, str]]] = []
        before: Sequence[NamePoint] = ()
        for start, end in self.names(known):
            points = known[self.run(start, end)]
            if parts and self._is_place(start, before, points, common):
                parts[-1] = parts[-1][0], end
            else:
                parts.append((start, end))
                entities.append({(point.kb, point.entity_id) for point in points})
            before = points
        if not entities or set.intersection(*entities):
            return []
        found = [self.run(*one) for one in parts]
        slashed = all(self.joints[start - 1] == _SLASH for start, _ in parts[1:])
        return [] if slashed and all(map(_is_ordinary, found)) else found

    def _is_place(self, start: int, inner: Sequence[NamePoint], outer: Sequence[NamePoint], common: Set[str]) -> bool:
        """Whether the piece from which a name starts stands behind a comma or a dash as a place. Two with a dash
        between them are two things where both are of one type, or the base has no types.
        """
        joint = self.joints[start - 1]
        if joint in _DASHES:
            has_types = any(point.kb_types or point.types for point in outer)
            return has_types and _is_place_of(inner, outer, frozenset())
        return joint == "," and _is_place_of(inner, outer, common)

    def listed(self) -> list[str]:
        """The parts between the joints of lists, without white space; none if there is no such joint, or all are
        ordinary words: `join; unite` is one thing.
        """
        parts = [part.strip() for part in _LISTING.split(self.text)]
        found = [part for part in parts if part]
        return [] if len(found) < 2 or any(map(is_no_name, found)) or all(map(_is_ordinary, found)) else found

    def tails(self) -> list[tuple[str, str]]:
        """What stands before and behind each comma, from the last one on, back to the last other joint."""
        found = []
        for i in range(len(self.joints), 0, -1):
            if self.joints[i - 1] != ",":
                break
            found.append((self.run(0, i - 1), self.run(i, i)))
        return found


def _is_ordinary(part: str) -> bool:
    """Whether a part is an ordinary word or the sign of a unit: `warm/hot` and `bit/s` are one thing."""
    return len(part) < _SHORT or (part.isalpha() and is_common(part.lower()))


def _is_place_of(inner: Sequence[NamePoint], outer: Sequence[NamePoint], common: Set[str]) -> bool:
    """Whether the entities of two names with a comma between may be a thing and the place where it is: the second is a
    place, and not known to be of the kind of the first.
    """
    places = [point for point in _first(outer) if _is_place(point)]
    return any(
        not _is_one_kind(one, place, common) and not (_is_like(one, place) and not _is_place(one))
        for one in _first(inner)
        for place in places
    )


def _is_place(point: NamePoint) -> bool:
    return not _PLACES.isdisjoint(point.filter_types)


def _is_like(one: NamePoint, place: NamePoint) -> bool:
    """Whether both have the same types in the base, and the model alone takes the second for a place: two dishes."""
    return not place.types and bool(place.kb_types) and set(one.kb_types) == set(place.kb_types)


def _first(points: Sequence[NamePoint]) -> Sequence[NamePoint]:
    """Those whose canonical name it is, if there are such."""
    return [point for point in points if point.is_canonical] or points


def _is_one_kind(one: NamePoint, other: NamePoint, common: Set[str]) -> bool:
    kinds = [(set(point.kb_types).difference(point.types) or set(point.types)) - common for point in (one, other)]
    return bool(kinds[0] & kinds[1]) and len(kinds[0] & kinds[1]) >= _SAME_KIND * len(kinds[0] | kinds[1])


def _decided(state: LinkerState, links: Sequence[Link], options: LinkOptions) -> list[Link]:
    """The links of a window."""
    decided = list(links)
    jointed = [i for i, link in enumerate(links) if _is_jointed(link)]
    whole = state.known_spellings([links[i].mention for i in jointed], n_keys=3)
    cuts = {i: _Cut.of(plain_mention(links[i].mention)) for i in jointed if links[i].mention not in whole}
    twins = {i: [*map(str.strip, both.groups())] for i, cut in cuts.items() if (both := _BRACKET.fullmatch(cut.text))}
    cuts = {i: cut for i, cut in cuts.items() if 1 < len(cut.places) <= _MOST_PIECES}
    runs = {run for cut in cuts.values() for run in cut.runs()}.union(*twins.values())
    known = state.points_spelled(list(runs)) if runs else {}
    twins |= {i: [cut.run(*one) for one in cut.names(known)] for i, cut in cuts.items() if i not in twins}
    own = {i: part for i, parts in twins.items() if (part := _name_of_one(parts, known)) is not None}
    for i, link in zip(own, state.links(own.values(), options), strict=True):
        decided[i] = replace(link, mention=links[i].mention)
        cuts.pop(i, None)
    for i, link in _in_places(state, {i: (links[i], cut) for i, cut in cuts.items()}, known, options).items():
        decided[i] = link
        del cuts[i]
    common = _common_types(state) if cuts else frozenset()
    lists = {i: cut.parts(known, common) for i, cut in cuts.items()}
    for i, parts in {**lists, **_listed(state, {i: cuts[i] for i in cuts if not lists[i]}, options)}.items():
        if len({_key(part) for part in parts}) < 2 or _covers(links[i], parts):
            continue
        found = tuple(links_of_cells(state, parts, options)) if options.split else ()
        decided[i] = replace(as_nil(links[i], NilReason.SEVERAL_NAMES), rule=None, parts=found)
    return decided


def _name_of_one(parts: Sequence[str], known: Mapping[str, Sequence[NamePoint]]) -> str | None:
    """The part that one entity alone has as its name, if the others are all names of it, too."""
    if len(set(map(_key, parts))) < 2 or any(part not in known or is_no_name(part) for part in parts):
        return None
    entities = [{(point.kb, point.entity_id) for point in known[part]} for part in parts]
    both = set.intersection(*entities)
    alone = [part for part, of in zip(parts, entities, strict=True) if of == both]
    return alone[0] if alone and len(both) == 1 else None


def _listed(state: LinkerState, cuts: Mapping[int, _Cut], options: LinkOptions) -> dict[int, list[str]]:
    """The parts of lists whose parts are not all names as they stand, but each surely linked, to different entities."""
    lists = {i: parts for i, cut in cuts.items() if (parts := cut.listed())}
    if not lists:
        return {}
    every = list(dict.fromkeys(part for parts in lists.values() for part in parts))
    linked = dict(zip(every, links_of_cells(state, every, options.updated(split=False)), strict=True))
    sure = {
        part: (link.kb, link.entity_id)
        for part, link in linked.items()
        if link.entity_id is not None and (link.probability or 0.0) >= _SURELY
    }
    return {
        i: parts
        for i, parts in lists.items()
        if all(part in sure for part in parts) and len({sure[part] for part in parts}) > 1
    }


def _common_types(state: LinkerState) -> frozenset[str]:
    """Types that do not tell the entities of the base apart, as in a list of countries."""
    least = _COMMON * math.exp(state.statistics.targets().log_size)
    return frozenset(name for name, n in state.statistics.type_counts().items() if n >= least)


def _covers(link: Link, parts: Sequence[str]) -> bool:
    """Whether a mention is a slip of its best name, or linked to one which has the words of all its parts, each as
    often: `The Matrix` has not those of `The Matrix and The Matrix Revolutions`.
    """
    name, mention = link.candidates[0].name, _key(link.mention)
    n_edits = OSA.distance(mention, _key(name), score_cutoff=_MOST_EDITS)
    is_slip = n_edits <= min(_MOST_EDITS, len(mention) / _LETTERS_AN_EDIT)
    has_words = Counter(fold_name(" ".join(parts)).split()) <= Counter(fold_name(name).split())
    return is_slip or (has_words and link.entity_id is not None)


def _in_places(
    state: LinkerState,
    cuts: Mapping[int, tuple[Link, _Cut]],
    known: Mapping[str, Sequence[NamePoint]],
    options: LinkOptions,
) -> dict[int, Link]:
    """The links of mentions whose ends behind commas are values of the base's fields, by the names before them."""
    tails = {i: found for i, (_, cut) in cuts.items() if (found := cut.tails())}
    columns = {name: one for name, one in state.statistics.columns().items() if name not in OWN} if tails else {}
    if not columns:
        return {}
    from pearl_qdrant.linking.properties import link_rows_once

    near = of_candidates(state.collections, [one for i in tails for one in cuts[i][0].candidates])
    heads: dict[int, tuple[str, dict[str, list[str]]]] = {}
    for i, found in tails.items():
        has = [near[key] for one in cuts[i][0].candidates if (key := (one.kb, one.entity_id)) in near]
        row: dict[str, list[str]] = {}
        for head, tail in found:
            forms = list(dict.fromkeys([tail, *(point.canonical_name for point in known.get(tail, ()))]))
            of_tail = [name for name, column in columns.items() if _is_value(name, column, forms, has)]
            if not of_tail:
                break
            for name in of_tail:
                row.setdefault(name, []).extend(forms)
            heads[i] = head, row
    linked = link_rows_once(state, list(heads.values()), options)
    return {
        i: replace(link, mention=cuts[i][0].mention)
        for i, link in zip(heads, linked, strict=True)
        if link.entity_id is not None or heads[i][0] in known
    }


def _is_value(name: str, column: BaseColumn, forms: Sequence[str], has: Sequence[EntityColumns]) -> bool:
    """Whether a text is a value of a column, in the base's sample or of a candidate."""
    return column.kind != "number" and (
        column.how_many(forms) > 0 or any(column.level(forms, one.values(name)) == EQUAL for one in has)
    )
