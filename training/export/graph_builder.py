"""Nodes and constants of an ONNX graph under construction."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9  # what onnxruntime 1.17 and later read
FUSED = "com.microsoft"


class GraphBuilder:
    """Adds nodes one by one; equal constants without a name are kept once.

    Args:
        prefix: Of the names that it gives, for a graph that joins another.
    """

    def __init__(self, prefix: str = "") -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self._prefix = prefix
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node; the name of its output."""
        output = f"{self._prefix}v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output

    def output(self, kind: str, *inputs: str, name: str, **attributes: Any) -> None:
        """Add a node that gives an output of the graph."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))

    def ints(self, *values: int) -> str:
        """A constant of int64, (n,)."""
        return self.constant(np.array(values, dtype=np.int64))

    def floats(self, values: Any) -> str:
        """A constant of float32."""
        return self.constant(np.asarray(values, dtype=np.float32))

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"{self._prefix}c{len(self._constants)}"
            self.tensors.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def named(self, name: str, value: Any) -> str:
        """Add a constant that is looked for by its name later."""
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name
