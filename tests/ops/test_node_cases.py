"""ONNX's own cases of every operator in this folder."""

import pytest
from support.node_cases import NodeCase, check_node_case, node_cases

import ngine_ref.ops  # noqa: F401

OPERATORS = """
    Add BatchNormalization Cast Clip Concat DepthToSpace Div Dropout Equal Flatten Gemm GlobalAveragePool Identity
    LeakyRelu MatMul Mul PRelu ReduceMean Relu Reshape Sigmoid Squeeze Sub Transpose Unsqueeze
""".split()


@pytest.mark.parametrize("case", [case for name in OPERATORS for case in node_cases(name)], ids=lambda case: case.name)
def test_node_case(case: NodeCase):
    check_node_case(case)


@pytest.mark.parametrize("op_type", OPERATORS)
def test_there_are_cases(op_type: str):
    assert node_cases(op_type)
