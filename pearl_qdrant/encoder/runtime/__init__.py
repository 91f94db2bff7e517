"""What runs an encoder: ONNX on a CPU, torch on a GPU, and the devices to choose from."""
