"""fastembed: our models by its names, and its models as `--model fastembed:NAME`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_runner import Run
from tiny_models import NAMES, make_bert, make_pearl

from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoder
from pearl_qdrant.errors import DeviceError, ModelError, ModelNotFoundError

pytest.importorskip("fastembed")

MOST_DIFFERENCE = 1e-3
"""Between a vector here and in fastembed, in each dimension."""

PHRASES = ["The New York Times", "heart attack", "Москва", "heart attack " * 60, "x"]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fastembed's list of models, left as it was."""
    from fastembed import TextEmbedding

    from pearl_qdrant.integrations.fastembed import PearlEmbedding

    monkeypatch.setattr(TextEmbedding, "EMBEDDINGS_REGISTRY", [*TextEmbedding.EMBEDDINGS_REGISTRY])
    for name, empty in (("SUPPORTED_MODELS", []), ("POSTPROCESSING_MAPPING", {}), ("FOLDERS", {})):
        monkeypatch.setattr(PearlEmbedding, name, empty)


def test_fastembed_gives_the_vectors_of_the_model_that_ships(shipped: Encoder) -> None:
    """`TextEmbedding("pearl-mini")` needs no download, gives our vectors, and may be registered twice."""
    from fastembed import TextEmbedding

    from pearl_qdrant.integrations.fastembed import register

    assert [register(), register()] == ["pearl-mini", "pearl-mini"]
    vectors = np.array(list(TextEmbedding("pearl-mini", threads=1).embed(PHRASES)))

    np.testing.assert_allclose(vectors, shipped.encode(PHRASES).vectors, atol=MOST_DIFFERENCE)
    assert TextEmbedding.get_embedding_size("pearl-mini") == shipped.info.dim


def test_a_document_of_qdrant_client_is_encoded_by_the_model(shipped: Encoder) -> None:
    """`Document(text, model="pearl-mini")` is searched and stored by qdrant-client itself."""
    from qdrant_client import QdrantClient, models

    from pearl_qdrant.integrations.fastembed import register

    register()
    client = QdrantClient(":memory:")
    size = shipped.info.dim
    client.create_collection("phrases", vectors_config=models.VectorParams(size=size, distance=models.Distance.COSINE))
    points = [
        models.PointStruct(id=number, vector=models.Document(text=name, model="pearl-mini"), payload={"name": name})
        for number, name in enumerate(("myocardial infarction", "The New York Times", "aspirin"))
    ]
    client.upsert("phrases", points)
    found = client.query_points("phrases", query=models.Document(text="heart attack", model="pearl-mini"), limit=1)
    client.close()

    assert found.points[0].payload == {"name": "myocardial infarction"}


def test_a_model_of_fastembed_loads_and_links(run: Run, model: Path, tmp_path: Path) -> None:
    """A base is loaded with `--model fastembed:NAME`, linked without naming it; another model is refused."""
    from pearl_qdrant.integrations.fastembed import register

    name = f"fastembed:{register(str(model))}"
    (tmp_path / "base.tsv").write_text("id\tname\nnyt\tThe New York Times\nmi\theart attack\n", encoding="utf-8")
    loaded = run("ingest", str(tmp_path / "base.tsv"), "--collection", "base", "--model", name, "--set", "device=cpu")
    linked = run("link", "heart attack", "--json")

    assert loaded.status == 0, loaded.err
    assert [one["entity_id"] for one in linked.lines()] == ["mi"]
    assert run("link", "heart attack", "--set", f"model={model}").status == 0, "the same file, by the other runtime"
    make_pearl(tmp_path / "other", name="other", seed=1)
    other = run("link", "heart attack", "--set", f"model={tmp_path / 'other'}")
    assert (other.status, "other" in other.err) == (1, True)
    assert f"name  {name}\n" in run("models", "show", name).out


def test_vectors_are_those_of_fastembed_and_do_not_depend_on_the_order(model: Path) -> None:
    """Each name has fastembed's vector whatever stands beside it; a name of nothing has none; there are no types."""
    from fastembed import TextEmbedding

    from pearl_qdrant.integrations.fastembed import register

    name = register(str(model))
    encoder, reference = load_encoder(f"fastembed:{name}"), TextEmbedding(name)
    names = [*NAMES, NAMES[0], "  ", "heart attack " * 20]
    encoded, turned = encoder.encode(names), encoder.encode(names[::-1])
    vectors = np.array(list(reference.embed(names)))

    assert encoded.encodable.tolist() == [name.strip() != "" for name in names]
    np.testing.assert_allclose(encoded.vectors[encoded.encodable], vectors[encoded.encodable], atol=MOST_DIFFERENCE)
    np.testing.assert_allclose(turned.vectors[::-1], encoded.vectors, atol=MOST_DIFFERENCE)
    assert encoded.type_probabilities is None
    assert encoder.encode([]).vectors.shape == (0, encoder.info.dim)
    prefixed = load_encoder(f"fastembed:{name}", prefix="query: ")
    assert prefixed.info.prefix == "query: "
    with pytest.raises(ValueError, match="lone surrogate"):
        encoder.encode(["\ud800"])


def test_names_of_other_models_are_refused_in_words(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that fastembed lacks, another device, another pooling, a folder that is no PEARL model, a second model of
    one name, and a package that is not there each say what to do.
    """
    from pearl_qdrant.integrations.fastembed import register

    with pytest.raises(ModelNotFoundError, match=r"there are .*BAAI/bge-small-en-v1\.5"):
        load_encoder("fastembed:BAAI/bge-smal-en-v1.5")
    name = register(str(model))
    wrong: list[tuple[type[Exception], dict[str, Any], str]] = [
        (DeviceError, {"device": "cuda"}, "runs on the CPU alone"),
        (ModelError, {"runtime": "torch"}, "no weights for torch"),
        (ModelError, {"pooling": "cls"}, "pooling of its own"),
    ]
    for error, options, reason in wrong:
        with pytest.raises(error, match=reason):
            load_encoder(f"fastembed:{name}", **options)
    make_pearl(tmp_path / "other")
    make_bert(tmp_path / "bert")
    with pytest.raises(ModelError, match="already has a model 'tiny'"):
        register(str(tmp_path / "other"))
    with pytest.raises(ModelError, match="not a PEARL checkpoint"):
        register(str(tmp_path / "bert"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"\[fastembed\]"):
        load_encoder(f"fastembed:{name}")
    assert "fastembed" in sys.modules
