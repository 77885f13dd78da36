"""Numbers: onnxruntime on the original against ngine_ref on the result."""
