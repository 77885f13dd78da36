"""Operators that move elements and compute nothing: joining, reordering, and other shapes for the same elements."""

from __future__ import annotations

import math

import numpy as np

from ngine_ref.errors import OperatorError, ShapeError
from ngine_ref.numerics.axes import known_integers, normalize_axes, normalize_axis
from ngine_ref.numerics.dtypes import STRING, is_text
from ngine_ref.numerics.signature import Inputs, Outputs, check_signature, int_attribute, operand, present
from ngine_ref.numerics.views import view_kernel
from ngine_ref.registry import Call, Kernel, TensorSpec, Workspace, operator


@operator("Identity")
def bind_identity(call: Call) -> Kernel:
    """Identity-1 to -25 of a tensor: the output is the input, of any shape and dtype."""
    check_signature(call)
    x = operand(call, 0)
    return view_kernel(x, x.shape)


@operator("Flatten")
def bind_flatten(call: Call) -> Kernel:
    """Flatten-1 to -25: a matrix of the same elements; the axes before `axis` (default 1) become its rows.

    Input of any shape and dtype. `axis` from -rank to rank; 0 gives a single row.

    Raises:
        ShapeError: the input has no such axis.
    """
    check_signature(call)
    x = operand(call, 0)
    rank = len(x.shape)
    axis = normalize_axis("Flatten", int_attribute(call, "axis", 1), rank, limit=rank + 1)
    return view_kernel(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Reshape", since=5, shape_inputs=(1,))
def bind_reshape(call: Call) -> Kernel:
    """Reshape-5 to -25: the same elements in the shape that input `shape` lists; any dtype.

    One entry may be -1, and is worked out from the others. An entry 0 copies the input's size there; with
    `allowzero=1` (from Reshape-14 on) it means 0, and then -1 is forbidden beside it.

    Raises:
        ShapeError: the shape has another number of elements, or an entry that cannot be worked out.
        OperatorError: the content of `shape` is not known.
    """
    check_signature(call)
    wanted = known_integers(call, 1, "shape") or ()
    return _reshape_kernel(operand(call, 0), wanted, allow_zero=bool(int_attribute(call, "allowzero", 0)))


@operator("Reshape", since=1)
def bind_reshape_by_attribute(call: Call) -> Kernel:
    """Reshape-1: as Reshape-5, with the attribute `shape`."""
    check_signature(call)
    return _reshape_kernel(operand(call, 0), tuple(call.attributes.get("shape", ())), allow_zero=False)


def _reshape_kernel(x: TensorSpec, wanted: tuple[int, ...], *, allow_zero: bool) -> Kernel:
    def fail(reason: str) -> ShapeError:
        return ShapeError(f"Reshape cannot bring {x.shape} into the shape {wanted}: {reason}.")

    if min(wanted, default=0) < -1 or wanted.count(-1) > 1:
        raise fail("sizes are counts, and at most one of them is -1")
    if allow_zero and 0 in wanted and -1 in wanted:
        raise fail("with allowzero=1, 0 and -1 exclude each other")
    shape = list(wanted)
    if not allow_zero:
        if 0 in shape[len(x.shape) :]:
            raise fail("a 0 stands where the input has no axis to copy from")
        shape = [x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    count = math.prod(x.shape)
    if -1 in shape:
        others = math.prod(size for size in shape if size != -1)
        if others == 0 or count % others:
            raise fail(f"{count} elements leave no whole number for -1")
        shape[shape.index(-1)] = count // others
    if math.prod(shape) != count:
        raise fail(f"that is {math.prod(shape)} elements instead of {count}")
    return view_kernel(x, tuple(shape))


@operator("Squeeze", since=13, shape_inputs=(1,))
def bind_squeeze(call: Call) -> Kernel:
    """Squeeze-13 to -25: without the axes of size 1 that the optional input `axes` lists, or else all of them.

    Input of any shape and dtype; negative axes count from the back.

    Raises:
        ShapeError: a listed axis is not there, is listed twice, or has another size than 1.
        OperatorError: the content of `axes` is not known.
    """
    check_signature(call)
    return _squeeze_kernel(operand(call, 0), known_integers(call, 1, "axes"))


@operator("Squeeze", since=1)
def bind_squeeze_by_attribute(call: Call) -> Kernel:
    """Squeeze-1, -11: as Squeeze-13, with the attribute `axes`."""
    check_signature(call)
    return _squeeze_kernel(operand(call, 0), call.attributes.get("axes"))


def _squeeze_kernel(x: TensorSpec, listed: tuple[int, ...] | None) -> Kernel:
    if listed is None:
        return view_kernel(x, tuple(size for size in x.shape if size != 1))
    axes = normalize_axes("Squeeze", listed, len(x.shape))
    if any(x.shape[axis] != 1 for axis in axes):
        raise ShapeError(f"Squeeze can only remove axes of size 1, not the axes {axes} of {x.shape}.")
    return view_kernel(x, tuple(size for axis, size in enumerate(x.shape) if axis not in axes))


@operator("Unsqueeze", since=13, shape_inputs=(1,))
def bind_unsqueeze(call: Call) -> Kernel:
    """Unsqueeze-13 to -25: with an axis of size 1 at each place of the output that the input `axes` lists.

    Input of any shape and dtype; negative axes count from the back of the output.

    Raises:
        ShapeError: a listed axis is out of range or listed twice.
        OperatorError: the content of `axes` is not known.
    """
    check_signature(call)
    return _unsqueeze_kernel(operand(call, 0), known_integers(call, 1, "axes") or ())


@operator("Unsqueeze", since=1)
def bind_unsqueeze_by_attribute(call: Call) -> Kernel:
    """Unsqueeze-1, -11: as Unsqueeze-13, with the attribute `axes`."""
    check_signature(call)
    return _unsqueeze_kernel(operand(call, 0), tuple(call.attributes["axes"]))


def _unsqueeze_kernel(x: TensorSpec, listed: tuple[int, ...]) -> Kernel:
    rank = len(x.shape) + len(listed)
    axes = normalize_axes("Unsqueeze", listed, rank)
    sizes = iter(x.shape)
    return view_kernel(x, tuple(1 if axis in axes else next(sizes) for axis in range(rank)))


@operator("Transpose")
def bind_transpose(call: Call) -> Kernel:
    """Transpose-1 to -25: axis i of the output is axis `perm[i]` of the input; by default the axes are reversed.

    Input of any shape and dtype.

    Raises:
        ShapeError: `perm` is no permutation of the input's axes.
    """
    check_signature(call)
    x = operand(call, 0)
    rank = len(x.shape)
    order = tuple(int(axis) for axis in call.attributes.get("perm", reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"Transpose needs a permutation of the {rank} axes of {x.shape}, got {order}.")
    shape = tuple(x.shape[axis] for axis in order)
    moved = [axis for axis in order if x.shape[axis] != 1]
    if moved == sorted(moved):  # only axes of size 1 change places, and so no element does
        return view_kernel(x, shape)

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        np.copyto(outputs[0], present(inputs, 0).transpose(order))

    return Kernel((TensorSpec(shape, x.dtype),), compute, strided=True)


@operator("Concat")
def bind_concat(call: Call) -> Kernel:
    """Concat-1, -4, -11, -13: the inputs one after another along `axis` (default 1 before Concat-4, then required).

    One or more inputs of one dtype, which may be any, and of one shape but for that axis.

    Raises:
        ShapeError: the inputs differ in rank or in another axis, or have no such axis.
    """
    check_signature(call)
    parts = [operand(call, slot) for slot in range(len(call.inputs))]
    shapes = [part.shape for part in parts]
    axis = normalize_axis("Concat", int_attribute(call, "axis", 1), len(shapes[0]))
    if len({(len(shape), shape[:axis], shape[axis + 1 :]) for shape in shapes}) != 1:
        listed = ", ".join(str(shape) for shape in shapes)
        raise ShapeError(f"Concat along axis {axis} needs shapes that agree in every other axis, got {listed}.")
    ends = np.cumsum([shape[axis] for shape in shapes]).tolist()
    slices = [(*(slice(None),) * axis, slice(a, b)) for a, b in zip([0, *ends], ends, strict=False)]
    dtype = STRING if is_text(parts[0].dtype) else parts[0].dtype
    joint = (*shapes[0][:axis], ends[-1], *shapes[0][axis + 1 :])

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        for slot, where in enumerate(slices):
            outputs[0][where] = present(inputs, slot)

    return Kernel((TensorSpec(joint, dtype),), compute, strided=True)


@operator("DepthToSpace")
def bind_depth_to_space(call: Call) -> Kernel:
    """DepthToSpace-1, -11, -13, -28: blocks of channels become blocks of `blocksize` x `blocksize` pixels.

    Input [N, C, H, W] of any dtype; output [N, C / b², H * b, W * b]. In mode `DCR` (the default) the channels count
    block row, block column, depth; in mode `CRD` depth, block row, block column.

    Raises:
        ShapeError: the input is not of rank 4, or C is no multiple of b².
        OperatorError: another mode, or a block size below 1.
    """
    check_signature(call)
    x = operand(call, 0)
    block, mode = int_attribute(call, "blocksize", 0), call.attributes.get("mode", "DCR")
    if block < 1 or mode not in ("DCR", "CRD"):
        raise OperatorError(f"DepthToSpace needs a positive blocksize and mode DCR or CRD, got {block} and {mode!r}.")
    if len(x.shape) != 4 or x.shape[1] % block**2:
        raise ShapeError(f"DepthToSpace needs [N, C, H, W] with C a multiple of {block**2}, got {x.shape}.")
    batch, channels, height, width = x.shape
    depth = channels // block**2
    if mode == "DCR":
        split, order = (batch, block, block, depth, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (batch, depth, block, block, height, width), (0, 1, 4, 2, 5, 3)
    shape = (batch, depth, height * block, width * block)

    def compute(inputs: Inputs, outputs: Outputs, workspace: Workspace) -> None:
        # Splitting an axis never copies, so this fills the output's own memory, also that of a slice.
        pixels = outputs[0].reshape(batch, depth, height, block, width, block)
        np.copyto(pixels, present(inputs, 0).reshape(split).transpose(order))

    return Kernel((TensorSpec(shape, x.dtype),), compute, strided=True)
