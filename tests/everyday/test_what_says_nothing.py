"""A base that changes in one thing which says nothing of its names: what was linked and merged stays so, in every call.

Each change keeps what a name means: the unit of popularity, a period after each name, descriptions, types, upper case,
ids, the order, and unrelated entities beside. Exact names of one entity are linked before and after it. Names of a list
that are merged stay so, but for `FEW` in a hundred.

Names in capitals alone, as many lists have them, are read as others write them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from pathlib import Path

import pytest
from pair_table import other_outcomes

from pearl_qdrant import Entity, EntityLinker, read_entities
from pearl_qdrant.encoder.protocol import Encoder, predict_types
from pearl_qdrant.lexical.keys import spelling_key
from pearl_qdrant.lexical.ngrams import fold_name
from pearl_qdrant.lexical.words import usual_case
from pearl_qdrant.resolution import NameRecord, resolve

SAMPLE = Path(__file__).parents[2] / "examples" / "sample_base.tsv"
EVERY, OTHERS = 23, 9  # which entities of the sample base are the base; and which of the rest are unrelated ones
SHORTEST = 4  # letters of a mention: shorter ones are acronyms of much else

FEW = 0.03
"""Share of merged pairs that a change may part."""

MORE = {"upper case": 0.1, "no types": 0.1}
"""Changes that part more: a list in capitals does not show which names are acronyms (`NASDAQ`, `Nasdaq Stock Market`);
that `Washington` is a person in this list, and `RSA` a country, is said by types alone.
"""


def _renamed(rename: Callable[[str], str]) -> Callable[[Sequence[Entity]], list[Entity]]:
    return lambda base: [
        replace(one, canonical_name=rename(one.canonical_name), aliases=tuple(map(rename, one.aliases))) for one in base
    ]


def _counted_in(unit: float) -> Callable[[Sequence[Entity]], list[Entity]]:
    return lambda base: [replace(one, popularity=(one.popularity or 0.0) / unit) for one in base]


def _with_period(name: str) -> str:
    return name if name.endswith(".") else f"{name}."


def _prefixed(base: Sequence[Entity]) -> list[Entity]:
    return [replace(one, entity_id=f"changed-{one.entity_id}") for one in base]


CHANGES: dict[str, Callable[[Sequence[Entity]], list[Entity]]] = {
    "thousands": _counted_in(1000.0),
    "millionths": _counted_in(1e-6),
    "no popularity": lambda base: [replace(one, popularity=None) for one in base],
    "periods": _renamed(_with_period),
    "upper case": _renamed(str.upper),
    "no descriptions": lambda base: [replace(one, description=None) for one in base],
    "descriptions": lambda base: [replace(one, description=f"the entity number {i}") for i, one in enumerate(base)],
    "no types": lambda base: [replace(one, kb_types=(), types=()) for one in base],
    "ids": _prefixed,
    "order": lambda base: list(reversed(base)),
    "unrelated": lambda base: [*base, *_unrelated()],
    "at once": lambda base: reduce(lambda changed, name: CHANGES[name](changed), AT_ONCE, list(base)),
}

AT_ONCE = ("thousands", "periods", "descriptions", "ids", "order")
"""Changes that the default run makes at once; the slow one tells which of them it was."""


def _sample() -> list[Entity]:
    return [replace(one, popularity=float(1 + 7919 * i % 1000)) for i, one in enumerate(read_entities(SAMPLE))]


def _unrelated() -> list[Entity]:
    """Entities of which no name is a name of the base."""
    own = {key for one in _base() for key in _keys(one)}
    rest = [one for i, one in enumerate(_sample()) if i % EVERY]
    return [one for one in rest[::OTHERS] if own.isdisjoint(_keys(one))]


def _base() -> list[Entity]:
    return _sample()[::EVERY]


def _keys(entity: Entity) -> set[str]:
    return {spelling_key(fold_name(name)) for name in entity.names()}


@pytest.fixture(scope="module")
def mentions() -> dict[str, str]:
    """Names that one entity alone has, with its id."""
    owners = Counter(key for one in _base() for key in _keys(one))
    found = {}
    for one in _base():
        for name in one.names():
            if owners[spelling_key(fold_name(name))] == 1 and len(fold_name(name)) >= SHORTEST:
                found[name] = one.entity_id
    return found


Answers = dict[str, dict[str, str | None]]
"""For each call, the entity of each mention."""


def answers(base: Sequence[Entity], mentions: Sequence[str], encoder: Encoder) -> Answers:
    """What each call says of the mentions, by the ids of the base before it changed."""
    pd = pytest.importorskip("pandas")
    from pearl_qdrant.integrations.pandas import link_column

    text, spans = "", []
    for mention in mentions:
        text += "We saw "
        spans.append((len(text), len(text) + len(mention)))
        text += f"{mention} there.\n\n"
    with EntityLinker.build(base, model=encoder) as linker:
        found: Answers = {
            "link": {one.mention: one.entity_id for one in linker.link_batch(mentions)},
            "link_document": {one.text: one.link.entity_id for one in linker.link_document(text, spans)},
            "link_column": dict(
                zip(
                    mentions, link_column(pd.DataFrame({"x": mentions}), "x", linker=linker)["x_entity_id"], strict=True
                )
            ),
        }
        for is_document in (False, True):
            annotated = linker.annotate(text, document=is_document)
            by_place = {(one.start, one.end): one.link.entity_id for one in annotated}
            name = f"annotate, document={is_document}"
            found[name] = {mention: by_place.get(span) for mention, span in zip(mentions, spans, strict=True)}
    return {
        call: {mention: key and str(key).removeprefix("changed-") for mention, key in of_call.items()}
        for call, of_call in found.items()
    }


@pytest.fixture(scope="module")
def before(mentions: dict[str, str], shipped: Encoder) -> Answers:
    """The answers before any change."""
    return answers(_base(), list(mentions), shipped)


def test_exact_names_are_linked_by_every_call(before: Answers, mentions: dict[str, str]) -> None:
    """A name of one entity alone is that entity, alone, in a column and in a document; most are found in a text."""
    for call in ("link", "link_document", "link_column"):
        assert before[call] == mentions, call
    for call in ("annotate, document=False", "annotate, document=True"):
        right = sum(before[call][mention] == key for mention, key in mentions.items())
        assert right > 0.8 * len(mentions), call


@pytest.mark.parametrize(
    "change", [pytest.param(name, marks=() if name == "at once" else (pytest.mark.slow,)) for name in CHANGES]
)
def test_exact_names_stay_linked(change: str, before: Answers, mentions: dict[str, str], shipped: Encoder) -> None:
    """What was linked to the right entity before is linked to it after a change that says nothing of it."""
    after = answers(CHANGES[change](_base()), list(mentions), shipped)
    for call, of_call in before.items():
        lost = {name: after[call][name] for name, key in of_call.items() if key == mentions[name] != after[call][name]}
        assert set(lost) <= EXCEPTIONS.get(change, set()), (call, lost)


EXCEPTIONS = {key: {"1,000,000", "1000000"} for key in ("periods", "at once")}
"""What a change loses: a number alone is linked only to an entity of that very name, and `1000000.` is another one."""


def merged_pairs(records: Sequence[NameRecord], encoder: Encoder, names: Sequence[str]) -> set[tuple[str, str]]:
    """The pairs of names, as numbers of the list before it changed, that have one node."""
    found = resolve(records, encoder=encoder)
    nodes: dict[str | None, list[str]] = {}
    for record, name in zip(records, names, strict=False):
        nodes.setdefault(found.node(record), []).append(name)
    return {pair for same in nodes.values() for pair in combinations(sorted(set(same)), 2)}


LISTS: dict[str, Callable[[list[NameRecord]], list[NameRecord]]] = {
    "periods": lambda records: [replace(one, name=_with_period(one.name)) for one in records],
    "upper case": lambda records: [replace(one, name=one.name.upper()) for one in records],
    "no types": lambda records: [replace(one, type="") for one in records],
    "one source": lambda records: [replace(one, source="a document") for one in records],
    "unrelated": lambda records: [*records, *_records(_unrelated())],
}


def _records(base: Sequence[Entity]) -> list[NameRecord]:
    return [NameRecord(name, (one.kb_types or ("",))[0]) for one in base for name in one.names()]


@pytest.fixture(scope="module")
def merged(shipped: Encoder) -> set[tuple[str, str]]:
    """What a list of the names of the base has merged."""
    records = _records(_base())
    return merged_pairs(records, shipped, [one.name for one in records])


@pytest.mark.parametrize(
    "change", [pytest.param(name, marks=() if name == "periods" else (pytest.mark.slow,)) for name in [*LISTS, "order"]]
)
def test_merges_stay(change: str, merged: set[tuple[str, str]], shipped: Encoder) -> None:
    """Names of one node stay together, but for a few in a hundred; an order changes nothing at all."""
    records = _records(_base())
    names = [one.name for one in records]
    if change == "order":
        assert merged_pairs(records[::-1], shipped, names[::-1]) == merged
        return
    after = merged_pairs(LISTS[change](records), shipped, names)
    assert len(merged) > 30
    assert len(merged - after) <= MORE.get(change, FEW) * len(merged), sorted(merged - after)


EVERY_SIXTH = 6  # which entities of the sample base are taken


def test_capitals_alone_are_written_as_usual() -> None:
    """Words of texts become small, names capitalised; what may be an abbreviation and other texts stay."""
    assert other_outcomes(__file__, "usual case", usual_case) == []
    assert usual_case("") == ""


def test_capitals_change_no_type(shipped: Encoder) -> None:
    """The type head says of nearly every name in capitals what it says of the name."""
    names = [one.canonical_name for one in read_entities(SAMPLE)][::EVERY_SIXTH]
    types, in_capitals = (_types(some, shipped) for some in (names, list(map(str.upper, names))))
    same = sum(one == other for one, other in zip(types, in_capitals, strict=True))
    assert same > 0.85 * len(names)


def _types(names: list[str], encoder: Encoder) -> list[str]:
    probabilities = encoder.encode(names).type_probabilities
    assert probabilities is not None
    return predict_types(probabilities).predicted_types


def test_capitals_change_few_answers(shipped: Encoder) -> None:
    """Other names of an entity are linked to it in capitals, too, whichever side has them."""
    entities = [one for one in read_entities(SAMPLE) if one.aliases][:: 3 * EVERY_SIXTH]
    mentions = [one.aliases[-1] for one in entities]
    base = [replace(one, aliases=one.aliases[:-1], languages={}) for one in entities]
    in_capitals = [
        replace(one, canonical_name=one.canonical_name.upper(), aliases=tuple(map(str.upper, one.aliases)))
        for one in base
    ]
    before = _linked(base, mentions, shipped)
    for after in (
        _linked(base, [mention.upper() for mention in mentions], shipped),
        _linked(in_capitals, mentions, shipped),
    ):
        assert len(before - after) < 0.1 * len(before)


def _linked(base: list[Entity], mentions: list[str], encoder: Encoder) -> set[str]:
    """Entities of which the mention is linked to them; each has one."""
    with EntityLinker.build(base, model=encoder) as linker:
        links = linker.link_batch(mentions)
        return {one.entity_id for one, link in zip(base, links, strict=True) if link.entity_id == one.entity_id}
