"""Runtimes of encoders: ONNX on a CPU, torch on a GPU, and the choice between them."""
