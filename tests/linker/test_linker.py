"""Linking mentions, on a tiny random model: equal names have cosine 1, others less, though not by much.

So the threshold is 0 here, unless a test is about it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from linker_base import ENTITIES, fill
from tiny_models import make_pearl

from pearl_qdrant import Entity, EntityLinker, NilReason
from pearl_qdrant.errors import (
    CollectionNotFoundError,
    EntityNotFoundError,
    ModelError,
    ModelMismatchError,
    UnknownTypeError,
)
from pearl_qdrant.linking.mention_stream import TypeMode
from pearl_qdrant.linking.ranking.explain import explain_link
from pearl_qdrant.linking.ranking.model import FEATURES, Calibration
from pearl_qdrant.linking.ranking.reranker import CrossEncoder
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.schema import LinkCalibration, NamePoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    make_pearl(folder)
    return str(folder)


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory, model: str) -> Path:
    """A store with the collection `base`."""
    path = tmp_path_factory.mktemp("store")
    fill(path, "base", model, ENTITIES)
    return path


@pytest.fixture(scope="module")
def linker(store_path: Path) -> Iterator[EntityLinker]:
    """A linker over the collection `base`."""
    with EntityLinker.open("base", store=str(store_path), threshold=0.0) as opened:
        yield opened


def test_a_name_of_the_base_is_linked_to_its_entity(linker: EntityLinker) -> None:
    """A mention that is a name of an entity gets that entity, its canonical name and a probability."""
    link = linker.link("nytimes.com")

    assert (link.entity_id, link.canonical_name, link.nil_reason) == ("nyt", "The New York Times", None)
    assert link.probability == link.candidates[0].probability
    best = link.candidates[0]
    assert best.name == "nytimes.com"
    assert best.dense_score == pytest.approx(1.0, abs=1e-5)
    assert best.description == "A newspaper"
    assert best.phrase_type is not None
    assert best.type_probability is not None


def test_an_entity_is_a_candidate_once(linker: EntityLinker) -> None:
    """Aliases of one entity do not crowd the candidates: each entity comes by its best name."""
    link = linker.link("The New York Times", limit=5)

    ids = [c.entity_id for c in link.candidates]
    assert len(ids) == len(set(ids)) == 5
    scores = [c.score for c in link.candidates]
    assert scores == sorted(scores, reverse=True)


def test_probabilities_and_nil_sum_to_at_most_one(linker: EntityLinker) -> None:
    """The candidates' probabilities leave room for NIL."""
    link = linker.link("heart attack")

    assert 0 < sum(c.probability or 0 for c in link.candidates) <= 1 + 1e-9


def test_the_limit_changes_what_is_shown_and_nothing_else(linker: EntityLinker) -> None:
    """Asking for one candidate gives the same probability as asking for ten, and a tie stays a tie."""
    one, ten = linker.link("heart attack", limit=1), linker.link("heart attack")

    assert len(one.candidates) == 1
    assert one.probability == ten.probability
    assert linker.link("New York", limit=1).nil_reason == NilReason.AMBIGUOUS


def test_a_type_filter_changes_the_answer(linker: EntityLinker) -> None:
    """Only entities of the types asked for are candidates; native and coarse types alike."""
    native = linker.link("New York Post", types=["city"])
    coarse = linker.link("New York Post", types=["GPE"])

    assert {c.entity_id for c in native.candidates} == {"nyc"}
    assert {c.entity_id for c in coarse.candidates} == {"nyc", "nys"}


def test_a_name_that_two_entities_share_is_ambiguous(linker: EntityLinker) -> None:
    """If nothing separates two entities I get both, first and marked, and no entity; or the first, if I ask."""
    link = linker.link("New York", threshold=0.0)

    assert (link.entity_id, link.nil_reason) == (None, NilReason.AMBIGUOUS)
    assert [(c.entity_id, c.tie) for c in link.candidates if c.tie] == [("nyc", True), ("nys", True)]
    assert [c.entity_id for c in link.candidates[:2]] == ["nyc", "nys"]
    first = linker.link("New York", threshold=0.0, on_tie="first")
    assert (first.entity_id, first.nil_reason) == ("nyc", None)
    assert linker.link("New York", types=["state"], threshold=0.0).entity_id == "nys"


def test_below_the_threshold_is_nil_with_its_candidates(linker: EntityLinker) -> None:
    """A mention that is not sure enough is NIL, says why, and still shows what came close."""
    link = linker.link("aspirin", threshold=1.0)

    assert (link.entity_id, link.nil_reason) == (None, NilReason.BELOW_THRESHOLD)
    assert link.candidates


def test_no_candidates_is_a_reason_of_its_own(linker: EntityLinker) -> None:
    """If the filter leaves nothing, the answer says so."""
    link = linker.link("New York", types=["PERSON"])

    assert (link.nil_reason, link.candidates) == (NilReason.NO_CANDIDATES, ())


@pytest.mark.parametrize("mention", ["", "   ", "\n"])
def test_an_empty_mention_is_nil(linker: EntityLinker, mention: str) -> None:
    """Nothing links to nothing."""
    assert linker.link(mention).nil_reason == NilReason.NO_CANDIDATES


def test_emoji_link_to_themselves_only(linker: EntityLinker) -> None:
    """A name that the model cannot see is found by its exact string, and two such names never meet."""
    assert linker.link("\U0001f984").entity_id == "horse"
    assert linker.link("\U0001f5de").entity_id == "paper"
    assert linker.link("\U0001f984").candidates[0].dense_score is None
    assert linker.link("\U0001f480").nil_reason == NilReason.NO_CANDIDATES
    assert "paper" not in [c.entity_id for c in linker.link("\U0001f984", threshold=0.0).candidates]


def test_a_batch_gives_what_single_mentions_give(linker: EntityLinker) -> None:
    """Linking many at once changes neither answers nor order."""
    mentions = ["NYC", "heart attack", "", "\U0001f984", "New York Post", "zzz"] * 3
    singles = [linker.link(mention) for mention in mentions]

    batch = list(linker.link_batch(iter(mentions)))

    assert [link.mention for link in batch] == mentions
    assert [link.entity_id for link in batch] == [link.entity_id for link in singles]
    for together, alone in zip(batch, singles, strict=True):
        assert [c.score for c in together.candidates] == pytest.approx([c.score for c in alone.candidates], abs=1e-4)


def test_an_entity_can_be_looked_up(linker: EntityLinker) -> None:
    """By its id I get all names, types and the description."""
    entity = linker.entity("nyt")

    assert entity.canonical_name == "The New York Times"
    assert set(entity.aliases) == {"NYTimes", "nytimes.com"}
    assert (entity.kb_types, entity.types) == (("ORG", "newspaper"), ("ORG",))
    assert entity.description == "A newspaper"
    with pytest.raises(EntityNotFoundError, match="No entity 'NYT' in base"):
        linker.entity("NYT")


def test_an_added_entity_is_found_at_once_and_a_deleted_one_is_not(tmp_path: Path, model: str) -> None:
    """A dozen entities more or less need no new ingest."""
    fill(tmp_path, "small", model, ENTITIES[:3])
    with EntityLinker.open("small", store=str(tmp_path), threshold=0.0) as linker:
        assert linker.add([Entity("heart", "heart attack", ("aspirin",))]) == 2
        assert linker.link("aspirin").entity_id == "heart"
        # Added again with other names, it keeps only those.
        assert linker.add([Entity("heart", "heart attack", ("w of heart",), ("disease",))]) == 2
        assert set(linker.entity("heart").names()) == {"heart attack", "w of heart"}
        assert linker.entity("heart").kb_types == ("disease",)
        assert linker.delete(["heart", "never there"]) == 2
        with pytest.raises(EntityNotFoundError):
            linker.entity("heart")
    with EntityLinker.open("small", store=str(tmp_path), threshold=0.0) as linker:
        assert linker.link("NYC").entity_id == "nyc"


def test_several_collections_answer_together(tmp_path: Path, model: str) -> None:
    """I can link against two bases at once, and each candidate says which one it is from."""
    fill(tmp_path, "news", model, ENTITIES[:2])
    fill(tmp_path, "medicine", model, [ENTITIES[4]])
    with EntityLinker.open("news", "medicine", store=str(tmp_path), threshold=0.0) as linker:
        assert linker.link("heart attack").entity_id == "mi"
        assert linker.link("NYTimes").candidates[0].kb == "news"
        assert {c.kb for c in linker.link("NYTimes").candidates} == {"news", "medicine"}
        with pytest.raises(ValueError, match="say which collection"):
            linker.add([Entity("x", "x")])
        assert linker.add([Entity("x", "aspirin")], collection="medicine") == 1
        assert linker.link("aspirin").candidates[0].kb == "medicine"


def test_the_order_of_collections_decides_nothing(tmp_path: Path, model: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where they are calibrated differently, what comes with the package is used, and said."""
    for name in ("one", "two"):
        fill(tmp_path, name, model, [Entity(name, f"{name} street")])
    store = EdgeStore(tmp_path)
    one = store.open("one")
    fitted = LinkCalibration(slope=2.0, nil_bias=0.0, threshold=0.1)
    one.write_manifest(one.manifest.model_copy(update={"calibration": fitted}))
    store.close()

    for order in (("one", "two"), ("two", "one")):
        with EntityLinker.open(*order, store=str(tmp_path)) as linker:
            assert linker.calibration == Calibration()
            assert linker.link("one street").kb == "one"
    assert "calibrated differently" in caplog.text
    with EntityLinker.open("one", store=str(tmp_path)) as linker:
        assert linker.calibration.threshold == 0.1


def test_another_model_is_refused(tmp_path: Path, store_path: Path) -> None:
    """A model of the same width but other weights would give wrong answers without an error; it is refused."""
    make_pearl(tmp_path / "other", name="other", seed=7)
    with pytest.raises(ModelMismatchError, match=r"holds vectors of .*but the model in use is .*other"):
        EntityLinker.open("base", store=str(store_path), model=str(tmp_path / "other"))


def test_a_missing_collection_is_named_with_those_that_exist(store_path: Path) -> None:
    """A typo in the collection's name is answered with the names there are."""
    with pytest.raises(CollectionNotFoundError, match=r"'bsae' does not exist \(there are: base\)"):
        EntityLinker.open("bsae", store=str(store_path))


def test_arguments_that_make_no_sense_are_refused(linker: EntityLinker) -> None:
    """A wrong threshold or limit is an error at the call, not a strange answer."""
    with pytest.raises(ValueError, match="probability"):
        linker.link("x", threshold=1.5)
    with pytest.raises(ValueError, match="limit"):
        linker.link("x", limit=0)
    with pytest.raises(ValueError, match="at least one"):
        EntityLinker.open()
    with pytest.raises(TypeError, match="letters"):
        linker.link_batch("heart attack")


def test_a_single_type_may_be_a_string(linker: EntityLinker) -> None:
    """It is one type, and not the list of its letters."""
    assert linker.link("New York", types="GPE") == linker.link("New York", types=["GPE"])


@pytest.mark.parametrize(
    "bad",
    [Entity("", "Ghost"), Entity("e1", " "), Entity("e1", "x", ("",)), Entity("e1", "x", cast("tuple[str]", "yz"))],
)
def test_an_entity_without_id_or_name_is_refused(tmp_path: Path, model: str, bad: Entity) -> None:
    """A link to the id '' would look like NIL."""
    fill(tmp_path, "base", model, [Entity("a", "Acme")])
    with EntityLinker.open("base", store=str(tmp_path)) as linker:
        with pytest.raises((ValueError, TypeError), match=r"empty|not the string"):
            linker.add([bad])
        assert linker.link("Ghost", threshold=0).entity_id != ""


def test_the_first_of_many_namesakes_is_the_first_by_id(store_path: Path) -> None:
    """However many entities bear one name, the first by id is taken, not the first that was found."""
    with EntityLinker.open("base", store=str(store_path), threshold=0.0) as linker:
        people = [Entity(f"s{i:03}", "John Smith") for i in reversed(range(60))]
        linker.add(people)
        link = linker.link("John Smith", on_tie="first", limit=5)
        linker.delete([person.entity_id for person in people])

    assert link.entity_id == "s000"
    assert [candidate.entity_id for candidate in link.candidates] == [f"s{i:03}" for i in range(5)]


def test_counts_follow_what_is_added_and_deleted(store_path: Path) -> None:
    """The manifest says how many names there are, so that `collections verify` can."""
    with EntityLinker.open("base", store=str(store_path)) as linker:
        (collection,) = linker._collections
        linker.add([Entity("new", "New Thing", ("Thing, New",))])
        with_it = collection.manifest.names
        linker.delete(["new"])

        assert (with_it - collection.manifest.names, collection.manifest.names) == (2, collection.count())


def test_a_filter_on_an_unknown_type_names_near_ones(linker: EntityLinker) -> None:
    """A typo in a type is an error that shows what I may have meant, not an empty answer."""
    with pytest.raises(
        UnknownTypeError, match=r"No entity of type 'newspapr' in base\. Near it: newspaper\."
    ) as caught:
        linker.link("New York", types=["ORG", "newspapr"])

    assert caught.value.near == ("newspaper",)


def test_soft_types_prefer_and_do_not_filter(linker: EntityLinker) -> None:
    """In soft mode a type breaks the tie between namesakes, and entities of other types stay candidates."""
    link = linker.link("New York", types=["state"], type_mode="soft", threshold=0.0)

    assert link.entity_id == "nys"
    assert {"nyc", "nyp"} < {c.entity_id for c in link.candidates}
    assert link.candidates[0].features["wanted_type"] == 1.0
    assert linker.link("New York", types=["state"], type_mode="off").nil_reason == NilReason.AMBIGUOUS

    def agreements(type_mode: TypeMode) -> list[float]:
        return [c.features["type_agreement"] for c in linker.link("New York", type_mode=type_mode).candidates]

    assert min(agreements("hard")) < 0
    assert set(agreements("off")) == {0.0}


def test_every_score_is_returned(linker: EntityLinker) -> None:
    """A candidate shows its dense and lexical scores and all features, so that I can score for myself."""
    best = linker.link("Heart Attack").candidates[0]

    assert best.lexical_score == pytest.approx(1.0, abs=1e-5)
    assert set(best.features) == set(FEATURES)
    assert best.features["equal_core"] == 1.0


def test_spelling_finds_what_the_model_does_not(linker: EntityLinker) -> None:
    """With a random model, only shared n-grams can tell that a misspelt name is meant."""
    link = linker.link("myocardial infarctoin", limit=3)

    assert "mi" in [c.entity_id for c in link.candidates]
    assert max(link.candidates, key=lambda c: c.lexical_score or 0).entity_id == "mi"


@pytest.mark.parametrize("bad", [None, 3.5, float("nan"), b"New York", "\ud800"])
def test_a_mention_that_is_no_text_does_not_sink_the_batch(linker: EntityLinker, bad: object) -> None:
    """One bad cell of a column is NIL, and its neighbours are linked."""
    links = list(linker.link_batch(cast("list[str]", ["NYC", bad, "nytimes.com"])))

    assert [link.entity_id for link in links] == ["nyc", None, "nyt"]
    assert links[1].nil_reason == NilReason.NO_CANDIDATES


def test_names_can_be_held_back(linker: EntityLinker) -> None:
    """A measurement can hide names from single mentions, across the borders of batches."""
    mentions = ["heart attack"] * 300

    scored = list(linker.score_batch(mentions, exclude=lambda i, point: i == 200 and point.entity_id == "mi"))

    without = [i for i, one in enumerate(scored) if "mi" not in {found.point.entity_id for found in one.found}]
    assert without == [200]


def test_asyncio_gives_the_same_links(linker: EntityLinker) -> None:
    """`alink` and `alink_batch` answer as their blocking twins do, in order, from any kind of iterable."""
    mentions = ["NYC", "heart attack", "zzz"]

    async def stream() -> AsyncIterator[str]:
        for mention in mentions:
            yield mention

    async def ask() -> list[list[str | None]]:
        one = [(await linker.alink(mention)).entity_id for mention in mentions]
        plain = [link.entity_id async for link in linker.alink_batch(mentions)]
        streamed = [link.entity_id async for link in linker.alink_batch(stream())]
        return [one, plain, streamed]

    assert asyncio.run(ask()) == [[linker.link(mention).entity_id for mention in mentions]] * 3


def test_the_linker_explains_itself(linker: EntityLinker) -> None:
    """An explanation names the rule, what speaks for the best candidate, and the runner-up."""
    link = linker.link("NYTimes", threshold=0.0)

    lines = explain_link(link, linker.calibration)

    assert lines[0].startswith("linked: probability")
    assert any("The New York Times [nyt] (ORG)" in line for line in lines)
    assert any(line.startswith("runner-up") for line in lines)
    assert explain_link(linker.link("New York"), linker.calibration)[0].startswith("NIL: 2 entities share")
    assert explain_link(linker.link(""), linker.calibration) == [explain_link(linker.link(""), linker.calibration)[0]]


def test_what_was_calibrated_is_used(tmp_path: Path, model: str) -> None:
    """A calibration in the manifest moves the probabilities and the threshold of that collection."""
    fill(tmp_path, "base", model, ENTITIES)
    with EntityLinker.open("base", store=str(tmp_path)) as linker:
        before = linker.link("heart attack").candidates[0].probability
        (collection,) = linker._collections
        fitted = LinkCalibration(slope=1.0, nil_bias=30.0, threshold=0.25)
        collection.write_manifest(collection.manifest.model_copy(update={"calibration": fitted}))
    with EntityLinker.open("base", store=str(tmp_path)) as linker:
        after = linker.link("heart attack").candidates[0].probability

        assert linker.calibration == Calibration(1.0, 30.0, 0.25)
        assert before is not None
        assert after is not None
        assert after < before


class Contrary:
    """A reranker that wants the candidate with the longest name."""

    def score(self, mention: str, candidates: Sequence[NamePoint]) -> list[float]:
        assert mention
        return [50.0 * len(point.name) for point in candidates]


def test_a_reranker_changes_the_order(store_path: Path) -> None:
    """A model of my own may look at the best candidates again, and its word counts."""
    with EntityLinker.open("base", store=str(store_path), threshold=0.0, reranker=Contrary()) as linker:
        link = linker.link("New York")

    assert link.candidates[0].name == max((c.name for c in link.candidates), key=len)
    assert link.entity_id == link.candidates[0].entity_id


def test_a_cross_encoder_is_loaded_from_a_folder(store_path: Path, tmp_path: Path) -> None:
    """Any sequence classifier of transformers serves; what is none is refused with a word on what to give."""
    folder = make_classifier(tmp_path / "classifier")
    encoder = CrossEncoder(str(folder))
    point = NamePoint("kb", "x", "New York", "New York", True, description="a city")

    alone = encoder.score("Big Apple", [point])
    together = encoder.score("Big Apple", [point, replace(point, name="New York Post", description=None)])

    assert together[0] == pytest.approx(alone[0], abs=1e-5)
    with EntityLinker.open("base", store=str(store_path), threshold=0.0, reranker=encoder) as linker:
        assert linker.link("heart attack").candidates
    with pytest.raises(ModelError, match=r"Cross-encoder .* cannot be loaded .*Give a folder or a hub id"):
        CrossEncoder(str(tmp_path / "nothing"))


def make_classifier(folder: Path) -> Path:
    """A tiny random sequence classifier with the tokenizer of the tiny models."""
    from transformers import BertConfig, BertForSequenceClassification

    made = make_pearl(folder / "pearl").folder
    vocabulary = len(json.loads((made / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(made / name, folder / name)
    return folder
