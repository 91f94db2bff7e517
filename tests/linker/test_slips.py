"""Slips that one name alone explains: they are answered without the encoder, and alike by every call."""

from __future__ import annotations

import pytest
from counting_encoder import CountingEncoder
from linker_base import fill_server, linker_over
from pair_table import other_outcomes
from qdrant_double import QdrantDouble

from pearl_qdrant import Entity, EntityLinker, Link
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.linking.ranking import explain_link
from pearl_qdrant.settings import DEFAULT_MODEL

CITIES = ("Winchester", "Lancaster", "Carlisle", "Dunfermline", "Kilmarnock", "Newcastle", "Darlington", "Warrington")
ENTITIES = [
    *(Entity(name, name, (), ("city",), ("GPE",)) for name in CITIES),
    Entity("t1", "Type 1 diabetes"),
    Entity("fibre", "type IIa muscle fiber"),
    Entity("irq", "Iraq"),
    Entity("causal", "causal inference"),
    Entity("thornbill", "Papuan Thornbill"),
    Entity("hornbill", "Malabar Hornbill"),
    Entity("ethane", "ethyl orthosilicate"),
    Entity("moskva", "Москва-река"),
    Entity("kirkby", "Kirkbymoorside"),
    Entity("kirkly", "Kirklymoorside"),
    Entity("rock", "Castle Rock Entertainment", ("Castle Rock Pictures",), ("company",), ("ORG",)),
]
SLIPS = {
    "Winchetser": "Winchester",  # two neighbours swapped
    "winchster": "Winchester",  # a letter lost, and the case
    "Lancastere": "Lancaster",  # a letter too many
    "Carlizle": "Carlisle",
    "Dunfermlime": "Dunfermline",
    "Castle Rcok Entertainment": "rock",
}


@pytest.fixture(scope="module")
def counting() -> CountingEncoder:
    """The encoder of all linkers here."""
    return CountingEncoder(load_encoder(DEFAULT_MODEL, device="cpu"))


linker = linker_over(ENTITIES, model="counting")


def answer(link: Link) -> tuple[object, ...]:
    """What a link says, without its other candidates."""
    return link.entity_id, link.nil_reason, link.rule, round(link.probability or 0.0, 6), link.candidates[0].name


def test_a_slip_of_one_name_alone_is_not_encoded(linker: EntityLinker, counting: CountingEncoder) -> None:
    """A mention with one wrong letter that only one name explains is that name, as certain as an exact one."""
    counting.names.clear()
    links = list(linker.link_batch(SLIPS))

    assert [link.entity_id for link in links] == list(SLIPS.values())
    assert {link.rule for link in links} == {"slip"}
    assert [link.probability for link in links] == pytest.approx([0.985] * len(SLIPS))
    assert not counting.names
    assert [link.probability for link in linker.link_batch(["Bancaster", "iWnchester"])] == pytest.approx(
        [0.949, 0.985]
    )


def test_a_slip_is_answered_alike_by_every_call(linker: EntityLinker) -> None:
    """Alone, in a batch, with more candidates, under a type that it has, and with another threshold a slip has the same
    answer; the explanation gives the rule.
    """
    batch = dict(zip(SLIPS, linker.link_batch(SLIPS), strict=True))
    for mention, link in batch.items():
        kind = link.candidates[0].kb_types[0]
        others = [
            linker.link(mention),
            linker.link(mention, limit=10),
            linker.link(mention, limit=1),
            linker.link(mention, types=[kind]),
            linker.link(mention, types=[kind], type_mode="soft"),
            linker.link(mention, type_mode="off"),
            linker.link(f" {mention} ", threshold=0.98),
        ]
        assert {answer(one) for one in others} == {answer(link)}
        assert any("but for a slip" in line for line in explain_link(others[1], linker.calibration))


def test_what_may_be_another_thing_is_searched(linker: EntityLinker, counting: CountingEncoder) -> None:
    """Mentions that one letter makes another thing, or that more than one name explains, are searched in full."""

    def outcome(mention: str) -> str:
        counting.names.clear()
        assert linker.link(mention).rule != "slip"
        return "searched" if mention in counting.names else "not searched"

    assert other_outcomes(__file__, "slip", outcome) == []


def test_a_slip_of_a_name_of_another_type_is_no_slip_under_a_type_filter(linker: EntityLinker) -> None:
    """Under a type filter a mention is no slip of an entity that the filter leaves out."""
    link = linker.link("Winchetser", types=["company"])

    assert link.rule != "slip"
    assert link.entity_id is None


def test_an_edit_counts_for_slips(counting: CountingEncoder) -> None:
    """A slip has the entity no more when another name is near, and again when that one is gone."""
    with EntityLinker.build(ENTITIES, model=counting) as own:
        before = own.link("Kilmarnok")
        own.add([Entity("x", "Kilmarok")])
        between = own.link("Kilmarnok")
        own.delete(["x"])

        assert (before.entity_id, before.rule) == ("Kilmarnock", "slip")
        assert between.rule != "slip"
        assert answer(own.link("Kilmarnok")) == answer(before)


def test_a_server_settles_slips_as_the_embedded_store_does(linker: EntityLinker) -> None:
    """On a server a slip has the answer that it has in a folder, alone and in a batch."""
    with QdrantDouble() as double:
        fill_server(double.url, "entities", DEFAULT_MODEL, ENTITIES)
        with EntityLinker.open("entities", store=double.url) as remote:
            found = list(remote.link_batch(SLIPS))
            alone = [remote.link(mention) for mention in SLIPS]

    assert list(map(answer, found)) == list(map(answer, alone)) == list(map(answer, linker.link_batch(SLIPS)))
