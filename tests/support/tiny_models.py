"""Tiny random models for tests: a hidden width of 32, two layers, a vocabulary of a few hundred tokens.

BERT, RoBERTa and ALBERT as transformers or sentence-transformers write them, and a PEARL checkpoint whose ONNX graph
is built node by node from the BERT's weights: an implementation that shares no code with torch's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pearl_qdrant.encoder.checkpoint import PearlConfig, VerifiedCheckpoint
from pearl_qdrant.encoder.write_checkpoint import write_checkpoint
from pearl_qdrant.phrase_types import PHRASE_TYPES

DIM = 32
N_LAYERS = 2
N_HEADS = 4
MAX_LENGTH = 16
MAX_POSITIONS = 48

Array = npt.NDArray[np.float32]

_SHAPE = {
    "hidden_size": DIM,
    "num_hidden_layers": N_LAYERS,
    "num_attention_heads": N_HEADS,
    "intermediate_size": 2 * DIM,
}

_LETTERS = [chr(i) for i in range(ord("a"), ord("z") + 1)] + list("0123456789.-'")
WORDS = "the new york times post heart attack aspirin city of united states".split()

NAMES = [
    "The New York Times",
    "New York Post",
    "new york",
    "heart attack",
    "aspirin",
    "Zürich",
    "a",
    "united states of the heart 1234567890",
    "x-ray 3.5",
    "nytimes.com",
]

NAMES_OF_THE_WORLD = [
    "Moscow",
    "Москва",
    "Αθήνα",
    "القاهرة",
    "ירושלים",
    "नई दिल्ली",
    "กรุงเทพ",
    "თბილისი",
    "東京都",
    "トウキョウ",
    "서울",
    "São Paulo",
]


def make_bert(folder: Path, *, seed: int = 0, words: int = 0) -> Path:
    """A BERT with its tokenizer, as transformers writes it; `words` more entries of the vocabulary."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = special + _LETTERS + [f"##{letter}" for letter in _LETTERS] + WORDS
    vocabulary += [f"w{i}" for i in range(words)]
    tokenizer = Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_bert_weights(len(vocabulary), seed), folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        **_SHAPE,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": MAX_POSITIONS,
        "type_vocab_size": 2,
        "pad_token_id": 0,
    }
    write_json(folder / "config.json", config)
    _save_tokenizer(folder, tokenizer, named)
    return folder


def _bert_weights(n_tokens: int, seed: int) -> dict[str, Array]:
    """Random weights of a BERT without its pooler; far enough apart that names differ."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (n_tokens, DIM),
        "embeddings.position_embeddings.weight": (MAX_POSITIONS, DIM),
        "embeddings.token_type_embeddings.weight": (2, DIM),
        "embeddings.LayerNorm": (DIM,),
    }
    for i in range(N_LAYERS):
        layer = f"encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{layer}.attention.{part}"] = (DIM, DIM)
        shapes[f"{layer}.attention.output.LayerNorm"] = (DIM,)
        shapes[f"{layer}.intermediate.dense"] = (2 * DIM, DIM)
        shapes[f"{layer}.output.dense"] = (DIM, 2 * DIM)
        shapes[f"{layer}.output.LayerNorm"] = (DIM,)
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes.items():
        around = 1.0 if "LayerNorm" in name else 0.0
        key = name if name.endswith(".weight") else f"{name}.weight"
        weights[key] = (around + 0.15 * rng.normal(size=shape)).astype(np.float32)
        if key != name:
            weights[f"{name}.bias"] = (0.15 * rng.normal(size=shape[0])).astype(np.float32)
    return weights


def make_roberta(folder: Path, *, seed: int = 0) -> Path:
    """A RoBERTa, whose tokenizer sees every byte and whose positions start at padding_idx + 1."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(vocabulary)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    named = {
        "cls_token": "<s>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    named |= {"bos_token": "<s>", "eos_token": "</s>"}
    positions = MAX_POSITIONS + 2
    config = {**_SHAPE, "vocab_size": len(vocabulary), "max_position_embeddings": positions, "type_vocab_size": 1}
    _save_model(folder, "Roberta", {**config, "pad_token_id": 1}, seed=seed)
    _save_tokenizer(folder, tokenizer, named)
    return folder


def make_albert(folder: Path, *, seed: int = 0) -> Path:
    """An ALBERT with a Unigram tokenizer, embeddings narrower than its layers, and layers that share weights."""
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [(token, 0.0) for token in special]
    pieces += [("\u2581", -3.0), *((letter, -4.0) for letter in _LETTERS), *((f"\u2581{w}", -2.0) for w in WORDS)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    config = {**_SHAPE, "vocab_size": len(pieces), "embedding_size": 16, "max_position_embeddings": MAX_POSITIONS}
    _save_model(folder, "Albert", config, seed=seed)
    _save_tokenizer(folder, tokenizer, named)
    return folder


def make_multilingual_bert(folder: Path, *, seed: int = 0) -> Path:
    """A BERT with a tokenizer as XLM-R has it, whose word embeddings are 4-bit blocks: multilingual-e5-small in small.

    Words take half a byte a weight, and a half-precision scale for 32 of them; id 0 is <s> and not padding.
    """
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    letters = sorted({letter for name in NAMES_OF_THE_WORLD for letter in name if letter != " "} | set(_LETTERS))
    pieces = [(token, 0.0) for token in special] + [("\u2581", -3.0), *((letter, -6.0) for letter in letters)]
    pieces += [*[(f"▁{word}", -4.0) for name in NAMES_OF_THE_WORLD for word in name.split()][::2], ("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(list(dict(pieces).items()), unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    named = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    named |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    n_tokens = tokenizer.get_vocab_size()
    weights = _bert_weights(n_tokens, seed)
    rng = np.random.default_rng(seed)
    blocks = rng.integers(-8, 8, (n_tokens, DIM // 32, 32))
    blocks[..., 0] = -8  # the largest of a block is -8 times its scale
    scales = rng.normal(scale=0.03, size=(n_tokens, DIM // 32, 1)).astype(np.float16)
    weights["embeddings.word_embeddings.weight"] = (blocks * scales.astype(np.float32)).reshape(n_tokens, DIM)
    weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"].astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    shape = {**_SHAPE, "vocab_size": n_tokens, "max_position_embeddings": MAX_POSITIONS, "type_vocab_size": 2}
    config = {"architectures": ["BertModel"], "model_type": "bert", **shape, "pad_token_id": 0}
    write_json(folder / "config.json", config)
    _save_tokenizer(folder, tokenizer, named)
    return folder


def _save_model(folder: Path, kind: str, config: Mapping[str, object], *, seed: int) -> None:
    """Write a random model of a family that transformers knows, weights far enough apart that names differ."""
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**config))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.15)
    model.save_pretrained(folder)


def _save_tokenizer(folder: Path, tokenizer: Tokenizer, special_tokens: Mapping[str, str]) -> None:
    """Write tokenizer.json and the two files beside it."""
    tokenizer.add_special_tokens(list(special_tokens.values()))
    tokenizer.save(str(folder / "tokenizer.json"))
    # The generic class takes tokenizer.json as it is.
    declared = {**special_tokens, "model_max_length": MAX_LENGTH, "tokenizer_class": "PreTrainedTokenizerFast"}
    write_json(folder / "tokenizer_config.json", declared)
    write_json(folder / "special_tokens_map.json", dict(special_tokens))


def as_sentence_transformers(folder: Path, *, pooling: str = "mean", normalize: bool = True, prompt: str = "") -> Path:
    """Add what sentence-transformers puts beside the transformer."""
    modules = ["Transformer", "Pooling"] + (["Normalize"] if normalize else [])
    paths = ["", "1_Pooling", "2_Normalize"]
    listed = [
        {"idx": i, "name": str(i), "path": paths[i], "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(modules)
    ]
    write_json(folder / "modules.json", listed)
    declared = {"word_embedding_dimension": DIM, "pooling_mode_mean_tokens": False, "pooling_mode_cls_token": False}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    key = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    write_json(folder / "1_Pooling" / "config.json", {**declared, key[pooling]: True})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": MAX_LENGTH, "do_lower_case": False})
    if prompt:
        prompts = {"prompts": {"query": prompt}, "default_prompt_name": "query"}
        write_json(folder / "config_sentence_transformers.json", prompts)
    return folder


def make_pearl(
    folder: Path,
    *,
    name: str = "tiny",
    seed: int = 0,
    head_seed: int | None = None,
    torch_weights: bool = True,
    onnx_graph: bool = True,
    make: Callable[..., Path] = make_bert,
) -> VerifiedCheckpoint:
    """A PEARL checkpoint: a BERT above with a random type head; `PHRASE_TYPES[-1]` was never seen in training."""
    transformer = make(folder.parent / f".{folder.name}-parts", seed=seed)
    head = (
        np.random.default_rng(seed if head_seed is None else head_seed)
        .normal(size=(len(PHRASE_TYPES), DIM))
        .astype(np.float32)
    )
    counts = (1,) * (len(PHRASE_TYPES) - 1) + (0,)
    config = PearlConfig(name=name, dim=DIM, phrase_dim=DIM, label_counts=counts, max_length=MAX_LENGTH)
    weights = transformer / "model.safetensors"
    graph = transformer / "model.onnx"
    if onnx_graph:
        onnx.save(bert_graph(load_file(weights), type_head=head), graph)
    return write_checkpoint(
        folder,
        config,
        transformer=transformer,
        type_head=head,
        onnx_path=graph if onnx_graph else None,
        torch_path=weights if torch_weights else None,
        model_card="# A tiny random model\n",
    )


def write_json(path: Path, content: object) -> None:
    """Write JSON as the libraries do."""
    path.write_text(json.dumps(content), encoding="utf-8")


def bert_graph(weights: Mapping[str, Array], *, type_head: Array | None, token_types: bool = False) -> onnx.ModelProto:
    """The BERT above as an ONNX graph.

    With a type head, its outputs are `embedding` and `type_logits`; without one, `last_hidden_state`. With
    `token_types` it wants token_type_ids too, as graphs of other exporters do.
    """
    g = _Graph(weights)
    ids, mask = "input_ids", "attention_mask"
    length = g.node("Gather", g.node("Shape", ids), g.ints([1]), axis=0)
    positions = g.node("Slice", g.weight("embeddings.position_embeddings.weight"), g.ints([0]), length)
    x = g.node("Add", g.node("Gather", g.weight("embeddings.word_embeddings.weight"), ids), positions)
    kinds = "token_type_ids" if token_types else g.node("Mul", ids, g.ints(0))
    x = g.node("Add", x, g.node("Gather", g.weight("embeddings.token_type_embeddings.weight"), kinds))
    x = g.layer_norm(x, "embeddings.LayerNorm")
    real = g.node("Cast", mask, to=TensorProto.FLOAT)
    hidden = g.node("Mul", g.node("Sub", real, g.floats(1.0)), g.floats(1e4))  # 0 where real, -1e4 where not
    bias = g.node("Unsqueeze", hidden, g.ints([1, 2]))  # (b, 1, 1, t)
    for i in range(N_LAYERS):
        x = g.layer(x, bias, f"encoder.layer.{i}")
    if type_head is None:
        g.node("Identity", x, output="last_hidden_state")
        outputs: list[tuple[str, list[str | int]]] = [("last_hidden_state", ["b", "t", DIM])]
    else:
        column = g.node("Unsqueeze", real, g.ints([2]))  # (b, t, 1)
        total = g.node("ReduceSum", g.node("Mul", x, column), g.ints([1]), keepdims=0)
        pooled = g.node("Div", total, g.node("ReduceSum", column, g.ints([1]), keepdims=0))
        g.node("LpNormalization", pooled, output="embedding", axis=1, p=2)
        g.node("MatMul", pooled, g.floats(type_head.T), output="type_logits")
        outputs = [("embedding", ["b", DIM]), ("type_logits", ["b", len(type_head)])]
    inputs = [ids, mask] + (["token_type_ids"] if token_types else [])
    graph = helper.make_graph(
        g.nodes,
        "bert",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "t"]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        g.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


class _Graph:
    """Nodes and weights of a graph that is being built."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._weights = weights

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output; returns the output's name."""
        name = output or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _constant(self, array: npt.NDArray[np.float32] | npt.NDArray[np.int64]) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def ints(self, values: int | list[int]) -> str:
        """Add an int64 constant."""
        return self._constant(np.array(values, dtype=np.int64))

    def floats(self, values: float | Array) -> str:
        """Add a float32 constant."""
        return self._constant(np.array(values, dtype=np.float32))

    def weight(self, name: str) -> str:
        """Add a weight of the model."""
        return self._constant(self._weights[name])

    def dense(self, x: str, name: str) -> str:
        """A linear layer: x W^T + b."""
        product = self.node("MatMul", x, self.floats(self._weights[f"{name}.weight"].T))
        return self.node("Add", product, self.weight(f"{name}.bias"))

    def layer_norm(self, x: str, name: str) -> str:
        """BERT's layer norm."""
        weights = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", x, *weights, epsilon=1e-12)

    def layer(self, x: str, bias: str, name: str) -> str:
        """One transformer layer, (b, t, dim) to (b, t, dim)."""
        heads = []
        for part in ("query", "key", "value"):
            split = self.node("Reshape", self.dense(x, f"{name}.attention.self.{part}"), self._head_shape())
            heads.append(self.node("Transpose", split, perm=[0, 2, 1, 3]))
        query, key, value = heads
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.node("Add", self.node("Mul", scores, self.floats((DIM / N_HEADS) ** -0.5)), bias)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        joined = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints([0, 0, DIM]))
        attended = self.dense(joined, f"{name}.attention.output.dense")
        x = self.layer_norm(self.node("Add", x, attended), f"{name}.attention.output.LayerNorm")
        inner = self._gelu(self.dense(x, f"{name}.intermediate.dense"))
        return self.layer_norm(
            self.node("Add", x, self.dense(inner, f"{name}.output.dense")), f"{name}.output.LayerNorm"
        )

    def _head_shape(self) -> str:
        return self.ints([0, 0, N_HEADS, DIM // N_HEADS])

    def _gelu(self, x: str) -> str:
        """Exact GELU: x / 2 (1 + erf(x / sqrt 2))."""
        erf = self.node("Erf", self.node("Mul", x, self.floats(2**-0.5)))
        return self.node("Mul", self.node("Mul", x, self.floats(0.5)), self.node("Add", erf, self.floats(1.0)))
