"""The operators of the engine: what one is, how one is registered, how one is found.

An operator works in two steps. *Binding* sees shapes, element types and attributes only: it checks them, works out
the shapes of the outputs, and prepares everything that does not depend on the data. *Computing* fills buffers that
somebody else provides. A plan binds every node once and computes many times; `get("Conv")(inputs, attributes)`
does both at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ngine_ref.errors import OperatorError, UnknownOperatorError
from ngine_ref.limits import check_size

if TYPE_CHECKING:
    from ngine_ref.worker_pool import WorkerPool

Array = np.ndarray[Any, np.dtype[Any]]
Allocator = Callable[[tuple[int, ...], np.dtype[Any]], Array]

NEWEST_OPSET = 10**6
FUSED_DOMAIN = "ai.ngine"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What is known of a tensor before a run."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    value: Array | None = None
    """The content, where it is known already (an initializer, an input of a direct call)."""


@dataclass(frozen=True, slots=True)
class Call:
    """One use of an operator: what a binder is given."""

    op_type: str
    inputs: Sequence[TensorSpec | None]
    """One entry an input slot; None where the input is absent."""
    attributes: Mapping[str, Any]
    """Attribute values as Python objects: int, float, str, lists of them, arrays for tensors."""
    opset: int = NEWEST_OPSET
    output_count: int = 1
    """How many outputs the node names (Dropout's mask, BatchNormalization's statistics)."""

    def spec(self, slot: int) -> TensorSpec | None:
        """The input of that slot, None where it is absent or the list ends before it."""
        return self.inputs[slot] if slot < len(self.inputs) else None


@dataclass(slots=True)
class Workspace:
    """What a kernel may use while it computes, beside its inputs and outputs."""

    scratch: Array
    """One-dimensional uint8 memory of the size the kernel asked for, 64-byte aligned; its content is undefined."""
    pool: WorkerPool | None = None
    """Helper threads of this run; None means: stay on this thread."""
    own_bytes: int = 0
    """A kernel that keeps buffers of its own from run to run says here, while computing, how large they are."""


Compute = Callable[[Sequence[Array | None], Sequence[Array], Workspace], None]


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator bound to shapes, ready to compute any number of times, from any thread."""

    outputs: tuple[TensorSpec, ...]
    """Shapes and element types of the outputs."""
    compute: Compute
    """Fills the output buffers it is given; it holds no state of its own between calls."""
    scratch_bytes: int = 0
    in_place: tuple[int, ...] = ()
    """Input slots whose buffer output 0 may take over when that input dies here (same shape and dtype)."""
    view: Callable[[Array], Array] | None = None
    """Where output 0 is input 0 in another shape: makes that view. Then no output buffer is needed, and `compute`
    copies, for those who asked for one."""
    strided: bool = False
    """`compute` also fills output buffers that are not contiguous (some channels of a batch of images). A plan hands
    out such slices of a later `Concat` only to kernels that say so; one that reshapes its output must not."""


Binder = Callable[[Call], Kernel]


def heap(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The default allocator: a new array for every output."""
    return np.empty(shape, dtype)


def aligned_bytes(count: int) -> Array:
    """Uninitialised memory of `count` bytes that starts at a multiple of 64, as vector units like it."""
    raw = np.empty(count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count]


@dataclass(slots=True)
class Operator:
    """A stateless operator, with one binder for each opset version that changed its meaning."""

    op_type: str
    domain: str
    shape_inputs: tuple[int, ...] = ()
    """Input slots whose *content* decides the output's shape (Reshape's shape, Resize's scales)."""
    versions: dict[int, Binder] = field(default_factory=dict)

    def bind(self, call: Call) -> Kernel:
        """The kernel for these shapes.

        Raises:
            ShapeError: the inputs' shapes do not fit each other or the attributes, or an output would be too large.
            OperatorError: any other input, element type or attribute that ONNX forbids here.
        """
        fitting = [since for since in self.versions if since <= call.opset]
        if not fitting:
            raise UnknownOperatorError(f"{self.op_type} is not known in opset {call.opset}.")
        kernel = self.versions[max(fitting)](call)
        for output in kernel.outputs:
            check_size(self.op_type, output.shape, output.dtype.itemsize)
        check_size(self.op_type, (kernel.scratch_bytes,))
        return kernel

    def __call__(
        self,
        inputs: Sequence[Array | None],
        attributes: Mapping[str, Any] | None = None,
        allocator: Allocator | None = None,
        *,
        opset: int = NEWEST_OPSET,
        output_count: int = 1,
    ) -> list[Array]:
        """Check the inputs, compute, and return the outputs; `allocator(shape, dtype)` provides their buffers.

        Raises:
            OperatorError: as `bind` says; or an input is no array.
        """
        for slot, array in enumerate(inputs):
            if array is not None and not isinstance(array, np.ndarray | np.generic):
                raise OperatorError(f"{self.op_type} takes arrays, but its input {slot} is a {type(array).__name__}.")
        specs = [None if array is None else TensorSpec(array.shape, array.dtype, array) for array in inputs]
        kernel = self.bind(Call(self.op_type, specs, attributes or {}, opset, output_count))
        outputs = [(allocator or heap)(spec.shape, spec.dtype) for spec in kernel.outputs]
        kernel.compute(inputs, outputs, Workspace(aligned_bytes(kernel.scratch_bytes)))
        return outputs


_OPERATORS: dict[tuple[str, str], Operator] = {}


def operator(
    op_type: str, *, since: int = 1, domain: str = "", shape_inputs: tuple[int, ...] = ()
) -> Callable[[Binder], Binder]:
    """Register the binder below as `op_type` from opset `since` on."""

    def register(binder: Binder) -> Binder:
        entry = _OPERATORS.setdefault((domain, op_type), Operator(op_type, domain))
        entry.shape_inputs = tuple(sorted({*entry.shape_inputs, *shape_inputs}))
        entry.versions[since] = binder
        return binder

    return register


def find(op_type: str, domain: str = "") -> Operator | None:
    """The operator of that name and domain, or None; a sub-domain of `ai.ngine` has the operators of `ai.ngine`."""
    if domain == "ai.onnx":
        domain = ""
    elif domain.startswith(FUSED_DOMAIN + "."):
        domain = FUSED_DOMAIN
    return _OPERATORS.get((domain, op_type))


def get(op_type: str, domain: str | None = None) -> Operator:
    """The operator of that name: ONNX's own, else the fused one.

    Raises:
        UnknownOperatorError: the engine has no such operator.

    Example:
        >>> get("Relu")([np.array([-1.0, 2.0])])
        [array([0., 2.])]
    """
    domains = ("", FUSED_DOMAIN) if domain is None else (domain,)
    for candidate in domains:
        found = find(op_type, candidate)
        if found is not None:
            return found
    known = ", ".join(sorted(name for _, name in _OPERATORS))
    raise UnknownOperatorError(f"The engine has no operator {op_type!r}; it has {known}.")


def operators() -> list[tuple[str, str]]:
    """Domain and name of every operator that has a kernel."""
    return list(_OPERATORS)
