"""Let the share of the characters grow with the tokens that continue a word, in a finished 8-bit model.

Only the share changes, which is one constant of the graph: the weights stay as they are, bit by bit. The type head
reads the character part at its share, so it has to be fitted again (`text_head.py`).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, TensorProto, numpy_helper

from pearl_qdrant.encoder.character.table import read_character_table
from pearl_qdrant.encoder.checkpoint import ONNX_FILE, read_config, seal, write_config
from pearl_qdrant.encoder.verify import verify
from training.export.graph_builder import GraphBuilder, growing_ratio


def grow_share(model: Path, out: Path, *, share: float, continuation_share: float) -> None:
    """Write a copy of a finished model with other shares.

    Args:
        model: Folder of a checkpoint with a character encoder and an 8-bit graph.
        out: The folder to write.
        share: Share of the characters in a phrase of whole words.
        continuation_share: Share in a phrase all of whose tokens continue a word.

    Raises:
        ValueError: If the model has no character encoder, or its share grows already.
    """
    config = read_config(model)
    if config.character is None or config.character.continuation_share is not None:
        raise ValueError(f"{model} has no character encoder, or one whose share grows already")
    shutil.copytree(model, out)
    graph = onnx.load(str(model / ONNX_FILE))
    _replace_ratio(graph, model / "tokenizer.json", share, continuation_share)
    (out / ONNX_FILE).write_bytes(graph.SerializeToString())
    shares = {"share": share, "continuation_share": continuation_share}
    character = config.character.model_copy(update=shares)
    write_config(out, config.model_copy(update={"character": character, "weights_hash": ""}))
    seal(out)
    verify(out)


def _replace_ratio(model: onnx.ModelProto, tokenizer: Path, least: float, most: float) -> None:
    """Put the ratio of each phrase where the graph has one for all; see `training.export.graph_builder`."""
    nodes = model.graph.node
    (length,) = (node for node in nodes if node.op_type == "ReduceL2")
    at, scale = next((i, node) for i, node in enumerate(nodes) if length.output[0] in node.input)
    table, g = read_character_table(tokenizer), GraphBuilder(prefix="share_")
    attended = g.op("Cast", "attention_mask", to=TensorProto.BOOL)
    real = g.op("And", attended, _looked_up(model, ~table.special))
    begins = _looked_up(model, ~table.continuation)
    ratio = growing_ratio(g, real, begins, share=least, continuation_share=most)
    former, scale.input[1] = scale.input[1], ratio
    kept = [tensor for tensor in model.graph.initializer if tensor.name != former]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, *g.tensors])
    before: list[NodeProto] = [*nodes[:at], *g.nodes, *nodes[at:]]
    del nodes[:]
    nodes.extend(before)


def _looked_up(model: onnx.ModelProto, table: npt.NDArray[np.bool_]) -> str:
    """Name of the value that looks the tokens up in a table, (b, t)."""
    tables = {tensor.name for tensor in model.graph.initializer if _equals(tensor, table)}
    (value,) = (node.output[0] for node in model.graph.node if node.op_type == "Gather" and node.input[0] in tables)
    return str(value)


def _equals(tensor: TensorProto, table: npt.NDArray[np.bool_]) -> bool:
    is_table = tensor.data_type == TensorProto.BOOL and tuple(tensor.dims) == table.shape
    return is_table and bool((numpy_helper.to_array(tensor) == table).all())
