"""One node, however it is computed: by a kernel, its function's body, its bodies, or onnx's reference."""
