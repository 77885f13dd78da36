"""Small models as ONNX text, what a fusion makes of them as text again, and their runs in onnxruntime."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import graphopt

Array = np.ndarray[Any, np.dtype[Any]]

IMAGE = "float[n,4,h,w] x"
"""The usual graph input: images of four channels."""
_SHAPES = {
    "w": (4, 4, 1, 1),
    "w8": (4, 8, 1, 1),
    "w12": (4, 12, 1, 1),
    "w16": (4, 16, 1, 1),
    "k3": (4, 4, 3, 3),
    "b": (4,),
    "one": (1,),
    "scale": (1, 4, 1, 1),
    "slope": (4, 1, 1),
}
"""Weights that a text may read without declaring them."""
_LEVELS = onnxruntime.GraphOptimizationLevel
LEVELS = (_LEVELS.ORT_DISABLE_ALL, _LEVELS.ORT_ENABLE_BASIC, _LEVELS.ORT_ENABLE_EXTENDED, _LEVELS.ORT_ENABLE_ALL)
SIZES = {"n": 2, "h": 5, "w": 6}


def model(
    body: str,
    *,
    inputs: str = IMAGE,
    outputs: str = "float[n,c,h,w] y",
    constants: Mapping[str, Array] | None = None,
    value_info: str = "",
    functions: str = "",
    imports: str = "",
    opset: int = 17,
    ir: int = 8,
) -> ModelProto:
    """A model from the statements of its graph; weights of the usual names, and `constants`, are initializers.

    `imports` are further entries of the opset imports, `functions` the text of the model's own functions.
    """
    imported = ", ".join(filter(None, [f'"" : {opset}', imports]))
    text = f"<ir_version: {ir}, opset_import: [{imported}]>\n"
    text += f"g ({inputs}) => ({outputs}) {f'<{value_info}>' if value_info else ''} {{ {body} }}\n{functions}"
    parsed: ModelProto = onnx.parser.parse_model(text)
    given = {**(constants or {})}
    for name in dict.fromkeys(_unmade(parsed.graph)):
        if name not in given and name in _SHAPES:
            given[name] = random_array(name, _SHAPES[name])
    parsed.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in given.items())
    return parsed


def random_array(name: str, shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> Array:
    """Numbers in [-1, 1) that depend on the name alone."""
    return np.random.default_rng(zlib.crc32(name.encode())).uniform(-1, 1, shape).astype(dtype)


def _unmade(graph: GraphProto, known: Iterable[str] = ()) -> list[str]:
    """The values that a graph or the bodies in it read and nothing makes."""
    made = {*known, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}
    made.update(name for node in graph.node for name in node.output)
    found = [name for node in graph.node for name in node.input if name and name not in made]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _unmade(attribute.g, made)
    return found


def nodes(source: ModelProto | GraphProto | FunctionProto) -> list[str]:
    """Every node as a line of text: `y = ai.ngine.ConvLeakyRelu <alpha=0.5> (x, w, b)`."""
    graph = source.graph if isinstance(source, ModelProto) else source
    return [line(node) for node in graph.node]


def line(node: NodeProto) -> str:
    """A node as text, its attributes in alphabetical order, graphs as `{...}`."""
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    attributes = ", ".join(sorted(_attribute(attribute) for attribute in node.attribute))
    shown = f" <{attributes}>" if attributes else ""
    return f"{', '.join(node.output)} = {operator}{shown} ({', '.join(node.input)})"


def _attribute(attribute: onnx.AttributeProto) -> str:
    if attribute.ref_attr_name:
        return f"{attribute.name}=@{attribute.ref_attr_name}"
    value = helper.get_attribute_value(attribute)
    if isinstance(value, float):
        value = f"{value:g}"
    elif isinstance(value, bytes):
        value = value.decode()
    elif isinstance(value, TensorProto):
        value = numpy_helper.to_array(value).tolist()
    elif isinstance(value, GraphProto):
        value = "{...}"
    return f"{attribute.name}={str(value).replace(' ', '')}"


def fused(source: ModelProto, **options: Any) -> ModelProto:
    """What `graphopt.fuse` makes of a model, which it must leave as it is; the result has passed onnx's checker."""
    before = source.SerializeToString(deterministic=True)
    result = graphopt.fuse(source, **options).model
    assert source.SerializeToString(deterministic=True) == before
    if options.get("functions", True):
        onnx.checker.check_model(result, full_check=True)
    return result


def assert_fuses(source: ModelProto, *expected: str, **options: Any) -> ModelProto:
    """A model becomes these lines, and computes the same bits in onnxruntime; returns the fused model."""
    result = fused(source, **options)
    assert nodes(result) == list(expected)
    assert_same_numbers(source, result)
    return result


def refusals(source: ModelProto, rule: str, **options: Any) -> list[tuple[int, str, str, str]]:
    """The number, name, reason and place of every refusal of a rule."""
    report = graphopt.fuse(source, **options).report
    return [(r.condition, r.name, r.reason, r.at) for r in report.refusals if r.rule == rule]


def assert_refused(source: ModelProto, rule: str, number: int, name: str, reason: str, at: str, **options: Any) -> None:
    """A rule applies nowhere, and its one candidate is refused with just these words."""
    assert graphopt.fuse(source, **options).report.counts[rule] == 0
    assert refusals(source, rule, **options) == [(number, name, reason, at)]


def feeds(source: ModelProto, sizes: Mapping[str, int] = SIZES, seed: int = 0) -> dict[str, Array]:
    """A random array for each graph input that is no initializer; open dimensions get the sizes given, or 3."""
    rng = np.random.default_rng(seed)
    constants = {tensor.name for tensor in source.graph.initializer}
    found: dict[str, Array] = {}
    for value in source.graph.input:
        if value.name not in constants:
            tensor = value.type.tensor_type
            shape = [dim.dim_value or sizes.get(dim.dim_param, 3) for dim in tensor.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            found[value.name] = rng.uniform(-2, 2, shape).astype(dtype)
    return found


def run(
    source: ModelProto | Path, inputs: Mapping[str, Array], level: Any = _LEVELS.ORT_DISABLE_ALL
) -> dict[str, Array]:
    """The outputs of a model in onnxruntime, by name."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    content = source.SerializeToString() if isinstance(source, ModelProto) else str(source)
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def assert_same_numbers(
    original: ModelProto,
    rewritten: ModelProto,
    inputs: Mapping[str, Array] | None = None,
    levels: Sequence[Any] = LEVELS,
) -> dict[str, Array]:
    """Two models give the same bits at every optimisation level of onnxruntime; returns the outputs."""
    given = feeds(original) if inputs is None else inputs
    for level in levels:
        expected, found = run(original, given, level), run(rewritten, given, level)
        assert expected.keys() == found.keys()
        for name, array in expected.items():
            assert array.dtype == found[name].dtype
            np.testing.assert_array_equal(found[name], array, err_msg=f"{name} at {level}")
    return expected
