"""Rule files: from ONNX text to rules, with every mistake named by file and line."""

DEFAULT_SET = "ngine"
"""The set that is used when nobody chooses; it stands here, where nothing heavy is imported, for the command line."""
