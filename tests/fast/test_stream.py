"""Streams against plain loops in float64, on pictures of any size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fast.programs import Weights, number
from fast.reference import arithmetic, assert_close, convolve
from fast.test_executor import TWO, pictures
from hypothesis import strategies as st
from support.sweeps import sweep

from ngine_ref.fast.enlarge import EnlargedConvolution
from ngine_ref.fast.few_outputs import FewOutputs
from ngine_ref.fast.program import Elementwise, Step
from ngine_ref.fast.stream import MOST_ROWS, Stream, StreamRegion

FORMS = ["enlarge", "middle", "enlarge middle", "middle few", "enlarge middle few"]


def stream_of(form: str, channels: list[int], seed: int) -> Stream:
    """A stream with the steps that `form` names, each with another activation."""
    make = Weights(seed)
    counts = iter(channels)
    inputs = next(counts)
    steps = {}
    for name in form.split():
        outputs = next(counts)
        bias = make.vector(outputs) if make.random.random() < 0.7 else None
        after = {
            "enlarge": (Elementwise("PRelu", (name, number(0.1)), "e"),),
            "middle": (Elementwise("PRelu", (name, make.vector(outputs, 2.0)), "e"),),
            "few": (Elementwise("Sigmoid", (name,), "s"), Elementwise("Mul", ("s", name), "e")),
        }[name]
        steps[name] = Step(("x",), make.filters(outputs, inputs), bias, name, after)
        inputs = outputs
    return Stream(**steps)


def plainly(stream: Stream, images):
    """The stream's result by the book."""
    if stream.enlarge:
        images = images.repeat(2, axis=2).repeat(2, axis=3)
    for step in (stream.enlarge, stream.middle, stream.few):
        if step is not None:
            values = {step.output: convolve(images, step.weight, step.bias)}
            for operation in step.after:
                values[operation.output] = arithmetic(operation, values)
            images = values[list(step.made())[-1]]
    return images


def run(bound, shape, images, helpers=None):
    result = np.full(shape, np.nan, np.float32)
    bound.run([images], [result], helpers)
    return result


@sweep(
    st.sampled_from(FORMS),
    st.integers(1, 3),
    st.integers(1, 70),
    st.integers(1, 70),
    st.lists(st.integers(1, 12), min_size=4, max_size=4),
    st.integers(1, 3),
    examples=60,
)
def test_any_stream_on_any_size(form, batch, height, width, channels, parts):
    stream = stream_of(form, channels, seed=width)
    images = pictures(batch, channels[0], height, width)
    expected = plainly(stream, images)
    bound = StreamRegion(stream).bind(batch, height, width, parts)
    found = run(bound, expected.shape, images)
    assert_close(found, expected)
    np.testing.assert_array_equal(run(bound, expected.shape, images, TWO), found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("height", "width"), [(2, 600), (3 * MOST_ROWS + 1, 9), (2 * MOST_ROWS, 8)])
def test_wide_and_tall_pictures(form, height, width):
    stream = stream_of(form, [3, 4, 5, 2], seed=1)
    images = pictures(1, 3, height, width)
    expected = plainly(stream, images)
    found = run(StreamRegion(stream).bind(1, height, width, 2), expected.shape, images)
    assert_close(found, expected)


def test_runs_at_once_give_the_same_bits():
    stream = stream_of("enlarge middle few", [4, 8, 8, 3], seed=2)
    images = pictures(2, 4, 40, 33)
    bound = StreamRegion(stream).bind(2, 40, 33, 2)
    expected = run(bound, (2, 3, 80, 66), images)
    with ThreadPoolExecutor(4) as threads:
        for result in threads.map(lambda _: run(bound, (2, 3, 80, 66), images, TWO), range(12)):
            np.testing.assert_array_equal(result, expected)


def test_results_may_lie_in_a_larger_buffer():
    stream = stream_of("middle", [3, 4], seed=4)
    images = pictures(2, 3, 9, 11)
    joint = np.full((2, 9, 9, 11), np.nan, np.float32)
    StreamRegion(stream).bind(2, 9, 11).run([images], [joint[:, 5:]])
    assert_close(joint[:, 5:], plainly(stream, images))
    assert np.isnan(joint[:, :5]).all()


def test_an_enlarged_convolution_has_nine_products_a_pixel():
    """Nine matrices of the weights' size, not thirty-six: what is multiplied is what makes it fast."""
    made = EnlargedConvolution(np.ones((4, 6, 3, 3), np.float32), None)
    factors = [made._plain, made._across, made._down, made._corners]
    assert sum(factor.size for factor in factors) == 9 * 4 * 6


def test_few_outputs_reads_taps_the_right_way_round():
    weight = np.zeros((1, 1, 3, 3), np.float32)
    weight[0, 0, 0, 2] = 1.0
    few = FewOutputs(weight, None)
    picture = np.arange(12, dtype=np.float32).reshape(3, 4)
    products = np.zeros((9, 5, 6), np.float32)
    products[:, 1:-1, 1:-1] = weight.reshape(9)[:, None, None] * picture
    np.testing.assert_array_equal(few.add_up(products, 3)[0], convolve(picture[None, None], weight, None)[0, 0])
