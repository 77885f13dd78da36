"""Conv, and the one way in which fused operators are made of it.

A fused operator is a convolution with an *epilogue*: a function that changes a finished block of the output in place
while it is in the cache. `@convolution_epilogue("ConvRelu")` over a function that binds such an epilogue makes the
operator, and makes it a producer for `ConcatFusedTail` too. Conv itself has none, so that a fused operator has the
same bits as its parts one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ngine_ref.errors import ShapeError
from ngine_ref.nodes.fused_meaning import check_interface, define_activation
from ngine_ref.numerics.blocked_convolution import BlockedConvolution, BlockLane, Epilogue, blocked_convolution
from ngine_ref.numerics.columns import Geometry
from ngine_ref.numerics.lanes import run_lanes
from ngine_ref.numerics.packed_weights import packed_weights
from ngine_ref.numerics.scratch import bytes_needed, carve
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.numerics.sliding_windows import place_windows
from ngine_ref.registry import FUSED_DOMAIN, Binder, Call, Kernel, TensorSpec, Workspace, operator
from ngine_ref.worker_pool import core_count

ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
"""The attributes of Conv, which every fused operator takes as they are."""

MOST_LANES = min(8, core_count())
"""Most blocks of a convolution that are computed at the same time: each takes scratch memory of its own."""

EpilogueBinder = Callable[[Call, TensorSpec], Epilogue]
"""Makes the epilogue of a call from its attributes and the inputs behind the bias, given the output it works on."""

PRODUCERS: dict[str, Binder] = {}
"""The operators that may write the tail of a `ConcatFusedTail`, by the name that `producer_op` has for them."""


def convolution_epilogue(
    op_type: str, activation: str = "", attributes: Sequence[str] = ()
) -> Callable[[EpilogueBinder], EpilogueBinder]:
    """Register the fused operator `op_type`, a Conv followed by the epilogue that the function below binds.

    Inputs are `x, w, bias or ""` and then whatever the epilogue reads; attributes are Conv's and the epilogue's.

    Args:
        op_type: the name of the fused operator.
        activation: the operator of ONNX that the epilogue computes. Where a model says the same of the name, by a
            function, the kernel runs; without it, such a model's function runs, unless `fused_meaning` knows better.
        attributes: those of the activation.

    Example:
        >>> @convolution_epilogue("ConvNeg", "Neg")
        ... def bind_conv_neg(call, output):
        ...     return lambda block: np.negative(block.values, out=block.values)
    """
    if activation:
        define_activation(op_type, activation, attributes)

    def register(bind_epilogue: EpilogueBinder) -> EpilogueBinder:
        def bind(call: Call) -> Kernel:
            check_interface(call)
            return bind_convolution(call, bind_epilogue)

        bind.__doc__ = bind_epilogue.__doc__
        PRODUCERS[op_type] = operator(op_type, domain=FUSED_DOMAIN)(bind)
        return bind_epilogue

    return register


@operator("Conv")
def bind_conv(call: Call) -> Kernel:
    """Conv-1, -11, -22: the convolution of N images with M filters, plus a bias per filter.

    Inputs X `[N, C, *spatial]` with one spatial axis or more, W `[M, C / group, *kernel]`, optional B `[M]`, all of
    one dtype: float16, bfloat16 (both summed up in float32), float32 or float64. Output Y `[N, M, *windows]`.
    Attributes `auto_pad`, `dilations`, `group`, `kernel_shape`, `pads`, `strides`, each with ONNX's default.

    Raises:
        ShapeError: channels, kernel, bias or attributes do not fit each other.
    """
    check_signature(call)
    return bind_convolution(call)


PRODUCERS["Conv"] = bind_conv


def bind_convolution(call: Call, bind_epilogue: EpilogueBinder | None = None) -> Kernel:
    """The kernel of Conv, or of a fused operator that puts an epilogue behind it.

    Raises:
        ShapeError: channels, kernel, bias, attributes or the epilogue's inputs do not fit each other.
        OperatorError: an input is missing, or an element type or attribute value is not allowed.
    """
    convolution = _blocks(call)
    x, w = operand(call, 0), operand(call, 1)
    output = TensorSpec(convolution.output_shape, x.dtype)
    epilogue = bind_epilogue(call, output) if bind_epilogue else None
    columns = convolution.columns
    weights_bytes = 0 if w.value is not None else bytes_needed(columns.weights_request)
    constant = packed_weights(columns, w.value) if w.value is not None else None
    lanes = max(1, min(MOST_LANES, len(convolution.regions)))

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        if constant is not None:
            weights = constant.packed
        else:
            (weights,) = carve(workspace.scratch, columns.weights_request)
            columns.pack(present(inputs, 1), weights)
        used = min(lanes, 1 + (workspace.pool.workers if workspace.pool else 0))

        waiting = iter(convolution.regions)  # of all lanes: who is ready takes the next block

        @np.errstate(all="ignore")
        def work(lane: int) -> None:
            memory = workspace.scratch[weights_bytes + lane * convolution.lane_bytes :]
            blocks: BlockLane | None = None
            for region in waiting:
                blocks = blocks or convolution.lane(inputs, weights, memory)
                blocks.compute(region, outputs[0], epilogue)

        run_lanes(work, used, workspace.pool)

    return Kernel((output,), compute, scratch_bytes=weights_bytes + lanes * convolution.lane_bytes, strided=True)


def convolution_output(call: Call) -> TensorSpec:
    """The output of the convolution itself, whatever follows it.

    Raises:
        ShapeError: channels, kernel, bias or attributes do not fit each other.
        OperatorError: an input is missing, or an element type or attribute value is not allowed.
    """
    return TensorSpec(_blocks(call).output_shape, operand(call, 0).dtype)


def _blocks(call: Call) -> BlockedConvolution:
    """Check what Conv itself says about a call, fused or not, and lay out its blocks."""
    own = {name: value for name, value in call.attributes.items() if name in ATTRIBUTES}
    check_signature(Call("Conv", call.inputs[:3], own))
    x, w = operand(call, 0), operand(call, 1)
    bias, group = call.spec(2), int_attribute(call, "group", 1)
    if len(x.shape) < 3 or len(w.shape) != len(x.shape):
        raise ShapeError(
            f"{call.op_type} needs X [N, C, spatial...] and W [M, C / group, kernel...], got {x.shape} and {w.shape}."
        )
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise ShapeError(
            f"{call.op_type}: an input of shape {x.shape} and weights of shape {w.shape} do not fit in {group} groups."
        )
    if bias is not None and bias.shape != w.shape[:1]:
        raise ShapeError(
            f"{call.op_type}: the bias has shape {bias.shape}, but weights of shape {w.shape} need {w.shape[:1]}."
        )
    kernel = w.shape[2:]
    stated = tuple(call.attributes.get("kernel_shape") or kernel)
    if stated != kernel or 0 in kernel:
        raise ShapeError(f"{call.op_type}: kernel_shape is {list(stated)}, but the weights have shape {w.shape}.")
    windows = place_windows(call, x.shape[2:], kernel)
    if 0 in windows.output and 0 not in x.shape[2:]:
        raise ShapeError(
            f"{call.op_type}: a kernel of {list(kernel)} with dilations {list(windows.dilations)} does not fit into an "
            f"input of shape {x.shape} with pads {[*windows.pads_begin, *windows.pads_end]}."
        )
    return blocked_convolution(Geometry(x.shape, w.shape, windows, group, x.dtype))
