"""One node on values that are there: bound to them, computed, and done. For constants, and for what is only known
while running."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngine_ref import registry
from ngine_ref.errors import OperatorError
from ngine_ref.loading.graph import Node, Value
from ngine_ref.nodes.fallback import run_reference
from ngine_ref.nodes.optionals import OPTIONALS
from ngine_ref.registry import Array, Call, Kernel, Operator, TensorSpec, Workspace, aligned_bytes
from ngine_ref.worker_pool import WorkerPool


def kernel_operator(node: Node) -> Operator | None:
    """The engine's own operator for a node, if it has one."""
    return registry.find(node.op_type, node.domain)


def output_count(node: Node) -> int:
    """How many outputs the node names, absent ones at the end not counted."""
    count = len(node.outputs)
    while count and not node.outputs[count - 1]:
        count -= 1
    return count


def bind(node: Node, operator: Operator, specs: Sequence[TensorSpec | None]) -> Kernel:
    """The kernel of a node for these inputs.

    Raises:
        OperatorError: of the kind the operator's binder raises, with the node named.
    """
    try:
        kernel = operator.bind(Call(node.op_type, specs, node.attributes, node.opset, output_count(node)))
    except OperatorError as error:
        raise type(error)(f"{node}: {error}") from error
    except MemoryError as error:
        raise OperatorError(f"{node} needs more memory than there is: {error}") from error
    if len(kernel.outputs) < output_count(node):
        raise OperatorError(f"{node} names {output_count(node)} outputs, but there are {len(kernel.outputs)}.")
    return kernel


def compute(
    node: Node, kernel: Kernel, inputs: Sequence[Array | None], outputs: Sequence[Array], workspace: Workspace
) -> None:
    """Run a bound kernel.

    Raises:
        OperatorError: the data are refused; the node is named.
    """
    try:
        kernel.compute(inputs, outputs, workspace)
    except OperatorError as error:
        raise type(error)(f"{node}: {error}") from error
    except MemoryError as error:
        raise OperatorError(f"{node} needs more memory than there is: {error}") from error


def evaluate(node: Node, inputs: Sequence[Value], pool: WorkerPool | None = None) -> list[Value]:
    """The outputs of a node, one entry an output slot; tensors are C-contiguous.

    Raises:
        OperatorError: the inputs are refused.
        UnknownOperatorError: nothing computes this operator.
    """
    if node.op_type in OPTIONALS and not node.domain:
        return OPTIONALS[node.op_type](node, inputs)
    operator = kernel_operator(node)
    if operator is None:
        return [_contiguous(value) for value in run_reference(node, inputs)]
    arrays = [_tensor(node, value) for value in inputs]
    specs = [None if array is None else TensorSpec(array.shape, array.dtype, array) for array in arrays]
    kernel = bind(node, operator, specs)
    outputs = [np.empty(spec.shape, spec.dtype) for spec in kernel.outputs]
    compute(node, kernel, arrays, outputs, Workspace(aligned_bytes(kernel.scratch_bytes), pool))
    return list(outputs[: len(node.outputs)])


def _tensor(node: Node, value: Value) -> Array | None:
    if value is None or isinstance(value, np.ndarray):
        return value
    raise OperatorError(f"{node} takes tensors, but was given a {type(value).__name__}.")


def _contiguous(value: Value) -> Value:
    if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
        return value.copy(order="C")
    return value
