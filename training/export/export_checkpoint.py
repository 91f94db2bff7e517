"""Export a trained network as one ONNX graph, in 8 bits (`int8_graph`) or as it is.

input_ids, attention_mask (b, t) int64  ->  embedding (b, dim), type_logits (b, 95)
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.encoder.checkpoint import HEAD_TENSOR, TORCH_FILE, VerifiedCheckpoint, seal
from pearl_qdrant.encoder.loading import find_model, load_encoder
from pearl_qdrant.encoder.protocol import Encoder, type_marginals
from pearl_qdrant.encoder.runtime.torch_runtime import PearlNetwork, pool_tokens
from pearl_qdrant.encoder.write_checkpoint import verify, write_checkpoint
from pearl_qdrant.errors import ModelError, OptionError
from training.export import int8_graph
from training.export.graph_builder import OPSET, GraphBuilder, add_outputs
from training.finetune.losses import MASKED_LOGIT
from training.networks.checkpoints import model_card, read_network, write_network
from training.options import StrPath, refuse_overwriting

_POOLED = "pearl_pooled"


class _Pooled(nn.Module):
    """The phrase encoder in the form of the graph: one additive mask, explicit attention, and pooling."""

    def __init__(self, network: PearlNetwork) -> None:
        super().__init__()
        self.phrase_encoder = network.phrase_encoder
        self.pooling = network.pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        # Not minus infinity: a row of padding only must not become NaN.
        additive = (1.0 - attention_mask.to(torch.float32))[:, None, None, :] * MASKED_LOGIT  # (b, 1, 1, t)
        hidden = self.phrase_encoder(input_ids=input_ids, attention_mask=additive).last_hidden_state
        return pool_tokens(hidden, attention_mask, pooling=self.pooling)


def export_onnx(network: PearlNetwork, path: Path) -> None:
    """Write the network as an fp32 ONNX graph with dynamic batch and token axes.

    Torch's exporter writes the phrase encoder. The rest is added node by node, since the words of a batch have shapes
    that no exporter traces. `network`: has a type head, and is on the CPU. `path`: the .onnx file to write.
    """
    model = _export_pooled(network)
    graph = GraphBuilder(prefix="pearl_")
    outputs = add_outputs(graph, _POOLED, network, int8=False)
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(graph.tensors)
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())


def _export_pooled(network: PearlNetwork) -> Any:
    """Export the phrase encoder and its pooling: (b, phrase_dim)."""
    encoder: Any = network.phrase_encoder
    encoder.set_attn_implementation("eager")
    # Two tensors: the exporter treats one object as one input.
    ids, mask = torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)
    batch, tokens = torch.export.Dim("batch", min=1, max=65_536), torch.export.Dim("tokens", min=2, max=512)
    program = torch.onnx.export(
        _Pooled(network).eval(),
        (ids, mask),
        dynamo=True,
        opset_version=OPSET,
        input_names=["input_ids", "attention_mask"],
        output_names=[_POOLED],
        dynamic_shapes={"input_ids": {0: batch, 1: tokens}, "attention_mask": {0: batch, 1: tokens}},
        verbose=False,
    )
    assert program is not None
    model = program.model_proto
    # The exporter keeps torch's value names, one of which is "embedding" and would clash with an output.
    inner = {name: f"inner_{name}" for name in ("embedding", "type_logits")}
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [inner.get(value, value) for value in values]
    for value in model.graph.value_info:
        value.name = inner.get(value.name, value.name)
    return model


MIN_MEAN_COSINE = 0.995
"""A quantised model with a lower mean cosine is refused."""

_N_NAMES = 512
_LONGEST = 5


@dataclass(frozen=True, slots=True)
class Parity:
    """Agreement of two encoders over the names that both can encode."""

    n: int  # names compared
    mean_cosine: float  # mean cosine of the two vectors of a name
    min_cosine: float  # smallest cosine
    worst: str  # the name with the smallest cosine
    # share of names for which both predict the same entity type; None if a head has learnt no type
    type_agreement: float | None

    def __str__(self) -> str:
        cosines = f"mean cosine {self.mean_cosine:.5f}, least {self.min_cosine:.5f} ({self.worst!r})"
        types = "" if self.type_agreement is None else f", types agree {self.type_agreement:.1%}"
        return f"{self.n:,} names: {cosines}{types}"


def measure_parity(reference: Encoder, other: Encoder, names: Sequence[str]) -> Parity:
    """Encode names with two encoders of one width, and compare the results. Some name must be encodable."""
    expected, found = reference.encode(names), other.encode(names)
    both = np.flatnonzero(expected.encodable & found.encodable)
    if not len(both):
        raise ValueError(f"none of the {len(names)} names can be encoded, so there is nothing to compare")
    cosines = np.einsum("ij,ij->i", expected.vectors[both], found.vectors[both], dtype=np.float64)
    worst = int(cosines.argmin())
    agreement, chances = None, [expected.type_probabilities, found.type_probabilities]
    if chances[0] is not None and chances[1] is not None:
        types = [type_marginals(one[both]).argmax(axis=1) for one in chances if one is not None]
        agreement = float((types[0] == types[1]).mean())
    least = float(cosines[worst])
    return Parity(len(both), float(cosines.mean()), least, names[int(both[worst])], type_agreement=agreement)


def sample_names(tokenizer_path: Path, *, n: int = _N_NAMES, rng: random.Random) -> list[str]:
    """Draw phrases of one to five random pieces of a vocabulary (tokenizer.json), for when no names are given."""
    tokenizer = open_tokenizer(tokenizer_path)
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    known = sorted(token_id for token, token_id in tokenizer.get_vocab().items() if token not in special)
    ids = [rng.choices(known, k=rng.randint(1, _LONGEST)) for _ in range(n)]
    return [text.strip() or "a" for text in tokenizer.decode_batch(ids)]


Precision = Literal["int8", "fp32"]

MIN_FP32_COSINE = 0.9999
"""Smallest cosine allowed between the vectors of a name by torch and by an fp32 graph."""


def export_checkpoint(  # long: its arguments, and what they mean
    model: StrPath,
    out: StrPath,
    *,
    precision: Precision = "int8",
    name: str | None = None,
    with_torch: bool = False,
    names: Sequence[str] = (),
) -> Parity:
    """Export a trained checkpoint as one ONNX graph, and refuse a graph that differs from the network.

    Args:
        model: A checkpoint folder with weights for torch.
        out: The folder to write.
        precision: "int8": matrices, tables and rows of activations in 8 bits, for a BERT; "fp32": as trained.
        name: Name of the exported model; by default that of `model`.
        with_torch: Whether the trained weights for torch are written too.
        names: Names to compare graph and network on; by default random pieces of the vocabulary.

    Returns:
        How close the graph is to the network in float32.

    Raises:
        OptionError: If `out` is `model`, or its network is no BERT and `precision` int8.
        ModelError: If the graph is not close enough; nothing is written then.
        CheckpointError: If the checkpoint is broken or has no weights for torch.
    """
    refuse_overwriting(out, model)
    source, target = Path(model), Path(out)
    network, config = read_network(source)
    with tempfile.TemporaryDirectory() as scratch:
        graph, form = Path(scratch) / "model.onnx", Path(scratch) / "form"
        made: str = precision
        if precision == "fp32":
            export_onnx(network, graph)
        elif int8_graph.is_supported(network):
            int8_graph.write_int8_graph(network, graph)
            made = int8_graph.PRECISION
        else:
            kind: Any = network.phrase_encoder.config
            raise OptionError(
                "precision", f"A {kind.model_type} cannot be exported in 8 bits, only a BERT: give 'precision' fp32."
            )
        config = config.model_copy(update={"name": name or config.name, "precision": made, "weights_hash": ""})
        write_network(form, network, config, transformer=source, onnx_path=graph)
        parity = check_forms(form, exact=precision == "fp32", names=names)
        record = {
            key: round(v, 5) if isinstance(v, float) else v for key, v in asdict(parity).items() if key != "worst"
        }
        config = config.model_copy(update={"training": {**config.training, "parity": record}})
        write_network(target, network, config, transformer=source, onnx_path=graph, with_torch=with_torch)
    return parity


def rebuild_for_torch(model: StrPath, out: StrPath, *, names: Sequence[str] = ()) -> Parity:
    """Rebuild the weights for torch of a model that has only an 8-bit graph, and write both.

    Args:
        model: A shipped name, or the folder of a checkpoint.
        out: The folder to write.
        names: As for `export_checkpoint`.

    Returns:
        How close the graph is to the rebuilt network.

    Raises:
        OptionError: If `out` is `model`.
        ModelNotFoundError: If the model does not exist.
        ModelError: If the two are not close enough, or the graph cannot be rebuilt.
    """
    from safetensors.numpy import load_file

    source, target = find_model(os.fspath(model)).folder, Path(out)
    refuse_overwriting(out, source)
    checkpoint = verify(source)
    with tempfile.TemporaryDirectory() as scratch:
        weights, form = Path(scratch) / TORCH_FILE, Path(scratch) / "form"
        save_file(int8_graph.rebuild_phrase_encoder(checkpoint), weights, metadata={"format": "pt"})
        parts: dict[str, Any] = {
            "transformer": source,
            "type_head": load_file(checkpoint.head_path)[HEAD_TENSOR],
            "character": {},
            "onnx_path": checkpoint.onnx_path,
            "torch_path": weights,
            "model_card": _card_of(checkpoint),
        }
        write_checkpoint(form, checkpoint.config, **parts)
        parity = check_forms(form, exact=False, names=names)
        write_checkpoint(target, checkpoint.config, **parts)
        seal(target, weights_hash=checkpoint.config.weights_hash)
    return parity


def check_forms(folder: Path, *, exact: bool, names: Sequence[str] = ()) -> Parity:
    """Compare the two forms of a checkpoint, torch in float32 and ONNX. Raises ModelError if they are not close enough.

    Args:
        folder: Has both forms.
        exact: Whether every vector must agree; otherwise the mean of the cosines must be at least 0.995.
        names: Names to encode; by default random pieces of the vocabulary.
    """
    names = names or sample_names(folder / "tokenizer.json", rng=random.Random(0))
    torch_form = load_encoder(str(folder), device="cpu", runtime="torch", precision="fp32")
    parity = measure_parity(torch_form, load_encoder(str(folder), device="cpu", runtime="onnx"), names)
    least, what = (parity.min_cosine, MIN_FP32_COSINE) if exact else (parity.mean_cosine, MIN_MEAN_COSINE)
    if not least >= what:
        raise ModelError(
            f"The graph is not close enough to the network: {parity}; {what} is needed. Export with precision fp32."
        )
    return parity


def _card_of(checkpoint: VerifiedCheckpoint) -> str:
    path = checkpoint.folder / "README.md"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else model_card(checkpoint.config)
