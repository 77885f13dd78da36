"""ONNX's own cases of every operator in this folder."""

import pytest
from support.node_cases import NodeCase, check_node_case, node_cases
from support.one_node import check_every_use

OPERATORS = [
    "Add",
    "BatchNormalization",
    "Cast",
    "Clip",
    "Concat",
    "DepthToSpace",
    "Div",
    "Dropout",
    "Equal",
    "Erf",
    "Flatten",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "LeakyRelu",
    "MatMul",
    "Mish",
    "Mul",
    "PRelu",
    "ReduceMean",
    "Relu",
    "Reshape",
    "Sigmoid",
    "Softplus",
    "Squeeze",
    "Sub",
    "Tanh",
    "Transpose",
    "Unsqueeze",
]


@pytest.mark.parametrize("case", [case for name in OPERATORS for case in node_cases(name)], ids=lambda case: case.name)
def test_node_case(case: NodeCase):
    check_node_case(case)


@pytest.mark.parametrize("case", [case for name in OPERATORS for case in node_cases(name)], ids=lambda case: case.name)
def test_every_use_of_a_node_case(case: NodeCase):
    outputs = len(case.node.output)
    tolerance = 1e-6 if case.node.op_type in ("Gemm", "MatMul") else 0.0  # their sums are BLAS's where it can
    check_every_use(
        case.node.op_type,
        case.inputs,
        case.attributes,
        opset=case.opset,
        output_count=outputs,
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize("op_type", OPERATORS)
def test_there_are_cases(op_type: str):
    assert node_cases(op_type)
