"""Rule files: from ONNX text to rules, with every mistake named by file and line."""
