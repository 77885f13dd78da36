"""Inputs to run a model with: seeded random ones, or the user's files.

Shapes come from the user where he gives them, from the model where it fixes them, and from a default elsewhere, which
is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from graphopt.errors import UsageError
from graphopt.graph.declared_shapes import dim_size

Array = np.ndarray[Any, np.dtype[Any]]

DEFAULT_BATCH = 1
"""The size of a first dimension that the model leaves open."""
DEFAULT_PIXELS = 32
"""The size of open dimensions behind the channels of an image (rank 4)."""
DEFAULT_LENGTH = 8
"""The size of any other open dimension."""


@dataclass(frozen=True, slots=True)
class Feeds:
    """What a model is run with."""

    arrays: Mapping[str, Array]
    assumed: Mapping[str, tuple[int, ...]]
    """The shapes of the inputs for which a default was chosen, by name."""


def graph_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """The inputs that must be fed: those without an initializer."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    initializers.update(tensor.values.name for tensor in model.graph.sparse_initializer)
    return [value for value in model.graph.input if value.name not in initializers]


def make_feeds(
    model: ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    arrays: Mapping[str, Array] | None = None,
    seed: int = 0,
) -> Feeds:
    """Inputs for a model.

    Floats are uniform from -1 to 1, so half of them are negative; integers are 0 or 1, which is in range as an index
    of anything; booleans are either.

    Args:
        model: the model to feed.
        shapes: the shapes of inputs, where the model leaves dimensions open.
        arrays: the content of inputs, as it is.
        seed: what the random numbers start from.

    Raises:
        UsageError: a name is no input of the model, or given twice, a shape contradicts the model or is too large, or
            an input is not a tensor.
    """
    shapes, arrays = dict(shapes or {}), dict(arrays or {})
    inputs = {value.name: value for value in graph_inputs(model)}
    overridable = {value.name for value in model.graph.input}
    for name in (*shapes, *arrays):
        if name not in overridable:
            raise UsageError(f"The model has no input {name!r}; its inputs are {', '.join(inputs)}.")
        if name in shapes and name in arrays:
            raise UsageError(f"The input {name!r} is given a shape and a content, which has its own; leave one out.")
    random = np.random.default_rng(seed)
    fed = dict(arrays)
    assumed: dict[str, tuple[int, ...]] = {}
    symbols: dict[str, int] = {}
    for name, value in inputs.items():  # what is given fixes the named dimensions of the others
        given = arrays[name].shape if name in arrays else shapes.get(name)
        if given is not None:
            _bind_symbols(value, tuple(given), symbols)
    for name, value in inputs.items():
        if name in fed:
            continue
        if not value.type.HasField("tensor_type"):
            raise UsageError(f"The input {name!r} is not a tensor; give it with --input {name}:FILE.")
        shape = tuple(shapes[name]) if name in shapes else _default_shape(value, symbols, assumed)
        try:
            fed[name] = _random(random, value, shape)
        except (MemoryError, ValueError):  # the latter where not even the size is a number for NumPy
            raise UsageError(f"The input {name!r} of shape {list(shape)} does not fit into memory.") from None
    return Feeds(fed, assumed)


def read_input(path: str | Path, name: str) -> Array:
    """The content of an input from a NumPy file (.npy) or a TensorProto (.pb).

    Raises:
        UsageError: the file cannot be read as either.
    """
    path = Path(path)
    try:
        if path.suffix == ".npy":
            array: Array = np.load(path, allow_pickle=False)
            return array
        tensor = TensorProto.FromString(path.read_bytes())
        return numpy_helper.to_array(tensor)
    except (OSError, ValueError, DecodeError, TypeError, KeyError) as error:
        reason = getattr(error, "strerror", None) or "it is neither a .npy file nor a TensorProto"
        raise UsageError(f"{path}: the input {name!r} cannot be read from it: {reason}.") from None


def _dims(value: ValueInfoProto) -> list[int | str | None] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    sizes = ((dim, dim_size(dim)) for dim in tensor.shape.dim)
    return [size if size is not None else dim.dim_param or None for dim, size in sizes]


def _bind_symbols(value: ValueInfoProto, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    dims = _dims(value)
    if dims is None:
        return
    if len(dims) != len(shape):
        raise UsageError(f"The input {value.name!r} has rank {len(dims)}, and was given the shape {list(shape)}.")
    for dim, size in zip(dims, shape, strict=True):
        if isinstance(dim, int) and dim != size:
            raise UsageError(
                f"The input {value.name!r} has the shape {dims} in the model, and was given {list(shape)}."
            )
        if isinstance(dim, str):
            symbols.setdefault(dim, size)


def _default_shape(
    value: ValueInfoProto, symbols: dict[str, int], assumed: dict[str, tuple[int, ...]]
) -> tuple[int, ...]:
    dims = _dims(value)
    if dims is None:
        dims = [None] * 4
    shape: list[int] = []
    for axis, dim in enumerate(dims):
        if isinstance(dim, int):
            shape.append(dim)
            continue
        default = DEFAULT_BATCH if axis == 0 else DEFAULT_PIXELS if len(dims) == 4 and axis > 1 else DEFAULT_LENGTH
        if len(dims) == 4 and axis == 1:
            default = 3
        shape.append(symbols.setdefault(dim, default) if isinstance(dim, str) else default)
    if any(not isinstance(dim, int) for dim in dims):
        assumed[value.name] = tuple(shape)
    return tuple(shape)


def _random(random: np.random.Generator, value: ValueInfoProto, shape: tuple[int, ...]) -> Array:
    element_type = value.type.tensor_type.elem_type
    if element_type == TensorProto.STRING:
        return np.full(shape, "text", dtype=object)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type))
    if dtype == np.bool_:
        return np.asarray(random.random(shape) < 0.5)
    if dtype.kind in "iu" or dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        return np.asarray(random.integers(0, 2, shape), dtype)
    if dtype.kind == "c":
        return np.asarray(random.uniform(-1, 1, shape) + 1j * random.uniform(-1, 1, shape), dtype)
    return np.asarray(random.uniform(-1, 1, shape), dtype)
