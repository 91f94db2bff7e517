"""Export a trained checkpoint in one call: what `pearl-qdrant train export` does.

Both forms, network and graph, are compared before anything is written.

    from pearl_qdrant import export_checkpoint

    export_checkpoint("averaged/", "my-model/")

The result is one ONNX graph, compared with the network in torch, and a model card.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors.numpy import save_file

from pearl_qdrant.encoder.checkpoint import (
    CHARACTER_TENSORS,
    HEAD_TENSOR,
    ONNX_FILE,
    TORCH_FILE,
    PearlConfig,
    VerifiedCheckpoint,
)
from pearl_qdrant.encoder.loading import load_encoder
from pearl_qdrant.encoder.protocol import Encoded, Encoder
from pearl_qdrant.encoder.runtime.network import PearlNetwork
from pearl_qdrant.encoder.tokens import IntArray, open_tokenizer
from pearl_qdrant.encoder.type_head import type_marginals
from pearl_qdrant.encoder.verify import verify
from pearl_qdrant.encoder.write_checkpoint import write_checkpoint
from pearl_qdrant.errors import ModelError
from training.export import graph as export
from training.export import int8_graph
from training.networks.checkpoints import model_card, read_network, write_network
from training.options import StrPath, refuse_overwriting

MIN_MEAN_COSINE = 0.995
"""A quantised model with a lower mean cosine is refused."""

_N_NAMES = 512
_LONGEST = 5


@dataclass(frozen=True, slots=True)
class Parity:
    """Agreement of two encoders over the names that both can encode.

    Attributes:
        n: Names compared.
        mean_cosine: Mean cosine of the two vectors of a name.
        min_cosine: Smallest cosine.
        worst: The name with the smallest cosine.
        type_agreement: Share of names for which both predict the same entity type; None if a head has learnt no type.
    """

    n: int
    mean_cosine: float
    min_cosine: float
    worst: str
    type_agreement: float | None

    def __str__(self) -> str:
        cosines = f"mean cosine {self.mean_cosine:.5f}, least {self.min_cosine:.5f} ({self.worst!r})"
        types = "" if self.type_agreement is None else f", types agree {self.type_agreement:.1%}"
        return f"{self.n:,} names: {cosines}{types}"


def measure_parity(reference: Encoder, other: Encoder, names: Sequence[str]) -> Parity:
    """Encode names with both encoders and compare the results.

    Args:
        reference: One form.
        other: Another form, with vectors of the same width.
        names: Names to encode.

    Raises:
        ValueError: If no name is encodable.
    """
    expected, found = reference.encode(names), other.encode(names)
    both = np.flatnonzero(expected.encodable & found.encodable)
    if not len(both):
        raise ValueError(f"none of the {len(names)} names can be encoded, so there is nothing to compare")
    cosines = np.einsum("ij,ij->i", expected.vectors[both], found.vectors[both], dtype=np.float64)
    worst = int(cosines.argmin())
    types, others = _types(expected), _types(found)
    agreement = None if types is None or others is None else float((types[both] == others[both]).mean())
    return Parity(
        n=len(both),
        mean_cosine=float(cosines.mean()),
        min_cosine=float(cosines[worst]),
        worst=names[int(both[worst])],
        type_agreement=agreement,
    )


def _types(encoded: Encoded) -> IntArray | None:
    """Return the predicted entity types, (n,)."""
    if encoded.type_probabilities is None:
        return None
    types: IntArray = type_marginals(encoded.type_probabilities).argmax(axis=1)
    return types


def sample_names(tokenizer_path: Path, *, n: int = _N_NAMES, rng: random.Random) -> list[str]:
    """Draw phrases of one to five random pieces of a vocabulary, for when no names are given.

    Args:
        tokenizer_path: A tokenizer.json.
        n: Number of phrases.
        rng: Determines the phrases.
    """
    tokenizer = open_tokenizer(tokenizer_path)
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    known = sorted(token_id for token, token_id in tokenizer.get_vocab().items() if token not in special)
    ids = [rng.choices(known, k=rng.randint(1, _LONGEST)) for _ in range(n)]
    return [text.strip() or "a" for text in tokenizer.decode_batch(ids)]


Precision = Literal["int8", "fp32"]

MIN_FP32_COSINE = 0.9999
"""Smallest cosine allowed between the vectors of a name by torch and by an fp32 graph."""


def export_checkpoint(
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
        precision: "int8": matrices and tables in 8 bits, for BERT the rows of activations too; "fp32": as trained.
        name: Name of the exported model; by default that of `model`.
        with_torch: Whether the trained weights for torch are written too.
        names: Names to compare graph and network on; by default random pieces of the vocabulary.

    Returns:
        How close the graph is to the network in float32.

    Raises:
        OptionError: If `out` is `model`.
        ModelError: If the graph is not close enough; nothing is written then.
        CheckpointError: If the checkpoint is broken or has no weights for torch.
        ValueError: If there is no such precision.
    """
    if precision not in ("int8", "fp32"):
        raise ValueError(f"precision must be int8 or fp32, not {precision!r}")
    refuse_overwriting(out, model)
    source, target = Path(model), Path(out)
    network, config = read_network(source)
    with tempfile.TemporaryDirectory() as scratch:
        graph, form = Path(scratch) / "model.onnx", Path(scratch) / "form"
        made = _write_graph(network, graph, precision)
        config = config.model_copy(update={"name": name or config.name, "precision": made, "weights_hash": ""})
        write_network(form, network, config, transformer=source, onnx_path=graph)
        parity = check_forms(form, exact=precision == "fp32", names=names)
        parity_record = {key: value for key, value in asdict(parity).items() if key != "worst"}
        config = config.model_copy(update={"training": {**config.training, "parity": _rounded(parity_record)}})
        _write(target, config, source=source, form=form, with_torch=with_torch)
    return parity


def rebuild_for_torch(model: StrPath, out: StrPath, *, names: Sequence[str] = ()) -> Parity:
    """Rebuild the weights for torch of a model that has only an 8-bit graph, and write both.

    Args:
        model: The checkpoint folder.
        out: The folder to write.
        names: As for `export_checkpoint`.

    Returns:
        How close the graph is to the rebuilt network.

    Raises:
        OptionError: If `out` is `model`.
        ModelError: If the two are not close enough, or the graph cannot be rebuilt.
    """
    from safetensors.numpy import load_file

    from training.export.rebuild import rebuild_character_encoder, rebuild_phrase_encoder

    refuse_overwriting(out, model)
    source, target = Path(model), Path(out)
    checkpoint = verify(source)
    with tempfile.TemporaryDirectory() as scratch:
        weights, form = Path(scratch) / TORCH_FILE, Path(scratch) / "form"
        save_file(rebuild_phrase_encoder(checkpoint), weights, metadata={"format": "pt"})
        parts: dict[str, Any] = {
            "transformer": source,
            "type_head": load_file(checkpoint.head_path)[HEAD_TENSOR],
            "character": rebuild_character_encoder(checkpoint),
            "onnx_path": checkpoint.onnx_path,
            "torch_path": weights,
            "model_card": _card_of(checkpoint),
            "weights_hash": checkpoint.config.weights_hash,
        }
        write_checkpoint(form, checkpoint.config, **parts)
        parity = check_forms(form, exact=False, names=names)
        write_checkpoint(target, checkpoint.config, **parts)
    return parity


def check_forms(folder: Path, *, exact: bool, names: Sequence[str] = ()) -> Parity:
    """Compare the two forms of a checkpoint, torch in float32 and ONNX.

    Args:
        folder: Has both forms.
        exact: Whether every vector must agree; otherwise the mean of the cosines must be at least 0.995.
        names: Names to encode; by default random pieces of the vocabulary.

    Raises:
        ModelError: If they are not close enough.
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


def _write_graph(network: PearlNetwork, path: Path, precision: Precision) -> str:
    """Write the graph; returns its precision, as in pearl.json."""
    if precision == "int8" and int8_graph.is_supported(network):
        int8_graph.write_int8_graph(network, path)
        return int8_graph.PRECISION
    if precision == "fp32":
        export.export_onnx(network, path)
        return "fp32"
    whole = path.with_suffix(".fp32.onnx")
    export.export_onnx(network, whole)
    export.quantize_onnx(whole, path)
    return export.PRECISION


def _write(target: Path, config: PearlConfig, *, source: Path, form: Path, with_torch: bool) -> None:
    """Write the requested folder, from one with both forms."""
    from safetensors.numpy import load_file

    tensors = load_file(form / "pearl.safetensors")
    n = len(CHARACTER_TENSORS)
    character = {name[n:]: array for name, array in tensors.items() if name.startswith(CHARACTER_TENSORS)}
    write_checkpoint(
        target,
        config,
        transformer=source,
        type_head=tensors[HEAD_TENSOR],
        character=character if with_torch else None,
        onnx_path=form / ONNX_FILE,
        torch_path=form / TORCH_FILE if with_torch else None,
        model_card=model_card(config),
    )


def _card_of(checkpoint: VerifiedCheckpoint) -> str:
    path = checkpoint.folder / "README.md"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else model_card(checkpoint.config)


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 5) if isinstance(value, float) else value for key, value in record.items()}
