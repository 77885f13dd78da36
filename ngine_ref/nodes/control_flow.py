"""If, Loop, Scan and SequenceMap: the operators that run bodies.

Each takes the node, its input values and `run_body(body, values)`, which runs a body on the values of its inputs
(captured values are looked up by the caller), and returns the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngine_ref.errors import OperatorError
from ngine_ref.loading.graph import Graph, Node, Value, ValueInfo
from ngine_ref.loading.tensors import element_dtype
from ngine_ref.registry import Array

RunBody = Callable[[Graph, Sequence[Value]], list[Value]]


def run_if(node: Node, inputs: Sequence[Value], run_body: RunBody) -> list[Value]:
    """If (opset 1 and later): the outputs of one branch."""
    branch = node.attributes["then_branch" if _truth(node, inputs[0]) else "else_branch"]
    return run_body(branch, [])


def run_loop(node: Node, inputs: Sequence[Value], run_body: RunBody) -> list[Value]:
    """Loop (opset 1 and later): `M` and `cond` may each be absent; scan outputs are stacked along a new first axis."""
    body: Graph = node.attributes["body"]
    trips = None if inputs[0] is None else int(_scalar(node, inputs[0]))
    condition: Value = np.array(True) if len(inputs) < 2 or inputs[1] is None else inputs[1]
    carried = list(inputs[2:])
    if len(body.inputs) != 2 + len(carried) or len(body.outputs) < 1 + len(carried):
        raise OperatorError(
            f"{node} carries {len(carried)} values, but its body has {len(body.inputs)} inputs "
            f"and {len(body.outputs)} outputs."
        )
    stacks: list[list[Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
    iteration = 0
    while (trips is None or iteration < trips) and _truth(node, condition):
        condition, *made = run_body(body, [np.array(iteration, np.int64), condition, *carried])
        for stack, value in zip(stacks, made[len(carried) :], strict=True):
            stack.append(value)
        carried = made[: len(carried)]
        iteration += 1
    infos = body.outputs[1 + len(carried) :]
    return [*carried, *(_stack(node, stack, info, 0) for stack, info in zip(stacks, infos, strict=True))]


def run_scan(node: Node, inputs: Sequence[Value], run_body: RunBody) -> list[Value]:
    """Scan: opset 9 and later over any axis in either direction; opset 8 with a batch axis and sequence lengths."""
    if node.opset < 9:
        return _scan_batches(node, inputs, run_body)
    return _scan(node, inputs, run_body, _directions(node, "scan_input_directions"))


def run_sequence_map(node: Node, inputs: Sequence[Value], run_body: RunBody) -> list[Value]:
    """SequenceMap (opset 17): the body for each element; other sequences go along, tensors are the same every time."""
    body: Graph = node.attributes["body"]
    sequences = [value for value in inputs if isinstance(value, list)]
    if not isinstance(inputs[0], list) or any(len(sequence) != len(inputs[0]) for sequence in sequences):
        raise OperatorError(f"{node} needs a sequence, and all sequences of one length.")
    outputs: list[list[Value]] = [[] for _ in body.outputs]
    for index in range(len(inputs[0])):
        row = [value[index] if isinstance(value, list) else value for value in inputs]
        for output, value in zip(outputs, run_body(body, row), strict=True):
            output.append(value)
    return list(outputs)


CONTROL_FLOW: Mapping[str, Callable[[Node, Sequence[Value], RunBody], list[Value]]] = {
    "If": run_if,
    "Loop": run_loop,
    "Scan": run_scan,
    "SequenceMap": run_sequence_map,
}


def _scan_batches(node: Node, inputs: Sequence[Value], run_body: RunBody) -> list[Value]:
    """Opset 8: input 0 has the sequence lengths; all other inputs and all outputs have a batch axis first."""
    lengths, *values = inputs
    arrays = [_array(node, value) for value in values]
    count = node.attributes["num_scan_inputs"]
    directions = _directions(node, "directions")
    rows: list[list[Array]] = []
    for batch in range(len(arrays[0])):
        row: list[Value] = [array[batch] for array in arrays]
        if lengths is not None:
            length = int(_array(node, lengths)[batch])
            row[len(row) - count :] = [_array(node, value)[:length] for value in row[len(row) - count :]]
        rows.append([_array(node, value) for value in _scan(node, row, run_body, directions)])
    longest = [max(len(row[slot]) if row[slot].ndim else 0 for row in rows) for slot in range(len(rows[0]))]
    states = len(arrays) - count
    return [
        np.stack([row[slot] if slot < states else _padded(row[slot], longest[slot]) for row in rows])
        for slot in range(len(rows[0]))
    ]


def _padded(array: Array, length: int) -> Array:
    padding = np.zeros((length - len(array), *array.shape[1:]), array.dtype)
    return np.concatenate([array, padding])


def _scan(node: Node, inputs: Sequence[Value], run_body: RunBody, directions: Sequence[int]) -> list[Value]:
    body: Graph = node.attributes["body"]
    count = node.attributes["num_scan_inputs"]
    states = list(inputs[: len(inputs) - count])
    scanned = [_array(node, value) for value in inputs[len(inputs) - count :]]
    axes = node.attributes.get("scan_input_axes", [0] * count)
    slices = [
        _in_direction(np.moveaxis(array, axis, 0), direction)
        for array, axis, direction in zip(scanned, axes, [*directions, *[0] * count], strict=False)
    ]
    if len({len(part) for part in slices}) > 1:
        raise OperatorError(f"{node} scans inputs of different lengths: {[len(part) for part in slices]}.")
    infos = body.outputs[len(states) :]
    stacks: list[list[Value]] = [[] for _ in infos]
    for index in range(len(slices[0]) if slices else 0):
        made = run_body(body, [*states, *(part[index, ...] for part in slices)])
        states = made[: len(states)]
        for stack, value in zip(stacks, made[len(states) :], strict=True):
            stack.append(value)
    axes = node.attributes.get("scan_output_axes", [0] * len(infos))
    outward = [*_directions(node, "scan_output_directions"), *[0] * len(infos)]
    outputs: list[Value] = []
    for stack, info, axis, direction in zip(stacks, infos, axes, outward, strict=False):
        outputs.append(_stack(node, stack[::-1] if direction else stack, info, axis))
    return [*states, *outputs]


def _directions(node: Node, name: str) -> list[int]:
    directions: list[int] = node.attributes.get(name, [])
    return directions


def _in_direction(array: Array, direction: int) -> Array:
    return array[::-1] if direction else array


def _stack(node: Node, values: Sequence[Value], info: ValueInfo, axis: int) -> Array:
    """Values of all iterations along a new axis; with no iterations, the declared type and shape with length 0."""
    if values:
        arrays = [_array(node, value) for value in values]
        if len({array.shape for array in arrays}) > 1:
            raise OperatorError(f"{node} makes the scan output {info.name!r} in different shapes.")
        return np.stack(arrays, axis)
    if not info.type.is_tensor:
        raise OperatorError(f"{node} ran no iteration, and the type of its output {info.name!r} is not declared.")
    shape = [size if isinstance(size, int) else 0 for size in info.type.shape or ()]
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 0)
    return np.empty(shape, element_dtype(info.type.element_type))


def _array(node: Node, value: Value) -> Array:
    if not isinstance(value, np.ndarray):
        raise OperatorError(f"{node} needs a tensor, but was given {type(value).__name__}.")
    return value


def _scalar(node: Node, value: Value) -> Any:
    array = _array(node, value)
    if array.size != 1:
        raise OperatorError(f"{node} needs a single element, but was given shape {array.shape}.")
    return array.reshape(())[()]


def _truth(node: Node, value: Value) -> bool:
    return bool(_scalar(node, value))
