"""Un-fusing gives back the original: nodes, names, attributes, operand orders, axes, inputs, IR version."""

import random

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from support.text_models import LEVELS, assert_same_numbers, fused, model, nodes, random_array

import graphopt
from graphopt import demo_models
from graphopt.proof.certificate import certify


def example() -> ModelProto:
    """Every rule of the default set, written in unusual ways, with names and documentation."""
    source = model(
        """c1 = Conv <strides: ints = [1,1], kernel_shape: ints = [1,1]> (x, w, b)
           t1 = LeakyRelu <alpha: float = 0.25> (c1)
           a = Concat <axis: int = -3> (x, t1)
           c2 = Conv (a, w8, "")
           t2 = PRelu (c2, slope)
           m = Mul (scale, t2)
           e = Add (x, m)
           t3 = Conv <pads: ints = [1,1,1,1]> (e, k3)
           y = ai.onnx.Concat <axis: int = 1> (e, a, t3)""",
        outputs="float[n,k,h,w] y",
    )
    for place, node in enumerate(source.graph.node):
        node.name = f"node {place}"
    source.graph.node[1].doc_string = "an activation"
    source.graph.node[1].metadata_props.add(key="layer", value="one")
    return source


def as_set(source: ModelProto) -> set[bytes]:
    """The nodes of the main graph byte by byte."""
    return {node.SerializeToString(deterministic=True) for node in source.graph.node}


def is_sorted(source: ModelProto) -> bool:
    known = {value.name for value in source.graph.input} | {tensor.name for tensor in source.graph.initializer} | {""}
    for node in source.graph.node:
        if not known.issuperset(node.input):
            return False
        known.update(node.output)
    return True


@pytest.mark.parametrize("share_prefix", [True, False])
@pytest.mark.parametrize("functions", [True, False])
def test_everything_comes_back(functions: bool, share_prefix: bool):
    source = example()
    result = graphopt.fuse(source, functions=functions, share_prefix=share_prefix)
    assert sum(result.report.counts.values()) == 5
    back = graphopt.unfuse(result.model)
    assert as_set(back) == as_set(source)
    assert len(back.graph.node) == len(source.graph.node)
    assert is_sorted(back)
    for one, other in ((source, back), (back, source)):
        assert certify(one, other).ok
    rest = ModelProto()
    for whole in (back, source):
        rest.CopyFrom(whole)
        del rest.graph.node[:]
        whole.CopyFrom(rest)
    assert back == source  # imports, metadata, functions, IR version


@pytest.mark.parametrize("name", ["rrdbnet", "srvgg", "span"])
@pytest.mark.parametrize("share_prefix", [True, False])
def test_demo_topologies_come_back(name: str, share_prefix: bool):
    source = {
        "rrdbnet": lambda: demo_models.rrdbnet(features=4, growth=2, blocks=2),
        "srvgg": lambda: demo_models.srvgg(features=4, convolutions=3),
        "span": lambda: demo_models.span(features=4, blocks=2),
    }[name]()
    back = graphopt.unfuse(fused(source, share_prefix=share_prefix))
    assert as_set(back) == as_set(source)
    assert is_sorted(back)


@pytest.mark.parametrize("first", ["x, m", "m, x"])
@pytest.mark.parametrize("second", ["x, scale", "scale, x"])
def test_operand_orders(first: str, second: str):
    source = model(f"m = Mul ({second})  y = Add ({first})")
    assert nodes(graphopt.unfuse(fused(source))) == nodes(source)


@pytest.mark.parametrize("conv", ["Conv (x, w, b)", "Conv (x, w)", 'Conv (x, w, "")'])
@pytest.mark.parametrize("activation", ["LeakyRelu (c)", "PRelu (c, slope)"])
@pytest.mark.parametrize("functions", [True, False])
def test_absent_inputs(conv: str, activation: str, functions: bool):
    source = model(f"c = {conv}  t = {activation}  y = Concat <axis: int = 1> (x, t)")
    assert nodes(graphopt.unfuse(fused(source, functions=functions))) == nodes(source)


def test_a_constant_of_a_rule_is_the_models_own_again(tmp_path):
    rule = tmp_path / "rule.onnxtxt"
    rule.write_text(
        '<domain: "ai.ngine", opset_import: ["" : 17]> Half (x) => (y) '
        "{ h = Constant <value = float {0.5}> ()  m = Mul (x, h)  y = Relu (m) }"
    )
    for text in ("m = Mul (x, k)  y = Relu (m)", "m = Mul (k, x)  y = Relu (m)"):
        source = model(text, constants={"k": np.full((1, 1), 0.5, np.float32)})
        result = fused(source, rules=rule)
        assert nodes(result) == ["y = ai.ngine.Half (x)"]
        assert graphopt.unfuse(result, rules=rule) == source


def test_ir_version_and_inputs():
    source = model(
        "c = Conv (x, w, b)  y = LeakyRelu (c)",
        inputs="float[4] b, float[n,4,h,w] x, float[4,4,1,1] w",
        constants={"w": random_array("w", (4, 4, 1, 1)), "b": random_array("b", (4,))},
        ir=3,
    )
    assert graphopt.unfuse(fused(source)) == source


def test_fused_nodes_without_a_record():
    """As another tool writes them: the names are made up, the meaning is the function's."""
    source = example()
    result = fused(source)
    for node in result.graph.node:
        del node.metadata_props[:]
    back = graphopt.unfuse(result)
    assert sorted(node.op_type for node in back.graph.node) == sorted(node.op_type for node in source.graph.node)
    assert not back.functions
    onnx.checker.check_model(back, full_check=True)
    assert_same_numbers(source, back, levels=LEVELS[:1])  # `""` at the end is one of the things a record remembers


@pytest.mark.parametrize(
    "record", ["", "no JSON", "[]", "[1]", "{}", "null", '[{"op": "Conv"}]', '[{"outputs": ["c"]}]', "[" * 10_000]
)
def test_fused_nodes_with_a_damaged_record(record: str):
    source = model("c = Conv (x, w, b)  y = LeakyRelu (c)")
    result = fused(source)
    for entry in result.graph.node[0].metadata_props:
        if entry.key == "graphopt.nodes":
            entry.value = record
    back = graphopt.unfuse(result)
    assert [node.op_type for node in back.graph.node] == ["Conv", "LeakyRelu"]
    assert_same_numbers(source, back)


def test_bare_calls_written_by_hand():
    source = model("c = Conv (x, w, b)  t = LeakyRelu <alpha: float = 0.5> (c)  y = Concat <axis: int = 1> (x, t)")
    call = model(
        """y = ai.ngine.ConcatFusedTail <axis: int = 1, prefix_count: int = 1, producer_op = "ConvLeakyRelu",
                alpha: float = 0.5> (x, x, w, b)""",
        imports='"ai.ngine" : 1',
    )
    back = graphopt.unfuse(call)
    assert [node.op_type for node in back.graph.node] == ["Conv", "LeakyRelu", "Concat"]
    assert not any(entry.domain for entry in back.opset_import)
    assert_same_numbers(source, back)


def test_a_foreign_function_stays():
    source = model(
        "a = ai.ngine.ConvLeakyRelu (x, w, b)  m = Mul (a, scale)  y = Add (m, x)",
        functions="""<domain: "ai.ngine", opset_import: ["" : 17]> ConvLeakyRelu (x, w, b) => (y)
                     { c = Conv (x, w, b)  y = Relu (c) }""",
        imports='"ai.ngine" : 1',
    )
    result = fused(source)
    assert graphopt.fuse(source).report.counts["MulAdd"] == 1
    assert graphopt.unfuse(result) == source


def test_inside_bodies():
    source = model(
        """y = If (condition) <then_branch = yes () => (float[n,4,h,w] p) { c = Conv (x, w, b)  p = LeakyRelu (c) },
                               else_branch = no () => (float[n,4,h,w] q) { m = Mul (scale, x)  q = Add (x, m) }>""",
        inputs="float[n,4,h,w] x, bool condition",
    )
    assert graphopt.unfuse(fused(source)) == source


def test_a_model_without_fused_nodes_stays_as_it_is():
    source = example()
    assert graphopt.unfuse(source) == source


def test_a_shuffled_file_comes_back_as_the_same_nodes():
    source = demo_models.rrdbnet(features=4, growth=2, blocks=1)
    order = list(source.graph.node)
    random.Random(0).shuffle(order)
    shuffled = ModelProto()
    shuffled.CopyFrom(source)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(order)
    result = graphopt.fuse(shuffled)
    assert result.report.counts["ConcatFusedTail"] == 12
    back = graphopt.unfuse(result.model)
    assert as_set(back) == as_set(source)
    assert is_sorted(back)


def test_its_argument_is_never_changed():
    result = fused(example())
    before = result.SerializeToString(deterministic=True)
    graphopt.unfuse(result)
    assert result.SerializeToString(deterministic=True) == before


def test_names_that_a_fused_node_freed_and_somebody_took():
    """A tool renamed or added a value under an interior name; unfusing must not make it twice."""
    source = model("c = Conv (x, w, b)  y = LeakyRelu (c)")
    result = fused(source)
    result.graph.node.append(helper.make_node("Relu", ["x"], ["c"]))
    result.graph.output.append(helper.make_tensor_value_info("c", 1, ["n", 4, "h", "w"]))
    back = graphopt.unfuse(result)
    onnx.checker.check_model(back, full_check=True)
    assert_same_numbers(result, back)
