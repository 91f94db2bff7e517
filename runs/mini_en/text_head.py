"""The type head of the shipped model: fitted on names of bases and on mentions in text, and measured by source.

The head is fitted on the vectors that it gets in the exported graph, whose weights have 8 bits, so that it fits what
ships. A name that several texts have may have any of their types (`marginal_type_loss`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from safetensors.numpy import load_file, save
from tokenizers import Tokenizer
from torch import Tensor

from mini_en.data import head_examples, held_out_types
from mini_en.examples import types_of_names
from pearl_qdrant.encoder.checkpoint import HEAD_FILE, HEAD_TENSOR, ONNX_FILE, read_config, seal, write_config
from pearl_qdrant.encoder.write_checkpoint import verify
from training.examples.example import (
    DEVELOPMENT_SPLITS,
    TEST_SPLITS,
    TRAIN_SPLITS,
    Example,
    count_labels,
    name_key,
    one_class,
    split_of,
)
from training.head import fit_head, label_matrix, score_types

FloatArray = npt.NDArray[np.float32]

TEXT_SOURCES = ("fewnerd", "crossner", "wnut17", "redocred")
"""Sources of typed names whose names are mentions in running text."""

TEXT_SHARE = 0.2
"""Share of mentions in text among the names that are drawn; chosen on the development splits."""

EPOCHS = 20
PER_SOURCE = 12_000
LOGITS = "type_logits"


def text_mentions(data: Path, splits: Collection[int], source: str | None = None) -> list[tuple[str, set[str]]]:
    """Return the mentions of splits by name, with all types that texts give them; of one source, or of all."""
    wanted = TEXT_SOURCES if source is None else (source,)
    types = types_of_names(data / "typed_names" / "onto_typed_names.tsv", wanted)
    return [(name, found) for name, found in types.items() if split_of(name_key(name)) in splits]


class HeadInput:
    """Gives the vectors that the type head of an ONNX graph gets.

    Args:
        model: Folder of a finished checkpoint.
    """

    def __init__(self, model: Path) -> None:
        graph = onnx.load(str(model / ONNX_FILE))
        self.vector, self.weight = _head_node(graph).input
        graph.graph.output.append(onnx.ValueInfoProto(name=self.vector))
        self._session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(read_config(model).max_length)

    def __call__(self, names: Sequence[str], *, batch: int = 64) -> FloatArray:
        """Return the vectors of names before normalisation, (n, dim)."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(names))]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        parts = [self._run([ids[i] for i in order[k : k + batch]]) for k in range(0, len(order), batch)]
        vectors = np.concatenate(parts)
        found = np.empty_like(vectors)
        found[order] = vectors
        return found

    def _run(self, ids: list[list[int]]) -> FloatArray:
        padded, mask = np.zeros((2, len(ids), max(map(len, ids))), dtype=np.int64)
        for row, one in enumerate(ids):
            padded[row, : len(one)] = one
            mask[row, : len(one)] = 1
        (vectors,) = self._session.run([self.vector], {"input_ids": padded, "attention_mask": mask})
        return np.asarray(vectors, dtype=np.float32)


def fit_text_head(model: Path, sources: list[list[Example]], data: Path) -> dict[str, Any]:
    """Fit the type head of a finished checkpoint anew, in its folder; returns its scores, for the model card.

    Args:
        model: The checkpoint.
        sources: Names of known types.
        data: Has the typed names.
    """
    vectors_of = HeadInput(model)
    names = head_examples(sources, random.Random(2), PER_SOURCE)
    texts = [
        Example(name, (), f"text:{name}", one_class("NP", sorted(found)))
        for name, found in text_mentions(data, TRAIN_SPLITS)
    ]
    examples = [*names, *texts]
    allowed = label_matrix(examples)
    head = fit_head(
        torch.from_numpy(vectors_of([example.name for example in examples])),
        allowed,
        weights=torch.cat([(1 - TEXT_SHARE) * _weights(names), TEXT_SHARE * _weights(texts)]),
        epochs=EPOCHS,
        generator=torch.Generator().manual_seed(0),
    )
    scores = _scores(head, vectors_of, data)
    _replace_head(model, head.weight.detach().numpy(), vectors_of.weight)
    config = read_config(model)
    how = {**config.training, **scores}
    # The agreement of 8-bit and full weights was that of the first head.
    how["parity"] = {key: value for key, value in how.get("parity", {}).items() if key != "type_agreement"}
    write_config(
        model, config.model_copy(update={"label_counts": count_labels(examples), "training": how, "weights_hash": ""})
    )
    seal(model)
    verify(model)
    return how


def _weights(examples: list[Example]) -> Tensor:
    """How often each is drawn: between equal weights for names and for sets of types. They add up to 1."""
    sizes = Counter(example.allowed for example in examples)
    weights = torch.tensor([sizes[example.allowed] ** -0.25 for example in examples])
    return weights / weights.sum()


@torch.inference_mode()
def _scores(head: torch.nn.Module, vectors_of: HeadInput, data: Path) -> dict[str, Any]:
    """Score the head on names that it never saw: a natural sample of all, and mentions in text by source."""

    def of(named: list[tuple[str, set[str]]]) -> tuple[float, float]:
        logits = head(torch.from_numpy(vectors_of([name for name, _ in named])))
        scores = score_types(logits, [found for _, found in named])
        return round(scores.accuracy, 4), round(scores.macro_f1, 4)

    found: dict[str, Any] = {}
    found["type_accuracy"], found["type_macro_f1"] = of(held_out_types(data, TEST_SPLITS))
    for part, splits in (("development", DEVELOPMENT_SPLITS), ("test", TEST_SPLITS)):
        for source in TEXT_SOURCES:
            found[f"type_accuracy_{source}_{part}"], _ = of(text_mentions(data, splits, source))
    return found


def _head_node(graph: onnx.ModelProto) -> onnx.NodeProto:
    """The operator that multiplies vectors with the head."""
    node: onnx.NodeProto
    (node,) = (one for one in graph.graph.node if LOGITS in one.output and one.op_type == "MatMul")
    return node


def _replace_head(model: Path, weight: FloatArray, name: str) -> None:
    """Write the weights of the head, (95, dim), into the graph and into the file beside it."""
    path = model / ONNX_FILE
    graph = onnx.load(str(path))
    (tensor,) = (one for one in graph.graph.initializer if one.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(weight.T), name))
    path.write_bytes(graph.SerializeToString())
    tensors = load_file(str(model / HEAD_FILE)) | {HEAD_TENSOR: np.ascontiguousarray(weight)}
    (model / HEAD_FILE).write_bytes(save(tensors))
