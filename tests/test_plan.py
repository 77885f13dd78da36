"""Plans: what they compute, where they put it, and what that costs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.plan_models import random_plan_model

from ngine_ref import InferenceSession, ModelError, ShapeError
from ngine_ref.execution import Environment, Executable
from ngine_ref.loading.model import load
from ngine_ref.options import SessionOptions
from ngine_ref.planning.arena import BlockPool
from ngine_ref.planning.layout import Layout
from ngine_ref.registry import Array


def layout_of(model: onnx.ModelProto, feeds: dict[str, Array], requested: list[str] | None = None) -> Layout:
    loaded = load(model)
    executable = Executable(loaded.graph, Environment(loaded.functions, SessionOptions()))
    names = requested or [value.name for value in loaded.graph.outputs]
    return executable.layout(feeds, tuple(names))


def parse(text: str, **weights: Array) -> onnx.ModelProto:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "ai.ngine" : 1]>\n' + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def integers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("seed", range(400))
def test_random_models_are_computed_exactly(seed: int):
    """Whatever shares memory with what: the values are right, a second run's too, and nothing handed out is shared."""
    made = random_plan_model(seed)
    session = InferenceSession(made.model())
    x = integers(*made.shapes["x"], seed=seed)
    expected = ReferenceEvaluator(made.model(plain=True)).run(None, {"x": x}, intermediate=True)
    given = x.copy()
    for names in (made.outputs, list(made.shapes), [*made.outputs, made.outputs[0], "x"]):
        first, second = session.run(names, {"x": x}), session.run(names, {"x": x})
        np.testing.assert_array_equal(x, given)
        for name, one, two in zip(names, first, second, strict=True):
            np.testing.assert_array_equal(one, expected[name], name)
            np.testing.assert_array_equal(two, expected[name], name)
        arrays = [*first, *second, x]
        for index, array in enumerate(arrays):
            assert not any(np.shares_memory(array, other) for other in arrays[:index])


def dense_block(batch: int, *, convolution_first: bool = True) -> onnx.ModelProto:
    """x, then four times: append what a fused convolution makes of everything so far."""
    lines = ["x = Conv(image, w)"] if convolution_first else ["x = Identity(image)"]
    weights = {"w": integers(4, 4, 1, 1), "w1": integers(2, 4, 1, 1)}
    previous = "x"
    for index in range(1, 5):
        weights[f"w{index}"] = integers(2, 2 + 2 * index, 1, 1, seed=index)
        lines.append(
            f"c{index} = ai.ngine.ConcatFusedTail <prefix_count: int = 1, axis: int = 1, alpha: float = 0.5, "
            f'producer_op: string = "ConvLeakyRelu"> ({previous}, {previous}, w{index}, "")'
        )
        previous = f"c{index}"
    weights["last"] = integers(4, 12, 1, 1)
    body = "\n".join(lines).replace('""', "")
    text = f"g (float[{batch}, 4, 6, 5] image) => (float[{batch}, 4, 6, 5] y) {{\n{body}\ny = Conv(c4, last)\n}}"
    return parse(text, **weights)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_dense_block_is_one_buffer_and_copies_nothing(batch: int):
    model = dense_block(batch)
    image = integers(batch, 4, 6, 5)
    layout = layout_of(model, {"image": image})
    buffer = batch * 12 * 6 * 5 * 4
    assert [layout.values[root].name for root, _ in layout.roots] == ["c4"]
    assert layout.copied_bytes == 0
    scratch = max(spec.shape[0] for action in layout.actions for _, spec in action.temporary[:1])
    assert layout.arena_bytes <= buffer + scratch + 2 * 64

    session = InferenceSession(model)
    [y] = session.run(None, {"image": image})
    np.testing.assert_array_equal(y, plain_dense_block(model, image))
    assert session.last_run is not None
    assert session.last_run.bytes_copied == 0


def test_a_fed_prefix_is_copied_once():
    model = dense_block(1, convolution_first=False)
    image = integers(1, 4, 6, 5)
    session = InferenceSession(model)
    [y] = session.run(None, {"image": image})
    np.testing.assert_array_equal(y, plain_dense_block(model, image))
    assert session.last_run is not None
    assert session.last_run.bytes_copied == image.nbytes


def plain_dense_block(model: onnx.ModelProto, image: Array) -> Array:
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

    def convolve(value: Array, name: str) -> Array:
        return np.einsum("oc,nchw->nohw", weights[name][:, :, 0, 0], value)

    value = convolve(image, "w") if model.graph.node[0].op_type == "Conv" else image
    for index in range(1, 5):
        made = convolve(value, f"w{index}")
        value = np.concatenate([value, np.where(made < 0, made * np.float32(0.5), made)], 1)
    return convolve(value, "last")


def test_a_concat_is_made_in_place_by_its_producers():
    model = parse(
        """g (float[1, 2, 3] x) => (float[1, 6, 3] y) {
          a = Relu(x)
          b = Sigmoid(x)
          j = Concat <axis: int = 1> (a, b, a)
          y = Relu(j)
        }"""
    )
    layout = layout_of(model, {"x": integers(1, 2, 3)})
    [join] = [action for action in layout.actions if action.copies is not None]
    assert [(layout.values[value].name, where) for value, where in join.copies or ()] == [
        ("a", (slice(None), slice(4, 6)))
    ], "a can lie in one place only, so its second use is copied"


def test_slices_are_not_taken_where_they_cost_memory():
    """A small value that lives long would hold the large joint buffer from the start."""
    model = parse(
        """g (float[1, 1, 64] x) => (float[1, 1, 64] y) {
          small = Relu(x)
          wide = Concat <axis: int = 1> (x, x, x, x, x, x, x, x)
          wider = Sigmoid(wide)
          one = ReduceMean <axes: ints = [1]> (wider)
          joint = Concat <axis: int = 1> (small, one, x, x, x, x, x, x, x)
          y = ReduceMean <axes: ints = [1]> (joint)
        }"""
    )
    layout = layout_of(model, {"x": integers(1, 1, 64)})
    roots = {layout.values[root].name for root, _ in layout.roots}
    assert "small" in roots


def test_in_place_only_where_the_operand_dies():
    model = parse(
        """g (float[4] x) => (float[4] y) {
          a = Sigmoid(x)
          b = Relu(a)
          c = Sigmoid(b)
          y = Add(c, a)
        }"""
    )
    layout = layout_of(model, {"x": integers(4)})
    roots = {layout.values[root].name for root in layout.derived}
    assert {"a", "b"} <= roots, "a is read later, so b needs memory of its own"
    x = integers(4)
    sigmoid = 1 / (1 + np.exp(-x.astype(np.float64)))
    expected = 1 / (1 + np.exp(-np.maximum(sigmoid, 0))) + sigmoid
    np.testing.assert_allclose(InferenceSession(model).run(None, {"x": x})[0], expected, rtol=1e-6)


def test_a_slice_of_a_batch_is_no_view():
    """Half the channels of two images are not contiguous, so they cannot be had in another shape without a copy.

    (The wide Concat has memory to spare, so that slices cost none.)
    """
    before = parse(
        """g (float[2, 2, 4] x) => (float[2, 4, 4] y, float[1] z, float[2, 1, 4] r) {
          wide = Concat <axis: int = 1> (x, x, x, x, x, x, x, x)
          r = ReduceMean <axes: ints = [1]> (wide)
          u = Relu(x)
          f = Reshape(u, flat)
          j = Concat <axis: int = 1> (u, x)
          y = Relu(j)
          z = ReduceMean <axes: ints = [0]> (f)
        }""",
        flat=np.array([-1]),
    )
    after = parse(
        """g (float[2, 2, 4] x) => (float[2, 4, 4] y, float[1] z, float[2, 1, 4] r) {
          wide = Concat <axis: int = 1> (x, x, x, x, x, x, x, x)
          r = ReduceMean <axes: ints = [1]> (wide)
          u = Relu(x)
          j = Concat <axis: int = 1> (u, x)
          y = Relu(j)
          f = Reshape(u, flat)
          z = ReduceMean <axes: ints = [0]> (f)
        }""",
        flat=np.array([-1]),
    )
    x = integers(2, 2, 4)
    for model, copied in ((before, 10 * x.nbytes), (after, 9 * x.nbytes)):
        assert layout_of(model, {"x": x}).copied_bytes == copied
        session = InferenceSession(model)
        for feed in (x, x + 1, -x):  # memory that was not written would hold the values of the run before
            expected = ReferenceEvaluator(model).run(None, {"x": feed})
            for actual, right in zip(session.run(None, {"x": feed}), expected, strict=True):
                np.testing.assert_array_equal(actual, right)


def test_nothing_is_overwritten_that_the_same_step_still_reads():
    model = parse(
        """g (float[1, 2, 4] x) => (float[1, 2, 4] y) {
          u = ReduceMean <axes: ints = [1]> (x)
          v = Sigmoid(u)
          j = Concat <axis: int = 1> (u, v)
          y = Mul(j, u)
        }"""
    )
    layout = layout_of(model, {"x": integers(1, 2, 4)})
    roots = {layout.values[root].name for root in layout.derived}
    assert {"j", "y"} <= roots, "u is the head of j, so the product must not be written over j"


def test_an_elementwise_chain_needs_one_buffer():
    lines = "\n".join(f"v{index + 1} = Sigmoid(v{index})" for index in range(30))
    model = parse(f"g (float[1000] x) => (float[1000] y) {{ v0 = Relu(x)\n{lines}\ny = Flatten(v30) }}")
    layout = layout_of(model, {"x": integers(1000)}, ["v30"])
    assert layout.arena_bytes == 0, "the result's own buffer serves the whole chain"


def test_shapes_flow_through_index_arithmetic():
    """What only depends on shapes is computed once, so that Reshape and all that follows can be planned."""
    model = parse(
        """g (float[N, 3, H] x) => (float[N, M] y) {
          shape = Shape(x)
          zero = Constant <value_ints: ints = [0]> ()
          n = Gather(shape, zero)
          rest = Constant <value_ints: ints = [-1]> ()
          target = Concat <axis: int = 0> (n, rest)
          r = Reshape(x, target)
          y = Relu(r)
        }"""
    )
    layout = layout_of(model, {"x": integers(2, 3, 5)})
    assert [action.step.node.op_type for action in layout.actions] == ["Reshape", "Relu"]
    assert all(action.step.kernel is not None for action in layout.actions)
    x = integers(2, 3, 7)
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"x": x})[0], np.maximum(x.reshape(2, 21), 0))


def test_what_depends_on_data_is_bound_while_running():
    model = parse(
        """g (float[N] x) => (float[M] y) {
          where = NonZero(x)
          axes = Constant <value_ints: ints = [0]> ()
          flat = Squeeze(where, axes)
          picked = Gather(x, flat)
          y = Relu(picked)
        }"""
    )
    session = InferenceSession(model)
    for x in (np.array([0, 1, -2, 0, 3], np.float32), np.array([5, 0, 0, 0, 0], np.float32)):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x[x != 0], 0))


def test_unneeded_nodes_are_not_run():
    model = parse(
        """g (float[2] x) => (float[2] y) {
          y = Relu(x)
          other = example.Unknown(x)
        }"""
    )
    model.opset_import.append(helper.make_opsetid("example", 1))
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"x": integers(2)})[0], np.maximum(integers(2), 0))


def test_large_constants_are_not_kept():
    """A constant that is much larger than what it is made of is made in each run."""
    model = parse(
        """g (float[1] x) => (float[600000] y) {
          size = Constant <value_ints: ints = [600000]> ()
          zeros = ConstantOfShape(size)
          y = Add(zeros, x)
        }"""
    )
    layout = layout_of(model, {"x": integers(1)})
    assert [action.step.node.op_type for action in layout.actions] == ["ConstantOfShape", "Add"]


def test_constants_exist_once():
    """Weights in Constant nodes, handed on by Identity or given another shape, are not copied."""
    weights = integers(2, 6)
    model = parse("g (float[3, 4] x) => (float[3, 4] y) { i = Identity(c)\n w = Reshape(i, s)\n y = Add(x, w) }")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(weights)))
    model.graph.initializer.append(numpy_helper.from_array(np.array([3, 4]), "s"))
    layout = layout_of(model, {"x": integers(3, 4)})
    c, w = (next(value.constant for value in layout.values if value.name == name) for name in ("c", "w"))
    assert c is not None
    assert w is not None
    assert np.shares_memory(c, w)
    [result] = InferenceSession(model).run(["w"], {"x": integers(3, 4)})
    assert not np.shares_memory(result, w)
    np.testing.assert_array_equal(result, weights.reshape(3, 4))


def test_nodes_are_sorted():
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(b)\n b = Sign(a)\n a = Neg(x) }")
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"x": np.float32([1, -2])})[0], [0, 1])


def test_a_cycle_is_named():
    model = parse("g (float[2] x) => (float[2] y) { a = Add(x, c)\n b = Relu(a)\n c = Neg(b)\n y = Relu(c) }")
    with pytest.raises(ModelError, match=r"cycle: Add node 'a' reads from Neg node 'c' reads from Relu node 'b'"):
        InferenceSession(model)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("y = Relu(nowhere)", "Relu node 'y' reads the value 'nowhere', which nothing makes"),
        ("y = Relu(x)\n y = Neg(x)", "'y' is made twice, by Relu node 'y' and by Neg node 'y'"),
        ("z = Relu(x)", "The output 'y' of the graph is made by no node"),
        ("y = Relu()", "Relu node 'y' has 0 inputs, but Relu-17 has 1"),
        ("y = Relu(x, x)", "Relu node 'y' has 2 inputs, but Relu-17 has 1"),
        ("y = Clip(x, x, x, x)", "Clip node 'y' has 4 inputs, but Clip-17 has 1 to 3"),
        ("y, z = Relu(x)", "Relu node 'y' has 2 outputs, but Relu-17 has 1"),
        ("y = Concat(x, x)", "Concat node 'y' lacks the attribute 'axis', which Concat-17 needs"),
        ("y = Concat <axis: float = 1.0> (x, x)", "must have the attribute 'axis' as INT, Concat-17 says"),
        ("y = Constant()", "Constant node 'y' must have exactly one attribute, its value, but has 0"),
        ("y = Loop(x)", "Loop node 'y' has 1 inputs, but Loop-17 has 2 to 2147483647"),
        ("x = Relu(x)\n y = Neg(x)", "Relu node 'x' makes the value 'x', which is an input"),
    ],
)
def test_broken_graphs_are_refused(text: str, sentence: str):
    with pytest.raises(ModelError, match=sentence):
        InferenceSession(parse(f"g (float[2] x) => (float[2] y) {{ {text} }}"))


def test_a_node_that_does_not_fit_is_named():
    model = parse("g (float[N] x, float[M] z) => (float[N] y) { y = Add(x, z) }")
    with pytest.raises(ShapeError, match="Add node 'y'"):
        InferenceSession(model).run(None, {"x": integers(2), "z": integers(3)})


def test_plans_are_kept_by_shape_and_the_oldest_is_dropped():
    model = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    loaded = load(model)
    executable = Executable(loaded.graph, Environment({}, SessionOptions(cached_plans=2)))
    first = executable.layout({"x": integers(1)}, ("y",))
    assert executable.layout({"x": integers(1, seed=1)}, ("y",)) is first
    executable.layout({"x": integers(2)}, ("y",))
    assert executable.layout({"x": integers(1)}, ("y",)) is first
    executable.layout({"x": integers(3)}, ("y",))
    assert executable.layout({"x": integers(1)}, ("y",)) is first
    second = executable.layout({"x": integers(2)}, ("y",))
    assert len({id(first), id(second)}) == 2


def test_deep_chains_need_no_recursion():
    count = 20_000
    nodes = [helper.make_node("Relu", [f"v{index}"], [f"v{index + 1}"]) for index in range(count)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes[::-1], "deep", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    np.testing.assert_array_equal(InferenceSession(model).run(None, {"v0": np.float32([1, -1])})[0], [1, 0])


def test_blocks_are_reused_and_never_shared():
    pool = BlockPool()
    one, two = pool.take(100), pool.take(100)
    assert not np.shares_memory(one.memory, two.memory)
    pool.give_back(one)
    assert pool.take(50) is one
    pool.give_back(two)
    larger = pool.take(1000)
    assert larger is not two
    assert larger.memory.ctypes.data % 64 == 0
