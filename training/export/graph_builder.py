"""Nodes and constants of an ONNX graph under construction."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9  # readable by onnxruntime 1.17 and later
FUSED = "com.microsoft"


class GraphBuilder:
    """Adds nodes one by one; equal constants without a name are stored once.

    Args:
        prefix: Prefix of all names, for a graph that joins another one.
    """

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self._prefix = prefix
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; returns the name of its output."""
        output = f"{self._prefix}v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output

    def output(self, kind: str, *inputs: str, name: str, **attributes: Any) -> None:
        """Add a node whose result is an output of the graph."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))

    def ints(self, *values: int) -> str:
        """Add a constant of int64, (n,); returns its name."""
        return self.constant(np.array(values, dtype=np.int64))

    def floats(self, values: Any) -> str:
        """Add a constant of float32; returns its name."""
        return self.constant(np.asarray(values, dtype=np.float32))

    def constant(self, value: Any) -> str:
        """Add a constant; returns its name."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"{self._prefix}c{len(self._constants)}"
            self.tensors.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def named(self, name: str, value: Any) -> str:
        """Add a constant with a name by which a reader finds it."""
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name
