"""What contexts say: things of one name are told apart, and texts speak for a merge and against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.resolution import Decision, NameRecord, Resolution, resolve, resolve_graph

CHEMIST = "a professor of chemistry who studies catalysts at the university"
ALSO = "studied chemistry; the chemist has written on new catalysts, a university professor"
PLAYER = "a table tennis player from the south, twice champion of the tournament"
NAMES = [NameRecord("Li Wei", "PERSON", context=text) for text in (CHEMIST, ALSO, PLAYER)]


@pytest.fixture(scope="module")
def found(shipped: Encoder) -> Resolution:
    """Two things of one name, resolved once."""
    return resolve([*NAMES, NameRecord("Li Wei", "PERSON"), NameRecord("Oslo", "GPE")], encoder=shipped)


def test_things_of_one_name_are_several_nodes(found: Resolution) -> None:
    """Contexts that are unlike tell namesakes apart, those that are alike do not."""
    chemist, also, player = (found.node(one) for one in NAMES)
    assert chemist == also
    assert chemist != player


def test_a_name_without_context_goes_to_none_of_its_namesakes(found: Resolution) -> None:
    """It has a node of its own, and is asked with each of them."""
    bare = found.node("Li Wei", "PERSON")
    assert bare not in {found.node(one) for one in NAMES}
    asked = {frozenset((pair.node_id, pair.other_node_id)): pair.reason for pair in found.review}
    reasons = {asked[frozenset((bare or "", found.node(one) or ""))] for one in NAMES}
    assert reasons == {"equal names of different contexts"}


def test_contexts_count_in_any_order(found: Resolution, shipped: Encoder) -> None:
    """Nodes do not depend on the order of the names."""
    names = [NameRecord("Oslo", "GPE"), NameRecord("Li Wei", "PERSON"), *reversed(NAMES)]
    assert resolve(names, encoder=shipped).names == found.names


def test_things_of_one_name_stay_apart_in_later_runs(found: Resolution, shipped: Encoder, tmp_path: Path) -> None:
    """Their nodes are read back, new texts join the thing that they are about, and a decision may make them one."""
    found.write(tmp_path / "nodes.tsv", review=tmp_path / "review.tsv")
    more = NameRecord("Li Wei", "PERSON", context="the professor of chemistry studies catalysts")
    again = resolve([more, *NAMES], previous=tmp_path / "nodes.tsv", encoder=shipped)
    assert [again.node(one) for one in NAMES] == [found.node(one) for one in NAMES]
    assert again.node(more) == found.node(NAMES[0])
    same = Decision("Li Wei", "Li Wei", "same", "PERSON", "PERSON", context=CHEMIST, other_context=PLAYER)
    one = resolve([], previous=found, decisions=[same], encoder=shipped)
    assert len({one.node(name) for name in NAMES}) == 1
    undone = again.undo([NAMES[1]])
    assert undone.node(NAMES[1]) not in {undone.node(NAMES[0]), undone.node(NAMES[2])}


def probability(encoder: Encoder, *contexts: str) -> float:
    """The probability that two names are of one thing, merged or asked; 0 if neither."""
    both = zip(("Bergheim", "Bärgheimen"), contexts, strict=True)
    found = resolve([NameRecord(name, "city", context=text) for name, text in both], encoder=encoder)
    merged = [one.probability for one in found.names if not one.founded]
    return max([*merged, *(pair.probability for pair in found.review), 0.0])


def test_contexts_speak_for_a_merge_and_against_it(shipped: Encoder) -> None:
    """Names that are alike are more probably one where their texts are, too, and less where these are not."""
    town = "capital of the region; the river; the old castle"
    for_it = probability(shipped, town, "the river; capital of the region; a castle")
    against = probability(shipped, town, "a chess opening for black")
    assert for_it > probability(shipped, "", "") > against


def test_nodes_of_one_name_in_a_graph_are_told_apart_by_their_neighbours(shipped: Encoder, tmp_path: Path) -> None:
    """Two nodes with one name and nothing in common stay two; neighbours count as texts do."""
    rows = "".join(
        f'<node id="{key}"><data key="d0">{name}</data></node>'
        for key, name in {"a": "Li Wei", "b": "Li Wei", "c": "Li Wei", "u": "Chemical Society",
                          "v": "Faculty of Chemistry", "w": "Catalyst Research", "x": "Table Tennis Championship",
                          "y": "Olympic Games", "z": "Women's Team"}.items()
    )  # fmt: skip
    edges = "".join(
        f'<edge source="{a}" target="{b}"/>' for a, b in ("au", "av", "aw", "bu", "bv", "bw", "cx", "cy", "cz")
    )
    graph = tmp_path / "graph.graphml"
    graph.write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="d0" for="node" attr.name="name" '
        f'attr.type="string"/><graph edgedefault="undirected">{rows}{edges}</graph></graphml>'
    )
    merged = resolve_graph(graph, lambda names: resolve(names, encoder=shipped))
    keys = {node.key for node in merged.graph.nodes if node.name == "Li Wei"}
    assert len(keys) == 2
    assert "c" in keys
