"""Optional, OptionalHasElement and OptionalGetElement: here an optional value is its content, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.loading.graph import Node, Value


def optional(node: Node, inputs: Sequence[Value]) -> list[Value]:
    """Optional (opset 15): the input, or an empty optional of the type that the attribute names."""
    return [inputs[0] if inputs else None]


def has_element(node: Node, inputs: Sequence[Value]) -> list[Value]:
    """OptionalHasElement (opsets 15, 18): a bool scalar; an absent input counts as empty."""
    return [np.array(bool(inputs) and inputs[0] is not None)]


def get_element(node: Node, inputs: Sequence[Value]) -> list[Value]:
    """OptionalGetElement (opsets 15, 18): the content.

    Raises:
        OperatorError: there is none.
    """
    if inputs[0] is None:
        raise OperatorError(f"{node} wants the content of an optional value that is empty.")
    return [inputs[0]]


OPTIONALS: Mapping[str, Callable[[Node, Sequence[Value]], list[Value]]] = {
    "Optional": optional,
    "OptionalHasElement": has_element,
    "OptionalGetElement": get_element,
}
