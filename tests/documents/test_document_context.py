"""What the words around a mention and learned names say of its candidates in a document."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from linker_base import fill

from pearl_qdrant import Entity, EntityLinker
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.linking.documents.features import set_learned_names, set_passages, set_word_types
from pearl_qdrant.linking.documents.linking import set_features
from pearl_qdrant.linking.documents.model import (
    COLUMN,
    NIL_COLUMN,
    DocumentMention,
    document_mention,
    shipped_document_model,
)
from pearl_qdrant.linking.documents.word_types import Words, word_types
from pearl_qdrant.linking.learned.names import LearnedMention
from pearl_qdrant.linking.ranking.model import FEATURES, NIL_FEATURES, MatchedName, ScoredEntity, ScoredMention
from pearl_qdrant.records import LearnedCount
from pearl_qdrant.settings import DEFAULT_MODEL
from pearl_qdrant.store.schema import NamePoint

ENTITIES = [
    Entity("person", "Jordan", ("Michael Jordan",), ("basketball player",), ("PERSON",)),
    Entity("country", "Jordan", ("Hashemite Kingdom",), ("country",), ("GPE",)),
    Entity("forest", "random forest", ("RF",)),
    Entity("radio", "radio frequency", ("RF",)),
]


@pytest.fixture(scope="module")
def linker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EntityLinker]:
    """A linker over homonyms, with the model that is shipped."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "homonyms", DEFAULT_MODEL, ENTITIES, is_loaded=True)
    with EntityLinker.open("homonyms", store=str(path), threshold=0.0) as opened:
        yield opened


def candidate(key: str, kind: str, *, popularity: float | None = None) -> ScoredEntity:
    """A candidate named Jordan."""
    point = NamePoint("kb", key, "Jordan", "Jordan", True, types=(kind,) if kind else (), popularity=popularity)
    return ScoredEntity(MatchedName(point, 0.5, folded="jordan"), np.zeros(len(FEATURES)), 0.0)


def jordan(*entities: ScoredEntity, counts: tuple[LearnedCount, ...] = (), text: str = "") -> DocumentMention:
    """The mention Jordan."""
    scored = ScoredMention("Jordan", list(entities), 0.0, np.zeros(len(NIL_FEATURES)))
    start = max(0, text.find("Jordan"))
    scores = word_types().log_probabilities(Words(text).rows_around(start, start + 6)) if text else None
    return document_mention(scored, start, learned=LearnedMention(scored, counts), type_scores=scores)


def test_the_feature_of_types_compares_candidates() -> None:
    """The type that the words suggest has 0, another is below it, and an unknown one between them. The edge of a text,
    symbols and other scripts are words like others.
    """
    for text in ("", "Jordan", "\U0001f600 Jordan \u200b", "约旦 Jordan"):
        rows = Words(text).rows_around(0, len(text))
        assert np.isfinite(word_types().log_probabilities(rows)).all()
    mention = jordan(
        candidate("a", "PERSON"), candidate("b", "GPE"), candidate("c", ""), text="the mayor of Jordan said"
    )
    set_word_types(mention)

    person, city, unknown = mention.values[:, COLUMN["word_type"]].tolist()
    assert city == 0.0
    assert person < unknown < 0.0


def test_counts_are_features() -> None:
    """Uses of the same string count whole, other forms less, and NIL in the decision alone."""
    counts = (LearnedCount("a", "kb", 2, 1), LearnedCount(None, "kb", 4), LearnedCount("gone", "kb", 9))
    mention = jordan(candidate("a", "PERSON", popularity=1.0), candidate("b", "GPE", popularity=5.0), counts=counts)
    set_learned_names(mention)

    assert mention.values[:, COLUMN["learned"]].tolist() == pytest.approx([math.log1p(2.3 / 0.3), 0.0])
    assert mention.of_decision[NIL_COLUMN["learned"]] == pytest.approx(math.log1p(2.3 / 0.3))
    assert mention.of_decision[NIL_COLUMN["learned_nil"]] == pytest.approx(math.log1p(4 / 0.3))


def test_passages_are_for_open_mentions() -> None:
    """A mention with one clear candidate is compared with nothing; other candidates than the best get the mean. A
    document is compared unless the base has popularity and coherence counts.
    """
    clear = jordan(candidate("a", "PERSON"))
    asked: list[int] = []

    def compare(requests: object) -> list[np.ndarray]:
        asked.extend(start for start, _ in requests)  # type: ignore[attr-defined]
        return [np.array([0.4, 0.2])]

    mention = jordan(candidate("a", "PERSON"), candidate("b", "GPE"), text="said Jordan")
    set_passages([clear, mention], shipped_document_model(), compare)

    assert asked == [5]
    assert mention.values[:, COLUMN["passage"]].tolist() == [0.4, 0.2]
    for popularity, without, is_compared in ((5.0, (), False), (5.0, ("coherence",), True), (None, (), True)):
        asked.clear()
        own = jordan(candidate("a", "PERSON", popularity=popularity), candidate("b", "GPE"), text="said Jordan")
        set_features([own], shipped_document_model(), compare=compare, without=frozenset(without))
        assert bool(asked) is is_compared


@pytest.mark.parametrize(
    "mention, context, entity_id",
    [
        ("RF", "We grow an RF of a hundred trees, each on its own sample.", "forest"),
        ("RF", "The antenna sends an RF signal to the receiver.", "radio"),
        ("Jordan", "He was born in Amman, the capital of Jordan.", "country"),
    ],
)
def test_a_context_chooses_between_homonyms(linker: EntityLinker, mention: str, context: str, entity_id: str) -> None:
    """The passage and the words around a mention say which of two entities of one name it is."""
    assert linker.link(mention, context=context).candidates[0].entity_id == entity_id


def test_a_description_chooses_between_namesakes(shipped: Encoder) -> None:
    """Of entities that only their stored descriptions tell apart, the one that fits the context comes first."""
    rows = [
        {"id": "planet", "name": "Mercury", "description": "the planet nearest to the Sun"},
        {"id": "metal", "name": "Mercury", "description": "a chemical element, a metal that is liquid"},
    ]
    with EntityLinker.build(rows, model=shipped) as linker:
        orbit = linker.link("Mercury", context="The orbit of Mercury around the Sun takes 88 days.")
        thermometer = linker.link("Mercury", context="A thermometer with liquid metal: Mercury, a chemical element.")

    assert [one.candidates[0].entity_id for one in (orbit, thermometer)] == ["planet", "metal"]
    assert orbit.candidates[0].probability > orbit.candidates[1].probability


def test_a_rule_names_its_own_candidate_and_parts_can_be_switched_off(linker: EntityLinker) -> None:
    """A rule that chose another entity than the context is not given as the reason. Without types and passages,
    homonyms stay tied in a document.
    """
    alone = linker.link("Jordan")
    country = linker.link("Jordan", context="He was born in Amman, the capital of Jordan.")
    person = linker.link("Jordan", context="Jordan (born 17 February 1963) is a retired player and coach.")

    assert country.candidates[0].entity_id != person.candidates[0].entity_id
    for link in (country, person):
        is_other = link.candidates[0].entity_id != alone.candidates[0].entity_id
        assert link.rule == (None if is_other else alone.rule)
    text = "The antenna sends an RF signal."
    off = linker.link_document(text, [(21, 23)], without=["types", "passages"])[0].link
    on = linker.link_document(text, [(21, 23)])[0].link

    assert off.candidates[0].probability == pytest.approx(off.candidates[1].probability)
    assert on.candidates[0].entity_id == "radio"


def test_learned_names_count_in_a_document(linker: EntityLinker) -> None:
    """A learned name goes before what the document says alone, is shown, and counts no more after its undo."""
    text = "We tuned the RF."
    accepted = linker.accept("RF", "radio")
    learned = linker.link_document(text, [(13, 15)])[0].link
    off = linker.link_document(text, [(13, 15)], without=["learned names"])[0].link
    linker.undo_learned(accepted.number)
    after = linker.link_document(text, [(13, 15)])[0].link

    assert learned.entity_id == "radio"
    assert learned.learned[0].as_written == 1
    assert off == after
    assert not after.learned


@pytest.mark.parametrize(
    "text, entity_id",
    [
        ("We tuned the RF.", "forest"),
        ("An RF antenna, tuned to the frequency of the transmitter, sends a radio signal to the receiver.", None),
    ],
)
def test_a_rejection_counts_in_a_document_and_a_context(linker: EntityLinker, text: str, entity_id: str | None) -> None:
    """A rejected entity is no longer linked; another one is, if the text does not contradict it."""
    place = text.index("RF"), text.index("RF") + 2
    before = linker.link_document(text, [place], threshold=0.5)[0].link
    rejected = linker.reject("RF", "radio")
    in_document = linker.link_document(text, [place], threshold=0.5)[0].link
    in_context = linker.link("RF", context=text, threshold=0.5)
    linker.undo_learned(rejected.number)

    assert before.entity_id == "radio"
    assert in_document.entity_id == in_context.entity_id == entity_id
    assert in_document.learned[0].rejected == 1
