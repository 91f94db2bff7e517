"""Trained networks as ONNX graphs, on tiny random models."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
import torch
from character_models import make_network
from onnx import TensorProto, helper, numpy_helper
from tiny_models import DIM, make_bert

from pearl_qdrant.encoder.runtime.network import PearlNetwork, load_phrase_encoder, new_type_head
from training.export import export_checkpoint as export_graph
from training.export.export_checkpoint import export_onnx, quantize_onnx
from training.export.graph_builder import IR_VERSION, OPSET
from training.export.int8_graph import write_int8_graph

Array = npt.NDArray[np.float32]

IDS = torch.tensor([[2, 7, 9, 40, 3, 0], [2, 12, 3, 0, 0, 0], [2, 8, 9, 10, 11, 3]])
MASK = (IDS != 0).long()


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> PearlNetwork:
    """A tiny network with a random head."""
    torch.manual_seed(0)
    encoder = load_phrase_encoder(make_bert(tmp_path_factory.mktemp("bert") / "tiny"))
    return PearlNetwork(encoder, new_type_head(DIM)).eval()


def run(path: Path, ids: torch.Tensor = IDS, mask: torch.Tensor = MASK) -> tuple[Array, Array]:
    """Embedding and logits from a graph."""
    session = ort.InferenceSession(str(path))
    assert [value.name for value in session.get_inputs()] == ["input_ids", "attention_mask"]
    embedding, logits = session.run(
        ["embedding", "type_logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    )
    return embedding, logits


def cosines(a: Array, b: Array) -> Array:
    """Cosine of each pair of rows of unit vectors."""
    result: Array = (a * b).sum(1)
    return result


def export_fp32(network: PearlNetwork, path: Path) -> Path:
    """Write an fp32 graph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own, of torch and onnxscript
        export_onnx(network, path)
    return path


@pytest.fixture(scope="module")
def fp32_graph(network: PearlNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny network as an fp32 graph, shared since an export takes seconds."""
    return export_fp32(network, tmp_path_factory.mktemp("fp32") / "model.onnx")


def check_int8_graph(path: Path, network: PearlNetwork) -> None:
    """An 8-bit graph agrees with its network."""
    embedding, logits = run(path)
    with torch.inference_mode():
        expected, expected_logits = network(IDS, MASK)

    assert cosines(embedding, expected.numpy()).min() > 0.995
    assert logits == pytest.approx(expected_logits.numpy(), abs=0.15)


def test_an_int8_graph_agrees_with_torch(network: PearlNetwork, tmp_path: Path) -> None:
    """A graph with 8-bit rows gives the vectors and types of the network, up to quantisation."""
    write_int8_graph(network, tmp_path / "model.onnx")

    check_int8_graph(tmp_path / "model.onnx", network)


@pytest.mark.slow
def test_a_graph_quantised_in_blocks_agrees_with_torch(network: PearlNetwork, fp32_graph: Path, tmp_path: Path) -> None:
    """A graph with 8-bit weights in blocks gives the vectors and types of the network, up to quantisation."""
    quantize_onnx(fp32_graph, tmp_path / "model.onnx")

    check_int8_graph(tmp_path / "model.onnx", network)


class FirstWord(torch.nn.Module):
    """A phrase encoder that knows words alone: torch's exporter takes ten seconds for any other."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = torch.nn.Embedding.from_pretrained(table)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=self.table(input_ids))

    def to_onnx(self, network: PearlNetwork) -> onnx.ModelProto:
        """What torch's exporter would write, with the first token as pooling."""
        names = ["input_ids", "attention_mask"]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in names]
        output = helper.make_tensor_value_info("pearl_pooled", TensorProto.FLOAT, ["batch", DIM])
        nodes = [
            helper.make_node("Gather", ["input_ids", "first"], ["word"], axis=1),
            helper.make_node("Gather", ["table", "word"], ["pearl_pooled"]),
        ]
        constants = {"first": np.array(0), "table": self.table.weight.numpy()}
        tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        graph = helper.make_graph(nodes, "words", inputs, [output], tensors)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def test_what_is_added_to_a_graph_of_torch_is_exact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Characters, norm and type head after the part that torch exports are those of the network."""
    with_transformer = make_network(make_bert(tmp_path / "bert"))
    words = FirstWord(torch.from_numpy(np.random.default_rng(0).normal(size=(600, DIM)).astype(np.float32)))
    network = PearlNetwork(
        words, with_transformer.type_head, pooling="cls", character_encoder=with_transformer.character_encoder
    ).eval()
    monkeypatch.setattr(export_graph, "_export_pooled", words.to_onnx)
    export_onnx(network, tmp_path / "model.onnx")

    check_fp32_graph(tmp_path / "model.onnx", network)


@pytest.mark.slow
@pytest.mark.parametrize("with_characters", [False, True])
def test_an_fp32_graph_is_exact(request: pytest.FixtureRequest, tmp_path: Path, with_characters: bool) -> None:
    """Without quantisation torch and ONNX agree to rounding, with a character encoder too."""
    if with_characters:
        network = make_network(make_bert(tmp_path / "bert"))
        fp32_graph = export_fp32(network, tmp_path / "model.onnx")
    else:
        network, fp32_graph = request.getfixturevalue("network"), request.getfixturevalue("fp32_graph")
    check_fp32_graph(fp32_graph, network)


def check_fp32_graph(path: Path, network: PearlNetwork) -> None:
    """A graph agrees with its network to rounding."""
    embedding, logits = run(path)
    with torch.inference_mode():
        expected, expected_logits = network(IDS, MASK)

    assert embedding == pytest.approx(expected.numpy(), abs=1e-5)
    assert logits == pytest.approx(expected_logits.numpy(), abs=1e-4)


def test_neither_batch_nor_padding_changes_an_int8_vector(network: PearlNetwork, tmp_path: Path) -> None:
    """A name has the same vector alone and among longer ones, though activations are quantised."""
    write_int8_graph(network, tmp_path / "model.onnx")
    together, _ = run(tmp_path / "model.onnx")
    for i in range(len(IDS)):
        n = int(MASK[i].sum())
        alone, _ = run(tmp_path / "model.onnx", IDS[i : i + 1, :n], MASK[i : i + 1, :n])
        assert cosines(alone, together[i : i + 1]).min() > 0.9999


def test_odd_shapes_make_no_nan(network: PearlNetwork, tmp_path: Path) -> None:
    """One token, all the positions that the model has, and a row of padding alone are all finite."""
    write_int8_graph(network, tmp_path / "model.onnx")
    n = network.phrase_encoder.config.max_position_embeddings  # type: ignore[union-attr]
    for ids in (torch.full((1, 1), 7), torch.full((2, n), 9)):
        embedding, logits = run(tmp_path / "model.onnx", ids, torch.ones_like(ids))
        assert np.isfinite(embedding).all()
        assert np.isfinite(logits).all()
    embedding, _ = run(tmp_path / "model.onnx", IDS, torch.zeros_like(MASK))
    assert np.isfinite(embedding).all()


def test_cls_pooling_takes_the_first_token(network: PearlNetwork, tmp_path: Path) -> None:
    """A network that pools by its first token does so in the graph too."""
    by_first = PearlNetwork(network.phrase_encoder, network.type_head, pooling="cls").eval()
    write_int8_graph(by_first, tmp_path / "model.onnx")
    embedding, _ = run(tmp_path / "model.onnx")
    with torch.inference_mode():
        expected, _ = by_first(IDS, MASK)

    assert cosines(embedding, expected.numpy()).min() > 0.995
