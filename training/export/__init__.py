"""Export: a trained network as ONNX, in fp32 and 8 bits, and back."""
