"""What a fused model remembers may be damaged, or another tool's; what is whole gives nodes back byte by byte."""

from __future__ import annotations

import pytest
from onnx import helper
from support.image_models import FUSED, image
from support.soundness import check_fusing, check_repeated, check_running, check_unfusing, random_feeds

import graphopt

RECORDS = {
    "no JSON": "{",
    "nested without end": "[" * 100_000,
    "another form": '{"a": 1}',
    "rows of another form": "[1, null]",
    "names that are numbers": '[{"op": "Conv", "outputs": [1]}, {"op": "LeakyRelu", "outputs": ["y"]}]',
    "very many inputs": '[{"op": "Conv", "outputs": ["c"], "arity": 9999999999}, {"op": "L", "outputs": ["y"]}]',
    "metadata that is a list": '[{"op": "Conv", "outputs": ["c"], "metadata": [1]}, {"op": "L", "outputs": ["y"]}]',
    "too few": '[{"op": "Conv", "outputs": ["c"]}]',
    "an axis that is text": '[{"op": "Conv", "outputs": ["c"], "axis": "x"}, {"op": "L", "outputs": ["y"]}]',
    "a name that is taken": '[{"op": "Conv", "outputs": ["x"]}, {"op": "LeakyRelu", "outputs": ["y"]}]',
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_unfuse_makes_names_up_where_the_record_is_damaged(record: str) -> None:
    model = image(FUSED)
    fused = graphopt.fuse(model).model
    entry = next(entry for entry in fused.graph.node[0].metadata_props if entry.key == "graphopt.nodes")
    entry.value = record
    restored = graphopt.unfuse(fused)
    assert [node.op_type for node in restored.graph.node] == ["Conv", "LeakyRelu"]
    check_running(model, restored, random_feeds(model))


def test_damaged_entries_of_the_model_are_passed_over() -> None:
    fused = graphopt.fuse(image(FUSED)).model
    for key in ("graphopt.ir_version", "graphopt.inputs"):
        fused.metadata_props.add(key=key, value="[1]")
    assert [node.op_type for node in graphopt.unfuse(fused).graph.node] == ["Conv", "LeakyRelu"]


def test_nodes_come_back_byte_by_byte() -> None:
    model = image("c = Conv(x,w,b)  l = LeakyRelu(c)  m = Mul(l,k)  y = Add(x,m)")
    conv, leaky, product, total = model.graph.node
    conv.attribute.extend([helper.make_attribute("strides", [1, 1]), helper.make_attribute("auto_pad", "VALID")])
    conv.metadata_props.add(key="pkg", value="torch")
    for node in (conv, product):
        node.name, node.domain, node.doc_string = "", "", ""  # written, and empty
    leaky.ClearField("name")
    total.doc_string = "a sum"
    fused = check_fusing(model).model
    check_unfusing(model, fused, {})
    check_repeated(fused, {})
