"""Models that break rewriters in public: each is fused as far as is right, and nothing else about it changes.

Who else reads a value, what functions of the model mean, and graphs that are odd in other ways.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from support.image_models import CONDITION, ELSE, FUSED, LEAKY, TOLERANCE, counts, image
from support.soundness import check_fusing, random_feeds

import graphopt

# Who else reads a value: text, inputs, outputs, and what is fused.
READERS = {
    "a body reads it, three levels down": (
        f"""{FUSED} z = If (p) <{ELSE}, then_branch = t () => (float[1,4,5,5] o) {{
            o = If (p) <{ELSE}, then_branch = u () => (float[1,4,5,5] m) {{
                m = If (p) <{ELSE}, then_branch = v () => (float[1,4,5,5] n) {{ n = Neg(c) }}> }}> }}>""",
        CONDITION,
        "float[1,4,5,5] y, float[1,4,5,5] z",
        {},
    ),
    "a Loop reads it": (
        f"""{FUSED} n = Constant<value_int=2>()
        z = Loop (n, p, x) <body = l (int64 i, bool r, float[1,4,5,5] v) => (bool s, float[1,4,5,5] u)
            {{ s = Identity(r)  u = Add(v, c) }}>""",
        CONDITION,
        "float[1,4,5,5] y, float[1,4,5,5] z",
        {},
    ),
    "the convolution outside, its activation inside": (
        f"c = Conv(x,w,b) y = If (p) <{ELSE}, then_branch = t () => (float[1,4,5,5] o) {{ o = LeakyRelu(c) }}>",
        CONDITION,
        "float[1,4,5,5] y",
        {},
    ),
    "both branches of an If, with equal names inside": (
        """y = If (p) <then_branch = t () => (float[1,4,5,5] o) { c = Conv(x,w,b)  o = LeakyRelu(c) },
                      else_branch = e () => (float[1,4,5,5] q) { c = Conv(x,w)  q = LeakyRelu<alpha=0.5>(c) }>""",
        CONDITION,
        "float[1,4,5,5] y",
        {"ConvLeakyRelu": 2},
    ),
    "the body of a Loop": (
        """n = Constant<value_int=2>()
        y = Loop (n, p, x) <body = l (int64 i, bool r, float[1,4,5,5] v) => (bool s, float[1,4,5,5] u)
            { s = Identity(r)  c = Conv(v,w,b)  l = LeakyRelu(c)  m = Mul(l,k)  u = Add(m,v) }>""",
        CONDITION,
        "float[1,4,5,5] y",
        {"ConvLeakyRelu": 1, "MulAdd": 1},
    ),
    "an output that a Loop collects": (
        """n = Constant<value_int=2>()
        y, z = Loop (n, p, x)
            <body = l (int64 i, bool r, float[1,4,5,5] v) => (bool s, float[1,4,5,5] u, float[1,4,5,5] c)
            { s = Identity(r)  c = Conv(v,w,b)  u = LeakyRelu(c) }>""",
        CONDITION,
        "float[1,4,5,5] y, float[n,1,4,5,5] z",
        {},
    ),
    "the body of a Scan": (
        """y = Scan <num_scan_inputs = 1, body = s (float[4,5,5] v) => (float[4,5,5] u)
            { m = Mul(k,v)  u = Add(v,m) }> (x)""",
        "float[1,4,5,5] x",
        "float[1,4,5,5] y",
        {"MulAdd": 1},
    ),
    "a dense block in a body, over a captured value": (
        """y = If (p) <then_branch = t () => (float[1,12,5,5] o) {
                c = Conv(x,w,b)  d = Concat<axis=1>(x,c)  e = Conv(d,wide)  f = Concat<axis=1>(x,c,e)
                o = Identity(f) },
            else_branch = e () => (float[1,12,5,5] q) { q = Concat<axis=1>(x,x,x) }>""",
        CONDITION,
        "float[1,12,5,5] y",
        {"ConcatFusedTail": 2},
    ),
    "a slope from the graph around": (
        f"""s = Constant<value_float=0.5>()
        y = If (p) <{ELSE}, then_branch = t () => (float[1,4,5,5] o) {{ c = Conv(x,w,b)  o = PRelu(c,s) }}>""",
        CONDITION,
        "float[1,4,5,5] y",
        {"ConvPRelu": 1},
    ),
    "two slots of one node": ("c = Conv(x,w,b)  y = PRelu(c,c)", "float[1,4,5,5] x", "float[1,4,5,5] y", {}),
    "a product added to itself": ("m = Mul(x,k)  y = Add(m,m)", "float[1,4,5,5] x", "float[1,4,5,5] y", {}),
    "prefix and tail": (
        "c = Conv(x,w,b)  y = Concat<axis=1>(c,c)",
        "float[1,4,5,5] x",
        "float[1,8,5,5] y",
        {},
    ),
    "an Identity reads it too": (
        "c = Conv(x,w,b)  i = Identity(c)  y = Concat<axis=1>(i,c)",
        "float[1,4,5,5] x",
        "float[1,8,5,5] y",
        {},
    ),
    "an output of the graph": (FUSED, "float[1,4,5,5] x", "float[1,4,5,5] y, float[1,4,5,5] c", {}),
    "only one of two products is free": (
        "m = Mul(x,k)  n = Mul(x,x)  y = Add(n,m)  z = Neg(n)",
        "float[1,4,5,5] x",
        "float[1,4,5,5] y, float[1,4,5,5] z",
        {"MulAdd": 1},
    ),
}


@pytest.mark.parametrize(("body", "inputs", "outputs", "wanted"), READERS.values(), ids=READERS)
def test_every_reader_counts(body: str, inputs: str, outputs: str, wanted: dict[str, int]) -> None:
    model = image(body, outputs, inputs)
    feeds = random_feeds(model)
    both = [{**feeds, "p": np.asarray(p)} for p in (True, False)] if "p" in feeds else [feeds]
    assert counts(check_fusing(model, *both, tolerance=TOLERANCE)) == wanted


def test_a_training_step_reads_values_of_the_graph() -> None:
    model = image(FUSED)
    step = model.training_info.add()
    step.algorithm.node.append(helper.make_node("Neg", ["c"], ["gradient"]))
    step.algorithm.output.add(name="gradient")
    result = check_fusing(model)
    assert counts(result) == {}
    assert result.report.refusals[0].reason == "'c' is read 2 times: by LeakyRelu 'y' and by a training step"
    step.algorithm.node[0].input[0] = "y"
    result = check_fusing(model)
    assert counts(result) == LEAKY
    assert list(result.model.training_info) == list(model.training_info)


@pytest.mark.parametrize("domain", ["other", "ai.ngine", "ai.ngine.sub"])
@pytest.mark.parametrize("as_list", [False, True])
def test_bodies_of_strangers_read_too(domain: str, as_list: bool) -> None:
    body = helper.make_graph([helper.make_node("Neg", ["c"], ["q"])], "body", [], [onnx.ValueInfoProto(name="q")])
    model = image(FUSED)
    model.graph.node.append(helper.make_node("If", ["x"], ["z"], domain=domain, body=[body] if as_list else body))
    result = check_fusing(model)
    assert counts(result) == {}
    assert result.report.refusals[0].reason.endswith("inside a body of If 'z'")


# Functions.

BLOCK = """<domain: "my", opset_import: ["": {opset}]> Block<{alpha}>(x, w, b) => (y)
    { c = Conv(x,w,b)  y = LeakyRelu<alpha: float = @alpha>(c) }"""
TWICE = """<domain: "my", opset_import: ["": 17, "my": 1]> Twice<slope>(x, w, b) => (y)
    { t = my.Block<alpha: float = @slope>(x,w,b)  y = my.Block<alpha: float = @slope>(t,w,b) }"""
GATED = """<domain: "my", opset_import: ["": 17]> Gated(x, w, b, p) => (y) {
    y = If (p) <then_branch = t () => (float[1,4,5,5] o) { c = Conv(x,w,b)  o = LeakyRelu(c) },
                else_branch = e () => (float[1,4,5,5] q) { q = Abs(x) }> }"""
TAIL = """<domain: "my", opset_import: ["": 17]> Tail<alpha>(x, w, b) => (y)
    { c = Conv(x,w,b)  l = LeakyRelu<alpha: float = @alpha>(c)  y = Concat<axis=1>(x,l) }"""


def block(opset: int = 17, alpha: str = "alpha") -> str:
    return BLOCK.replace("{opset}", str(opset)).replace("{alpha}", alpha)


FUNCTIONS = {
    "an attribute by reference": ("y = my.Block<alpha=0.5>(x,w,b)", block(), LEAKY),
    "an attribute that the call leaves out": ("y = my.Block(x,w,b)", block(), LEAKY),
    "an attribute with a default": ("y = my.Block(x,w,b)", block(alpha="alpha: float = 0.75"), LEAKY),
    "through two levels": ("y = my.Twice<slope=0.5>(x,w,b)", block() + TWICE, LEAKY),
    "another opset than the graph": (
        "t = my.Block<alpha=0.5>(x,w,b)  c = Conv(t,w)  y = LeakyRelu(c)",
        block(opset=15),
        {"ConvLeakyRelu": 2},
    ),
    "the body of an If in it": ("p = Constant<value = bool {1}>()  y = my.Gated(x,w,b,p)", GATED, LEAKY),
}


@pytest.mark.parametrize(("body", "functions", "wanted"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_the_model(body: str, functions: str, wanted: dict[str, int]) -> None:
    model = image(body, functions=functions)
    assert counts(check_fusing(model, random_feeds(model), tolerance=TOLERANCE)) == wanted


def test_a_tail_in_a_function_passes_its_alpha_on() -> None:
    model = image("y = my.Tail<alpha=0.5>(x,w,b)", "float[1,8,5,5] y", functions=TAIL)
    wanted = {"ConvLeakyRelu": 1, "ConcatFusedTail": 1}
    assert counts(check_fusing(model, random_feeds(model), tolerance=TOLERANCE)) == wanted


def test_a_function_without_the_import_of_its_operators_is_refused() -> None:
    model = image("y = my.Block<alpha=0.5>(x,w,b)", functions=block().replace('"": 17', ""))
    with pytest.raises(graphopt.ModelError, match="function 'my::Block' has no opset import for ONNX's own operators"):
        graphopt.fuse(model)


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_a_function_in_place_of_a_standard_operator_is_another_operator(domain: str) -> None:
    own = f'<domain: "{domain}", opset_import: ["": 17]> LeakyRelu(x) => (y) {{ y = Neg(x) }}'
    assert counts(graphopt.fuse(image(FUSED, functions=own))) == {}


@pytest.mark.parametrize("domain", ["ai.ngine", "ai.ngine.ConvLeakyRelu", "ai.ngine.opset17"])
@pytest.mark.parametrize("name", ["ConvLeakyRelu", "Other"])
def test_a_domain_that_somebody_uses_already(domain: str, name: str) -> None:
    own = f'<domain: "{domain}", opset_import: ["": 17]> {name}(x, w, b) => (y) {{ c = Conv(x,w,b)  y = Neg(c) }}'
    model = image(f"{FUSED.replace('y =', 'l =')}  y = {domain}.{name}(l,w,b)", functions=own)
    model.opset_import.add(domain=domain, version=1)
    result = check_fusing(model, random_feeds(model), tolerance=TOLERANCE)
    assert counts(result) == LEAKY
    assert own_function(result.model, domain, name) == model.functions[0]
    domains = [entry.domain for entry in result.model.opset_import]
    assert len(domains) == len(set(domains))


def own_function(model: ModelProto, domain: str, name: str) -> onnx.FunctionProto:
    return next(function for function in model.functions if (function.domain, function.name) == (domain, name))


# Odd graphs.

ODD = {
    "empty": "g () => () { }",
    "an input as output": "g (float[1] x) => (float[1] x) { }",
    "an output listed twice": "g (float[2] x) => (float[2] y, float[2] y) { m = Mul(x,x)  y = Add(m,x) }",
    "a sequence": """g (seq(float[2]) s, optional(float[2]) o) => (float[n] y, seq(float[2]) t)
        { t = Identity(s)  c = ConcatFromSequence<axis=0>(s)  m = Mul(c,c)  y = Add(m,c) }""",
    "a Concat of nothing": "g (float[2] x) => (float[2] y) { y = Concat<axis=1>() }",
    "a Concat of something absent": """g (float[1,1,1,1] x) => (float y)
        { c = Conv(x,x)  y = Concat<axis=1>("",c) }""",
    "a convolution of nothing": "g () => (float y) { c = Conv()  y = LeakyRelu(c) }",
    "absent inputs": 'g () => (float y) { c = Conv("","")  y = LeakyRelu(c)  z = Add("","")  v = PRelu(y) }',
    "an absent output": 'g (float x) => (float y) { y = Relu(x)  "" = LeakyRelu(x) }',
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_graphs(text: str) -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text)
    check_fusing(model)


def test_a_node_without_outputs() -> None:
    model = image(FUSED)
    model.graph.node.append(helper.make_node("LeakyRelu", ["x"], []))
    model.graph.node.append(helper.make_node("Add", ["x", "x"], []))
    assert counts(check_fusing(model)) == LEAKY
