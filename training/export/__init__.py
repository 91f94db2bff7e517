"""Export: writes a trained network as an ONNX graph, in fp32 or 8 bits, and rebuilds weights from a graph."""
