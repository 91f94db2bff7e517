"""Export a trained network as one ONNX graph in 8 bits (`int8_graph`).

input_ids, attention_mask (b, t) int64  ->  embedding (b, dim), type_logits (b, 95)
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from pearl_qdrant.encoder.batching import open_tokenizer
from pearl_qdrant.encoder.checkpoint import HEAD_TENSOR, TORCH_FILE, VerifiedCheckpoint, seal
from pearl_qdrant.encoder.loading import find_model, load_encoder
from pearl_qdrant.encoder.protocol import Encoder, type_marginals
from pearl_qdrant.encoder.write_checkpoint import verify, write_checkpoint
from pearl_qdrant.errors import ModelError, OptionError
from training.export import int8_graph
from training.networks.checkpoints import model_card, read_network, write_network
from training.options import StrPath, refuse_overwriting

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


def export_checkpoint(model: StrPath, out: StrPath, *, name: str | None = None, names: Sequence[str] = ()) -> Parity:
    """Export a trained checkpoint as one ONNX graph, matrices, tables and rows of activations in 8 bits, and refuse a
    graph that differs from the network.

    Args:
        model: A checkpoint folder with weights for torch.
        out: The folder to write.
        name: Name of the exported model; by default that of `model`.
        names: Names to compare graph and network on; by default random pieces of the vocabulary.

    Returns:
        How close the graph is to the network in float32.

    Raises:
        OptionError: If `out` is `model`, or the network is no BERT.
        ModelError: If the graph is not close enough; nothing is written then.
        CheckpointError: If the checkpoint is broken or has no weights for torch.
    """
    refuse_overwriting(out, model)
    source, target = Path(model), Path(out)
    network, config = read_network(source)
    if not int8_graph.is_supported(network):
        kind: Any = network.phrase_encoder.config
        raise OptionError("model", f"A {kind.model_type} cannot be exported, only a BERT. Use {source} as it is.")
    changed = {"name": name or config.name, "precision": int8_graph.PRECISION, "weights_hash": ""}
    config = config.model_copy(update=changed)
    with tempfile.TemporaryDirectory() as scratch:
        graph, form = Path(scratch) / "model.onnx", Path(scratch) / "form"
        int8_graph.write_int8_graph(network, graph)
        write_network(form, network, config, transformer=source, onnx_path=graph)
        parity = check_forms(form, names=names)
        record = {
            key: round(v, 5) if isinstance(v, float) else v for key, v in asdict(parity).items() if key != "worst"
        }
        config = config.model_copy(update={"training": {**config.training, "parity": record}})
        write_network(target, network, config, transformer=source, onnx_path=graph, with_torch=False)
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
        parity = check_forms(form, names=names)
        write_checkpoint(target, checkpoint.config, **parts)
        seal(target, weights_hash=checkpoint.config.weights_hash)
    return parity


def check_forms(folder: Path, *, names: Sequence[str] = ()) -> Parity:
    """Compare the two forms of a checkpoint, torch in float32 and ONNX. Raises ModelError if the mean of their cosines
    is too low. `names`: what to encode; by default random pieces of the vocabulary.
    """
    names = names or sample_names(folder / "tokenizer.json", rng=random.Random(0))
    torch_form = load_encoder(str(folder), device="cpu", runtime="torch", precision="fp32")
    parity = measure_parity(torch_form, load_encoder(str(folder), device="cpu", runtime="onnx"), names)
    if not parity.mean_cosine >= MIN_MEAN_COSINE:
        message = f"The graph is not close enough to the network: {parity}; {MIN_MEAN_COSINE} is needed."
        raise ModelError(f"{message} Use the network as it is, with weights for torch.")
    return parity


def _card_of(checkpoint: VerifiedCheckpoint) -> str:
    path = checkpoint.folder / "README.md"
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else model_card(checkpoint.config)
