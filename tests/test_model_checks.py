"""Models that break a rule of ONNX are refused in one sentence; unusual but right ones pass."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import ModelProto, SparseTensorProto, TensorProto, helper, parser

from graphopt.errors import ModelError
from graphopt.graph.model_walk import iterate_places, iterate_tensors
from graphopt.model_files.model_checks import check_model

HEADER = '<ir_version: 8, opset_import: ["": 17]> '
RELU = "g (float[1] x) => (float[1] y) { y = Relu(x) }"


def parse(text: str, header: str = HEADER) -> ModelProto:
    return parser.parse_model(header + text)


def refusal(model: ModelProto) -> str:
    with pytest.raises(ModelError) as caught:
        check_model(model, "m.onnx")
    message = str(caught.value)
    assert message.startswith("m.onnx: ")
    assert message.endswith(".")
    assert "\n" not in message
    return message


ACCEPTED = {
    "unsorted nodes": "g (float[1] x) => (float[1] y) { y = Relu(t)  t = Neg(x) }",
    "absent inputs and outputs": 'g (float[1] x) => (float[1] y) { y, "" = Dropout(x, "") }',
    "an input returned as it is": "g (float[1] x) => (float[1] x) { }",
    "an initializer among the inputs": "g (float[1] x, float[1] w = {1}) => (float[1] y) { y = Add(x, w) }",
    "an output listed twice": "g (float[1] x) => (float[1] y, float[1] y) { y = Relu(x) }",
    "a capture": """g (bool c, float[1] x) => (float[1] y) {
        y = If (c) <then_branch = a () => (float[1] o) { o = Relu(x) },
                    else_branch = b () => (float[1] p) { p = Neg(z) }>
        z = Abs(x)
    }""",
    "a domain without an import": "g (float[1] x) => (float[1] y) { y = com.microsoft.Gelu(x) }",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_unusual_models_pass(text: str) -> None:
    assert check_model(parse(text), "m.onnx") == []


NAMES = {
    "two producers": (
        "g (float[1] x) => (float[1] y) { y = Relu(x)  [again] y = Neg(x) }",
        "the value 'y' has two producers in the graph, Relu 'y' and Neg 'again'",
    ),
    "a node makes an input": (
        "g (float[1] x) => (float[1] y) { x = Relu(x)  y = Neg(x) }",
        "the value 'x' has two producers in the graph, an input or initializer",
    ),
    "a node makes an initializer": (
        "g (float[1] x) => (float[1] y) <float[1] w = {1}> { w = Relu(x)  y = Neg(w) }",
        "'w' has two producers",
    ),
    "two inputs": ("g (float[1] x, float[1] x) => (float[1] y) { y = Relu(x) }", "lists the input 'x' more than once"),
    "two initializers": (
        "g (float[1] x) => (float[1] y) <float[1] w = {1}, float[1] w = {2}> { y = Add(x, w) }",
        "has the initializer 'w' more than once",
    ),
    "dangling input": (
        "g (float[1] x) => (float[1] y) { y = Relu(x)  [dead] z = Add(x, nowhere) }",
        "Add 'dead' reads 'nowhere', and nothing in the model makes it",
    ),
    "dangling output": (
        "g (float[1] x) => (float[1] y, float[1] z) { y = Relu(x) }",
        "the output 'z' of the graph is made by no node",
    ),
    "dangling capture": (
        """g (bool c, float[1] x) => (float[1] y) {
            y = If (c) <then_branch = a () => (float[1] o) { o = Relu(q) },
                        else_branch = b () => (float[1] p) { p = Neg(x) }>
        }""",
        "Relu 'o' reads 'q'",
    ),
    "a value of a sister body": (
        """g (bool c, float[1] x) => (float[1] y) {
            y = If (c) <then_branch = a () => (float[1] o) { o = Relu(x) },
                        else_branch = b () => (float[1] p) { p = Neg(o) }>
        }""",
        "Neg 'p' reads 'o'",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), NAMES.values(), ids=NAMES)
def test_names_with_two_meanings_or_none_are_refused(text: str, sentence: str) -> None:
    assert sentence in refusal(parse(text))


def nested_ifs(depth: int, innermost: str) -> ModelProto:
    """`depth` Ifs inside each other; the innermost body reads the value `innermost`."""
    body = helper.make_graph([helper.make_node("Relu", [innermost], ["v0"])], "g", [], [onnx.ValueInfoProto(name="v0")])
    for level in range(1, depth + 1):
        node = helper.make_node("If", ["c"], [f"v{level}"], then_branch=body, else_branch=body)
        body = helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name=f"v{level}")])
    body.input.extend([helper.make_tensor_value_info("c", TensorProto.BOOL, [])])
    body.input.extend([helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])])
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)])


def test_captures_reach_out_of_any_depth() -> None:
    assert check_model(nested_ifs(10, "x"), "m.onnx") == []
    assert "Relu 'v0' reads 'nowhere'" in refusal(nested_ifs(10, "nowhere"))


def nested(depth: int) -> ModelProto:
    """Bodies inside each other; built in place, since copying them would be reading them."""
    graph = onnx.GraphProto(name="g")
    model = ModelProto(ir_version=8, graph=graph, opset_import=[helper.make_opsetid("", 17)])
    inner = model.graph
    for _ in range(depth):
        inner.node.add(op_type="If").attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        inner = inner.node[0].attribute[0].g
    return model


def test_the_walk_does_not_recurse() -> None:
    assert sum(1 for _ in iterate_places(nested(2000))) == 2001


def test_bodies_nested_beyond_what_protobuf_reads_are_refused_in_memory_too() -> None:
    assert check_model(nested(30), "m.onnx") == []
    with pytest.raises(ModelError, match="nested more deeply"):
        check_model(nested(31), "m.onnx")
    with pytest.raises(ModelError, match="nested more deeply"):
        check_model(nested(2000), "m.onnx")


def test_function_bodies_are_closed() -> None:
    model = parse(
        'agraph (float[1] x) => (float[1] y) { y = my.F(x) }\n<domain: "my", opset_import: ["": 17]> F (a) => (b) '
        "{ b = Add(a, x) }",
        '<ir_version: 8, opset_import: ["": 17, "my": 1]> ',
    )
    assert "Add 'b' reads 'x'" in refusal(model)
    model.functions[0].node[0].input[1] = "a"
    assert check_model(model, "m.onnx") == []
    del model.functions[0].opset_import[:]
    assert "function 'my::F' has no opset import" in refusal(model)
    model.functions[0].opset_import.add(version=17)
    model.functions.append(model.functions[0])
    assert "defines the function 'my::F' 2 times" in refusal(model)


def test_graphs_come_in_the_order_of_the_file_functions_last() -> None:
    model = parse("""main (bool c, float[1] x) => (float[1] y, float[1] z) {
        y = If (c) <then_branch = first () => (float[1] a) {
            a = If (c) <then_branch = inner () => (float[1] b) { b = Neg(x) },
                        else_branch = last () => (float[1] d) { d = Neg(x) }>
        }, else_branch = second () => (float[1] e) { e = Abs(x) }>
        z = If (c) <then_branch = third () => (float[1] f) { f = Neg(x) },
                    else_branch = fourth () => (float[1] g) { g = Abs(x) }>
    }""")
    model.functions.add(name="F", domain="my").node.add(op_type="Relu")
    names = [place.graph.name for place in iterate_places(model)]
    assert names == ["main", "first", "inner", "last", "second", "third", "fourth", "F"]


HEADERS: dict[str, tuple[Callable[[ModelProto], object], str]] = {
    "no graph": (lambda model: model.ClearField("graph"), "has no graph"),
    "no IR version": (lambda model: model.ClearField("ir_version"), "states no IR version"),
    "a later IR version": (lambda model: setattr(model, "ir_version", 99), "IR version 99"),
    "no opset import": (lambda model: model.ClearField("opset_import"), "no opset import for ONNX's own operators"),
    "another version": (
        lambda model: model.opset_import.add(domain="", version=13),
        "'ai.onnx' is imported twice, with versions 17 and 13",
    ),
    "the other spelling": (lambda model: model.opset_import.add(domain="ai.onnx", version=18), "versions 17 and 18"),
    "version 0": (lambda model: model.opset_import.add(domain="my"), "'my' has version 0"),
    "an attribute without a type": (lambda model: model.graph.node[0].attribute.add(name="alpha"), "attribute 'alpha'"),
    "an attribute without a name": (lambda model: model.graph.node[0].attribute.add(type=1, f=1), "without a name"),
    "an input without a name": (lambda model: model.graph.input.add(), "without a name"),
}


@pytest.mark.parametrize(("spoil", "sentence"), HEADERS.values(), ids=HEADERS)
def test_broken_headers_and_nodes_are_refused(spoil: Callable[[ModelProto], object], sentence: str) -> None:
    model = parse(RELU)
    spoil(model)
    assert sentence in refusal(model)


def test_the_same_import_twice_is_harmless() -> None:
    model = parse(RELU)
    model.opset_import.add(domain="ai.onnx", version=17)
    assert check_model(model, "m.onnx") == []


def test_attributes_have_a_type_that_some_version_of_the_operator_takes() -> None:
    model = parse(
        'g (float[1] x) => (float[1] y) { t = LeakyRelu <alpha = 0.1> (x)  y = Cast <to: string = "FLOAT"> (t) }'
    )
    assert check_model(model, "m.onnx") == []  # Cast took a string once
    model.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("alpha", 1))
    assert "LeakyRelu 't' has an attribute 'alpha' of type INT" in refusal(model)
    model.graph.node.add(op_type="Elu", input=["t"], output=["z"]).attribute.add().CopyFrom(
        helper.make_attribute("alpha", "damaged")
    )
    assert "LeakyRelu 't' has an attribute 'alpha' of type INT" in refusal(model)  # the first of several
    del model.graph.node[-1]
    model.graph.node[0].attribute[0].name = "unheard_of"
    assert check_model(model, "m.onnx") == []
    model.graph.node[0].domain = "my"
    model.graph.node[0].attribute[0].name = "alpha"
    assert check_model(model, "m.onnx") == []


@pytest.mark.parametrize("text", [b"Relu", b"x", b"the_node"])
def test_names_that_are_not_text_are_refused(text: bytes) -> None:
    data = parse("g (float[1] x) => (float[1] y) { [the_node] y = Relu <alpha = 1.0> (x) }").SerializeToString()
    model = ModelProto.FromString(data.replace(text, b"\xff" * len(text)))
    assert "not UTF-8" in refusal(model)


@pytest.mark.parametrize("field", ["producer_name", "doc_string"])
def test_text_of_the_model_is_checked(field: str) -> None:
    model = parse(RELU)
    setattr(model, field, "the_text")
    data = model.SerializeToString().replace(b"the_text", b"\xff" * 8)
    assert "the model has text that is not UTF-8" in refusal(ModelProto.FromString(data))


def test_text_of_a_graph_is_checked() -> None:
    model = parse(RELU)
    model.graph.name = "the_name"
    model.graph.metadata_props.add(key="a", value="the_text")
    for text in (b"the_name", b"the_text"):
        data = model.SerializeToString().replace(text, b"\xff" * 8)
        assert "the graph has text that is not UTF-8" in refusal(ModelProto.FromString(data))


def test_a_function_output_that_is_not_text_is_refused() -> None:
    model = parse(RELU)
    model.functions.add(name="F", domain="my", output=["the_output"])
    model = ModelProto.FromString(model.SerializeToString().replace(b"the_output", b"\xff" * 10))
    assert "function 'my::F' has text that is not UTF-8" in refusal(model)


def with_tensor(**fields: object) -> ModelProto:
    model = parse("g (float[1] x) => (float[1] y) { y = Add(x, w) }")
    model.graph.initializer.append(TensorProto(name="w", **fields))
    return model


KNOWN_TYPES = [number for name, number in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]


@pytest.mark.parametrize("data_type", KNOWN_TYPES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("count", [0, 1, 3, 5, 8])
def test_typed_and_raw_data_of_every_type_fit_as_onnx_writes_them(data_type: int, count: int) -> None:
    typed = helper.make_tensor("w", data_type, [count], [0] * count)
    raw = onnx.numpy_helper.from_array(np.zeros(count, helper.tensor_dtype_to_np_dtype(data_type)), "w")
    for tensor in (typed, raw):
        model = with_tensor()
        model.graph.initializer[0].CopyFrom(tensor)
        assert check_model(model, "m.onnx") == []
        tensor.dims[0] += 5  # more than the padding of a packed type can hide
        model.graph.initializer[0].CopyFrom(tensor)
        assert "the data of initializer 'w' does not match its dims" in refusal(model)


def test_strings_are_counted() -> None:
    good = with_tensor(data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"bc"])
    assert check_model(good, "m.onnx") == []
    assert "needs 3 entries in string_data, and it has 1" in refusal(
        with_tensor(data_type=TensorProto.STRING, dims=[3], string_data=[b"a"])
    )
    assert "strings as raw data" in refusal(with_tensor(data_type=TensorProto.STRING, dims=[1], raw_data=b"a"))


TENSORS = {
    "short raw data": (
        {"data_type": 1, "dims": [2, 3], "raw_data": bytes(20)},
        "FLOAT [2, 3] needs 24 bytes of raw data, and it has 20",
    ),
    "long raw data": ({"data_type": 1, "dims": [1], "raw_data": bytes(8)}, "needs 4 bytes of raw data, and it has 8"),
    "half of a complex number": ({"data_type": 14, "dims": [1], "float_data": [1]}, "needs 2 entries in float_data"),
    "another type's field": ({"data_type": 1, "dims": [1], "double_data": [1]}, "needs 1 entries in float_data"),
    "two gibibytes without data": ({"data_type": 1, "dims": [2**29]}, "needs 536870912 entries in float_data"),
    "beyond 63 bits": ({"data_type": 1, "dims": [2**62, 2**62]}, "cannot have"),
    "a million dims": ({"data_type": 1, "dims": [2**62] * 10**6}, "the shape of 1000000 dims"),
    "a negative dim": ({"data_type": 1, "dims": [-1], "raw_data": b""}, "cannot have"),
    "an unknown type": ({"data_type": 99, "dims": [1], "raw_data": bytes(4)}, "the element type 99"),
    "no type": ({"dims": [1], "raw_data": bytes(4)}, "the element type 0"),
}


@pytest.mark.parametrize(("fields", "sentence"), TENSORS.values(), ids=TENSORS)
def test_weights_that_do_not_fit_their_shape_are_refused(fields: dict[str, object], sentence: str) -> None:
    assert sentence in refusal(with_tensor(**fields))


def test_tensors_are_found_wherever_they_hide() -> None:
    def tensor(name: str) -> TensorProto:
        return helper.make_tensor(name, TensorProto.FLOAT, [1], [1])

    model = parse("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    graph = model.graph
    graph.initializer.append(tensor("initializer"))
    sparse = SparseTensorProto(values=tensor("sparse"), indices=helper.make_tensor("i", TensorProto.INT64, [1], [0]))
    sparse.dims.append(4)
    graph.sparse_initializer.append(sparse)
    graph.node.append(helper.make_node("Constant", [], ["k"], value=tensor("constant")))
    graph.node.append(helper.make_node("Constant", [], ["s"], sparse_value=sparse))
    graph.node.append(helper.make_node("Custom", [], ["t"], domain="my", tensors=[tensor("list")]))
    body = helper.make_graph([], "body", [], [onnx.ValueInfoProto(name="body")], [tensor("body")])
    graph.node.append(helper.make_node("If", ["k"], ["o"], then_branch=body, else_branch=body))
    function = model.functions.add(name="F", domain="my", opset_import=[helper.make_opsetid("", 17)])
    function.node.append(helper.make_node("Constant", [], ["k"], value=tensor("function")))
    names = [found.name for found in iterate_tensors(model)]
    assert names == ["initializer", "constant", "list", "sparse", "i", "sparse", "i", "body", "body", "function"]
    assert check_model(model, "m.onnx") == []
    sparse.indices.dims[0] = 2
    graph.sparse_initializer[0].CopyFrom(sparse)
    assert "needs one int64 index" in refusal(model)
