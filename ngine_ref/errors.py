"""What can go wrong in `ngine_ref`, a class for each kind."""


class NgineError(Exception):
    """The root of every error that `ngine_ref` raises on purpose."""


class ModelError(NgineError):
    """The model cannot be loaded or is not a valid model."""


class FeedError(NgineError):
    """The inputs of a run do not fit the model: one is missing, unknown, or of the wrong element type or rank."""


class UnknownOperatorError(NgineError):
    """There is no kernel, function body or reference implementation for an operator."""


class OperatorError(NgineError):
    """An operator was given something that ONNX forbids."""


class ShapeError(OperatorError):
    """The shapes of an operator's inputs do not fit; the sentence has the shapes."""
