"""The three broadcasting rules."""

import numpy as np
import pytest
from hypothesis import given
from support.strategies import broadcastable, shapes

from ngine_ref.errors import ShapeError
from ngine_ref.numerics.broadcasting import broadcast_shape, check_unidirectional, in_place_slots, legacy_shape
from ngine_ref.registry import Call, TensorSpec

FLOAT = np.dtype(np.float32)


@given(broadcastable(3))
def test_shapes_broadcast_as_in_numpy(given_shapes: list[tuple[int, ...]]):
    assert broadcast_shape("Add", *given_shapes) == np.broadcast_shapes(*given_shapes)


@given(shapes, shapes)
def test_refused_exactly_where_numpy_refuses(a: tuple[int, ...], b: tuple[int, ...]):
    try:
        expected = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ShapeError, match="Add cannot broadcast the shapes"):
            broadcast_shape("Add", a, b)
    else:
        assert broadcast_shape("Add", a, b) == expected


@given(shapes, shapes)
def test_one_direction_means_the_target_does_not_grow(shape: tuple[int, ...], target: tuple[int, ...]):
    try:
        fits = np.broadcast_shapes(shape, target) == target
    except ValueError:
        fits = False
    if fits:
        check_unidirectional("PRelu", "slope", shape, target)
    else:
        with pytest.raises(ShapeError, match="without growing it"):
            check_unidirectional("PRelu", "slope", shape, target)


@pytest.mark.parametrize(
    ("b", "axis", "expected"),
    [
        ((), None, (1, 1, 1)),
        ((1, 1), None, (1, 1, 1)),
        ((4,), None, (4,)),
        ((3, 4), None, (3, 4)),
        ((3,), 1, (3, 1)),
        ((2,), 0, (2, 1, 1)),
        ((3,), -2, (3, 1)),
        ((2, 3), 0, (2, 3, 1)),
    ],
)
def test_the_rule_before_opset_7(b: tuple[int, ...], axis: int | None, expected: tuple[int, ...]):
    attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    assert legacy_shape(Call("Add", [], attributes), (2, 3, 4), b) == expected


def test_in_place_needs_shape_and_dtype():
    specs = [TensorSpec((2, 3), FLOAT), TensorSpec((3,), FLOAT), None, TensorSpec((2, 3), np.dtype(np.int32))]
    assert in_place_slots(Call("Add", specs, {}), TensorSpec((2, 3), FLOAT)) == (0,)
