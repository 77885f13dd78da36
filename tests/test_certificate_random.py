"""The certificate and operators that are random or unknown: two of them are never equal."""

import pytest
from support.certificate_models import FUSED, MUL_ADD, assert_same, image, parse, reason

from graphopt.proof.certificate import certify


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli", "my.Op"])
def test_two_nodes_that_may_differ_are_never_equal(op):
    text = "g (float[n] a) => (float[n] y) {{ r = {0} (a)  s = {0} (a)  y = Sub (r, {1}) }}"
    original = parse(text.format(op, "s"))
    reason(original, parse(text.format(op, "r")))
    assert certify(original, parse(text.format(op, "s"))).ok


def test_seeds_do_not_make_random_nodes_equal():
    text = """g () => (float[2] y) {{ r = RandomNormal <seed: float = 1.0, shape: ints = [2]> ()
        s = RandomNormal <seed: float = 1.0, shape: ints = [2]> ()  y = Sub (r, {}) }}"""
    reason(parse(text.format("s")), parse(text.format("r")))


@pytest.mark.parametrize(("mode", "equal"), [("t", False), ("on", False), ("off", True), ("", True)])
def test_dropout_is_random_while_it_trains(mode, equal):
    text = """g (float[n] a, bool t) => (float[n] y) <bool on = {{1}}, bool off = {{0}}, float q = {{0.5}}>
        {{ r = Dropout (a, q, {0})  s = Dropout (a, q, {0})  y = Sub (r, {1}) }}"""
    one, other = parse(text.format(mode, "s")), parse(text.format(mode, "r"))
    assert certify(one, other).ok is equal


NOISE = {
    "itself": "y = RandomNormalLike (a)",
    "in a fused call": "y = ai.ngine.Noise (a)",
    "in a function": "y = my.Noise (a)",
    "in a body": """q = Constant <value: tensor = bool {1}> ()  y = If (q) <
        then_branch = t () => (float[n] z) { z = RandomNormalLike (a) },
        else_branch = e () => (float[n] v) { v = Neg (a) }>""",
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE.keys())
def test_random_inside_a_function_called_twice(noise):
    imports = 'opset_import: ["" : 17, "ai.ngine" : 1, "my" : 1]'
    bodies = [f'<domain: "my", {imports}> F (a) => (y) {{ {noise} }}']
    bodies += [f'<domain: "{name}", {imports}> Noise (a) => (y) {{ y = Bernoulli (a) }}' for name in ("my", "ai.ngine")]
    text = "g (float[n] a) => (float[n] y) {{ r = my.F (a)  s = my.F (a)  y = Sub (r, {}) }}"
    reason(parse(text.format("s"), *bodies), parse(text.format("r"), *bodies))
    assert certify(parse(text.format("s"), *bodies), parse(text.format("s"), *bodies)).ok


def test_two_random_nodes_inside_one_fused_call():
    body = """<domain: "ai.ngine", opset_import: ["" : 17]> F (a) => (y)
        {{ r = Bernoulli (a)  s = Bernoulli (a)  y = Sub (r, {}) }}"""
    text = "g (float[n] a) => (float[n] y) { y = ai.ngine.F (a) }"
    reason(parse(text, body.format("s")), parse(text, body.format("r")))


def test_random_inside_two_bodies():
    branch = """If (c) <then_branch = t () => (float[n] z) {z = RandomNormalLike (a)},
        else_branch = e () => (float[n] q) {q = Neg (a)}>"""
    text = "g (float[n] a, bool c) => (float[n] y) {{ r = {0}  s = {0}  y = Sub (r, {1}) }}"
    reason(parse(text.format(branch, "s")), parse(text.format(branch, "r")))


def test_random_inside_fused_calls():
    body = '<domain: "ai.ngine", opset_import: ["" : 17]> Noise (a) => (y) { r = RandomNormalLike (a)  y = Relu (r) }'
    text = "g (float[n] a) => (float[n] y) {{ r = ai.ngine.Noise (a)  s = ai.ngine.Noise (a)  y = Sub (r, {}) }}"
    reason(parse(text.format("s"), body), parse(text.format("r"), body))


def test_random_nodes_that_are_the_same_nodes():
    text = "g (float[n] a) => (float[n] y) {{ r = RandomNormalLike (a)  {} }}"
    original = parse(text.format("m = Mul (r, a)  y = Add (m, a)"))
    assert_same(original, parse(text.format("y = ai.ngine.MulAdd (r, a, a)"), MUL_ADD))


def test_a_random_node_may_end_a_fused_call():
    body = '<domain: "ai.ngine", opset_import: ["" : 17]> F (a) => (y) { b = Relu (a)  y = RandomNormalLike (b) }'
    text = "g (float[n] a) => (float[n] y) {{ {} }}"
    original = parse(text.format("b = Relu (a)  r = RandomNormalLike (b)  y = Neg (r)"))
    assert_same(original, parse(text.format("r = ai.ngine.F (a)  y = Neg (r)"), body))


def test_a_custom_operator_keeps_its_name_and_is_proven():
    original = parse(image("c = Conv (x, w)  l = LeakyRelu (c)  y = my.Op <k: int = 1> (l)"))
    assert_same(original, parse(image("l = ai.ngine.ConvLeakyRelu (x, w)  y = my.Op <k: int = 1> (l)"), FUSED))
    assert not certify(
        original, parse(image("l = ai.ngine.ConvLeakyRelu (x, w)  y = my.Op <k: int = 2> (l)"), FUSED)
    ).ok


def test_dropout_of_old_trains_unless_it_says_test():
    text = "g (float[n] a) => (float[n] y) {{ r = Dropout {0} (a)  s = Dropout {0} (a)  y = Sub (r, {1}) }}"
    for attributes, equal in (("", False), ("<is_test: int = 0>", False), ("<is_test: int = 1>", True)):
        one, other = parse(text.format(attributes, "s"), opset=6), parse(text.format(attributes, "r"), opset=6)
        assert certify(one, other).ok is equal
