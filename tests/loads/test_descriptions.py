"""Vectors of descriptions, from a base to its collection.
What a refreshed encoder still knows of types: the recipe of docs/training.md on a tiny checkpoint.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_runner import Outcome, Run
from small_loads import CountingEncoder
from tiny_models import make_bert, make_pearl

from ingest.load import pipeline
from pearl_qdrant import Entity, load_base
from pearl_qdrant.encoder.checkpoint import read_config, write_config
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder, FloatArray
from pearl_qdrant.errors import OptionError
from pearl_qdrant.linking.editing import EntityBatches, add_entities
from pearl_qdrant.phrase_types import PHRASE_TYPES
from pearl_qdrant.store.edge.store import EdgeStore
from pearl_qdrant.store.points import description_text
from pearl_qdrant.store.protocol import Store
from pearl_qdrant.store.schema import NamePoint
from training.finetune.objective import live_encoder
from training.networks.checkpoints import open_base_model

HEADER = "id\tname\taliases\ttype\tdescription\n"
OLD = HEADER + (
    "1\tParis\tCity of Light\tGPE\tcapital of France\n"
    "2\tParis\t\tPERSON\tprince of Troy\n"
    "3\tRome\tRoma\tGPE\t\n"
    "4\tOslo\tChristiania\tGPE\tcapital of Norway\n"
)
NEW = HEADER + (
    "1\tParis\tCity of Light\tGPE\tcapital of the French Republic\n"
    "2\tParis\t\tPERSON\tprince of Troy\n"
    "3\tRome\tRoma\tGPE\tcapital of Italy\n"
    "4\tChristiania\tOslo\tGPE\tcapital of Norway\n"
    "5\tBern\t\tGPE\tcapital of Switzerland\n"
)
TEXTS = ["Paris, capital of France", "Paris, prince of Troy", "Oslo, capital of Norway"]


def base(folder: Path, text: str = OLD) -> Path:
    """A file with a base."""
    path = folder / "places.tsv"
    path.write_text(text, encoding="utf-8")
    return path


def stored(store: Store, name: str = "places") -> dict[str, tuple[NamePoint, list[float]]]:
    """All points with their vectors of descriptions, by id."""
    collection = store.open(name)
    try:
        points = list(collection.scroll())
        vectors = collection.description_vectors(points).round(4).tolist()
        return {point.id: both for point, both in zip(points, zip(points, vectors, strict=True), strict=True)}
    finally:
        collection.close()


def n_described(store: Store, name: str = "places") -> int:
    """How many points have a vector of a description."""
    collection = store.open(name)
    try:
        return collection.status().descriptions
    finally:
        collection.close()


def vector_of(store: Store, entity_id: str) -> FloatArray:
    """The vector of an entity's description."""
    collection = store.open("places")
    try:
        return collection.description_vectors(collection.find(entity_ids=[entity_id], limit=1))[0]
    finally:
        collection.close()


def test_a_load_stores_a_vector_of_each_description(tmp_path: Path, encoder: Encoder, store: EdgeStore) -> None:
    """It is that of the canonical name and the description; an entity without one has that of its name."""
    load_base(base(tmp_path), "places", store=store, model=encoder, embed_descriptions=True)

    expected = encoder.encode([*TEXTS, "Rome"]).vectors
    found = np.stack([vector_of(store, entity_id) for entity_id in ("1", "2", "4", "3")])
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert n_described(store) == 3


def test_a_load_stores_none_unless_they_are_wanted(tmp_path: Path, encoder: Encoder, store: EdgeStore) -> None:
    """By default no description is encoded."""
    counting = CountingEncoder(encoder)
    load_base(base(tmp_path), "places", store=store, model=counting)

    assert not any("capital" in text for text in counting.names)
    np.testing.assert_allclose(vector_of(store, "1"), encoder.encode(["Paris"]).vectors[0], atol=1e-6)


@pytest.mark.parametrize("update", [True, None])
def test_an_update_encodes_only_the_descriptions_that_changed(
    tmp_path: Path, encoder: Encoder, store: EdgeStore, update: bool | None
) -> None:
    """After it the collection is as one that was made of the new release, and unchanged descriptions were left."""
    load_base(base(tmp_path), "places", store=store, model=encoder, embed_descriptions=True)
    load_base(base(tmp_path, NEW), "fresh", store=store, model=encoder, embed_descriptions=True, kb="places")
    counting = CountingEncoder(encoder)

    result = load_base(base(tmp_path, NEW), "places", store=store, model=counting, update=update)

    assert stored(store) == stored(store, "fresh")
    assert n_described(store) == 5
    assert sorted(text for text in counting.names if "," in text) == [
        "Bern, capital of Switzerland",
        "Christiania, capital of Norway",
        "Paris, capital of the French Republic",
        "Rome, capital of Italy",
    ]
    # City of Light and Roma have another payload, Paris, Rome, Oslo and Christiania another description or none.
    assert (result.added, result.changed, result.unchanged) == (1, 6, 1)


def test_a_resumed_load_is_as_a_whole_one(
    tmp_path: Path, encoder: Encoder, store: EdgeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptions are stored with the names of their window, before and after an interruption."""
    rows = "".join(f"{i}\tw{i} times\tw{i} post\tORG\tpaper of w{i % 7}\n" for i in range(60))
    path = base(tmp_path, HEADER + rows)
    load_base(path, "whole", store=store, model=encoder, embed_descriptions=True, kb="places")
    monkeypatch.setattr(pipeline, "WINDOW", 16)
    with pytest.raises(MemoryError):
        load_base(path, "places", store=store, model=CountingEncoder(encoder, fail_at=5), embed_descriptions=True)
    stopped = n_described(store)

    result = load_base(path, "places", store=store, model=encoder, embed_descriptions=True)

    assert 0 < stopped < 60
    assert result.resumed_at > 0
    assert stored(store) == stored(store, "whole")
    assert n_described(store) == 60


def test_a_name_that_was_lost_has_its_description_again(tmp_path: Path, encoder: Encoder, store: EdgeStore) -> None:
    """A load that finds names missing writes them with the vectors of their descriptions."""
    load_base(base(tmp_path), "places", store=store, model=encoder, embed_descriptions=True)
    before = stored(store)
    collection = store.open("places")
    collection.delete_points({point.id for point in collection.find(entity_ids=["1"], limit=9)})
    collection.close()

    load_base(base(tmp_path), "places", store=store, model=encoder)

    assert stored(store) == before
    assert n_described(store) == 3


def test_entities_that_are_added_have_vectors_of_descriptions(
    tmp_path: Path, encoder: Encoder, store: EdgeStore
) -> None:
    """An entity that is added or replaced has its own description, and none is left where it has none."""
    load_base(base(tmp_path), "places", store=store, model=encoder, embed_descriptions=True)
    collection = store.open("places")
    added = [Entity("6", "Lima", ("City of Kings",), description="capital of Peru"), Entity("1", "Paris")]
    add_entities(collection, encoder, EntityBatches(added))
    collection.close()

    np.testing.assert_allclose(vector_of(store, "6"), encoder.encode(["Lima, capital of Peru"]).vectors[0], atol=2e-3)
    np.testing.assert_allclose(vector_of(store, "1"), encoder.encode(["Paris"]).vectors[0], atol=1e-6)
    assert n_described(store) == 3


@pytest.mark.parametrize("update", [False, True, None])
def test_a_collection_without_them_cannot_get_them(
    tmp_path: Path, encoder: Encoder, store: EdgeStore, update: bool | None
) -> None:
    """The option on a collection that was made without it is an error, and changes nothing."""
    load_base(base(tmp_path), "places", store=store, model=encoder)
    with pytest.raises(OptionError, match="'places' was made without vectors of descriptions") as caught:
        load_base(base(tmp_path, NEW), "places", store=store, model=encoder, embed_descriptions=True, update=update)
    assert caught.value.option == "embed_descriptions"
    assert len(stored(store)) == 7

    load_base(base(tmp_path), "places", store=store, model=encoder, embed_descriptions=True, restart=True)
    assert n_described(store) == 3


def test_the_command_embeds_descriptions(run: Run, model: Path, tmp_path: Path) -> None:
    """`ingest --embed-descriptions` makes them, `collections show` counts them, and the error names `--restart`."""
    path, words = base(tmp_path), ("--collection", "places", "--model", str(model))
    assert run("ingest", str(path), *words, "--embed-descriptions").status == 0
    shown = json.loads(run("collections", "show", "places", "--json").out)
    assert (shown["has_descriptions"], shown["descriptions"]) == (True, 3)
    assert run("ingest", str(base(tmp_path, NEW)), *words, "--update").status == 0
    assert json.loads(run("collections", "show", "places", "--json").out)["descriptions"] == 5

    assert run("ingest", str(path), *words[2:], "--collection", "plain").status == 0
    refused = run("ingest", str(path), *words[2:], "--collection", "plain", "--embed-descriptions")
    assert refused.status == 2
    assert "was made without vectors of descriptions" in refused.err
    assert "--restart" in refused.err


@pytest.mark.parametrize("description", [None, "", "  \n"])
def test_an_empty_description_is_none(description: str | None) -> None:
    """Blanks say nothing of an entity."""
    assert description_text(Entity("1", "Paris", description=description)) is None


def test_an_unencodable_description_is_left_out(tmp_path: Path, encoder: Encoder, store: EdgeStore) -> None:
    """An entity whose text has no token that the model knows has no vector at all."""
    path = base(tmp_path, HEADER + "1\t\U0001f600\t\t\t\U0001f600\n2\tOslo\t\t\tcapital\n")
    load_base(path, "places", store=store, model=encoder, embed_descriptions=True)

    assert not vector_of(store, "1").any()
    assert n_described(store) == 1


NAMES = ["new york", "heart attack", "aspirin"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose type head has seen every label but the last."""
    folder = tmp_path_factory.mktemp("models") / "start"
    make_pearl(folder)
    return folder


def refreshed(run: Run, start: Path, out: Path, *words: str, types: str = "") -> Outcome:
    """Two steps of `train fit` on a base of its own, whose entities have the types given in turn."""
    kinds = types.split() or [""]
    rows = "".join(f"{i}\tnew york w{i}\t{kinds[i % len(kinds)]}\tcity {i}\n" for i in range(12))
    base = out.with_name("base.tsv")
    base.write_text(f"id\tname\ttype\taliases\n{rows}", encoding="utf-8")
    given = ["--base-model", str(start), "--aliases", str(base), "--steps", "2", "--batch", "12", "--out", str(out)]
    done = run("train", "fit", *given, *words)
    assert done.status == 0, done.err
    return done


def test_a_base_without_types_leaves_the_type_head_as_it_was(run: Run, start: Path, tmp_path: Path) -> None:
    """What the start's head could say can still be said: types are numbers, and no label is forgotten."""
    refreshed(run, start, tmp_path / "fitted")

    found = load_encoder(str(tmp_path / "fitted")).encode(NAMES).type_probabilities
    assert found is not None
    assert np.isfinite(found).all()
    assert read_config(tmp_path / "fitted").label_counts == read_config(start).label_counts


def test_types_of_the_base_are_added_to_those_known(run: Run, start: Path, tmp_path: Path) -> None:
    """A base of organisations does not make every other type one that was never seen."""
    refreshed(run, start, tmp_path / "fitted", types="ORG")

    counts = dict(zip(PHRASE_TYPES, read_config(tmp_path / "fitted").label_counts, strict=True))
    assert counts["NP-ORG"] == 13
    assert counts["NP-GPE"] == 1
    assert counts[PHRASE_TYPES[-1]] == 0


def test_few_types_are_warned_of(run: Run, start: Path, tmp_path: Path) -> None:
    """Training on one type makes a head forget the others: it is said, with the way to keep it."""
    warned = refreshed(run, start, tmp_path / "a", types="ORG GPE")
    silent = refreshed(run, start, tmp_path / "b", "--type-weight", "0", types="ORG GPE")

    assert "2 of the 19 entity types" in warned.err
    assert "--type-weight 0" in warned.err
    assert "--type-weight" not in silent.err
    assert read_config(tmp_path / "b").label_counts == read_config(start).label_counts


def test_a_head_that_learnt_nothing_says_nothing(run: Run, tmp_path: Path) -> None:
    """A plain encoder refreshed on names without types has no types to give, rather than some that mean nothing."""
    refreshed(run, make_bert(tmp_path / "bert"), tmp_path / "fitted")

    encoder = load_encoder(str(tmp_path / "fitted"))
    assert not encoder.info.has_head
    assert encoder.encode(NAMES).type_probabilities is None
    assert np.isfinite(encoder.encode(NAMES).vectors).all()


def test_a_graph_whose_head_learnt_nothing_gives_vectors_alone(start: Path, tmp_path: Path) -> None:
    """The same through ONNX: the vectors are those of the model, and there are no types."""
    folder = tmp_path / "untaught"
    shutil.copytree(start, folder)
    config = read_config(folder)
    write_config(folder, config.model_copy(update={"label_counts": (0,) * len(PHRASE_TYPES)}))

    encoder = load_encoder(str(folder), runtime="onnx")
    assert not encoder.info.has_head
    assert encoder.encode(NAMES).type_probabilities is None
    expected = load_encoder(str(start), runtime="onnx").encode(NAMES).vectors
    assert np.array_equal(encoder.encode(NAMES).vectors, expected)


def test_averaging_says_what_became_of_the_type_head(run: Run, start: Path, tmp_path: Path) -> None:
    """The head stays the fitted one; fitting another is a choice, and needs names of every type."""
    fitted = refreshed(run, start, tmp_path / "fitted")
    averaged = run("train", "average", str(start), str(tmp_path / "fitted"), str(tmp_path / "averaged"))

    assert "train average" in fitted.err
    assert "train head" not in fitted.err
    assert averaged.status == 0, averaged.err
    assert "type head is that of" in averaged.err
    assert "train head" in averaged.err
    assert "every type" in averaged.err


def test_types_can_be_measured_while_training(start: Path) -> None:
    """Between two steps the network gives type probabilities, as it will when it is written."""
    base = open_base_model(str(start), name="live")
    encoder = live_encoder(base.network, base)

    found = encoder.encode(NAMES).type_probabilities
    assert encoder.info.has_head
    assert found is not None
    assert found.sum(axis=1) == pytest.approx(1, abs=1e-5)
