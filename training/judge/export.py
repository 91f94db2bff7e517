"""Write a judge as one ONNX graph in 8 bits, over the word vectors that the encoder's graph gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from onnx import save
from torch import Tensor, nn

from training.export.graph_builder import Channels
from training.export.int8_graph import Int8Graph
from training.judge.network import Judge
from training.networks.bert_layers import BertLayer


def write_judge(judge: Judge, path: Path, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Write the graph of a judge that is on the CPU: words (b, t, dim), part (b, t) int64 -> logit (b,). `pairs` are
    batches of tokens and parts, (b, t) each, that show in which range values lie.
    """
    weights = {name: tensor.detach().float().numpy() for name, tensor in judge.bert_tensors().items()}
    dim = weights["embeddings.LayerNorm.weight"].shape[0]
    weights["embeddings.token_type_embeddings.weight"] = np.zeros((1, dim), np.float32)
    first = judge.layers[0]
    assert isinstance(first, BertLayer)
    config = SimpleNamespace(
        hidden_size=dim, num_attention_heads=first.heads, num_hidden_layers=len(judge.layers), layer_norm_eps=1e-12
    )
    of_name = judge.of_name.detach().numpy()
    dense = [(one.weight.detach().numpy().T, one.bias.detach().numpy()) for one in (judge.inner, judge.outer)]
    path.parent.mkdir(parents=True, exist_ok=True)
    save(Int8Graph(weights, config, _seen(judge, pairs)).build_judge(of_name, dense), str(path))


def _seen(judge: Judge, pairs: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Channels]:
    """Statistics of the inputs of every dense layer, by its name in BertModel, over the tokens of pairs."""
    largest: dict[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    n_tokens = sum(int((part != 0).sum()) for _, part in pairs)
    part = torch.empty(0)

    def observe(*names: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def record(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0].float()[part != 0]
            for name in names:
                largest[name] = torch.maximum(largest.get(name, x[0].abs()), x.abs().amax(0))
                sums[name] = sums.get(name, torch.zeros(())) + x.sum(0)

        return record

    hooks = []
    for i, layer in enumerate(judge.layers):
        assert isinstance(layer, BertLayer)
        name = f"encoder.layer.{i}"
        parts = [f"{name}.attention.self.{one}" for one in ("query", "key", "value")]
        hooks += [
            layer.qkv.register_forward_pre_hook(observe(*parts)),
            layer.mixed.register_forward_pre_hook(observe(f"{name}.attention.output.dense")),
            layer.inner.register_forward_pre_hook(observe(f"{name}.intermediate.dense")),
            layer.outer.register_forward_pre_hook(observe(f"{name}.output.dense")),
        ]
    try:
        with torch.inference_mode():
            for ids, part in pairs:
                judge.eval()(ids, part)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: Channels(largest[name].numpy(), (sums[name] / n_tokens).numpy()) for name in largest}
