"""Damaged model files: whatever the bytes, there is a sentence or a result, soon, and never half a file."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto
from support.image_models import image

import graphopt
from graphopt.model_files import model_io

SECONDS = 20
"""Far more than any of these files may take; only an endless loop reaches it."""


def functions_model() -> ModelProto:
    """A model with a function, a body, a dense block, a Constant and metadata."""
    model = image(
        """y = If (p) <then_branch = t () => (float[1,4,5,5] o) { c = Conv(x,w,b)  l = LeakyRelu(c)  o = my.F(l,k) },
                      else_branch = e () => (float[1,4,5,5] q) { s = Constant<value_float=0.5>()  q = Mul(x,s) }>
        d = Conv(x,w)  a = Concat<axis=1>(x,d)  f = Conv(a,wide)  z = Concat<axis=-3>(x,d,f)""",
        "float[1,4,5,5] y, float[1,12,5,5] z",
        "float[1,4,5,5] x, bool p",
        functions='<domain: "my", opset_import: ["": 17]> F (a, b) => (y) { m = Mul(a,b)  y = Add(m,a) }',
    )
    model.metadata_props.add(key="origin", value="a test")
    return model


@cache
def seeds() -> tuple[bytes, ...]:
    """Files to damage: a plain model, one with everything, and what they become when they are fused."""
    models = [image("c = Conv(x,w,b)  y = LeakyRelu(c)"), functions_model()]
    models += [graphopt.fuse(model).model for model in models]
    return tuple(model.SerializeToString() for model in models)


def damaged(rng: random.Random) -> bytes:
    """One of the files with some bytes changed, taken out, put in, or repeated."""
    data = bytearray(rng.choice(seeds()))
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        place, length = rng.randrange(len(data)), rng.choice([1, 1, 2, 8, 64])
        match rng.randrange(6):
            case 0:
                data[place] = rng.randrange(256)
            case 1:
                data[place] ^= 1 << rng.randrange(8)
            case 2:
                del data[place : place + length]
            case 3:
                data[place:place] = rng.randbytes(length)
            case 4:
                data[place:place] = data[place : place + length]
            case 5:
                other = rng.choice(seeds())
                start = rng.randrange(len(other))
                data[place : place + length] = other[start : start + length]
        if not data:
            return b""
    return bytes(data)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Break off what does not come to an end."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_file(data: bytes, folder: Path) -> bool:
    """Load, fuse, save and unfuse; whether the file was good enough to get through."""
    source, target = folder / "m.onnx", folder / "out.onnx"
    target.unlink(missing_ok=True)
    source.write_bytes(data)
    try:
        with at_most(SECONDS):
            loaded = model_io.load(source)
            result = graphopt.fuse(loaded)
            model_io.save(result.model, target, source=loaded)
            graphopt.unfuse(result.model)
            graphopt.explain(loaded)
    except graphopt.GraphoptError as error:
        sentence = str(error)
    else:
        sentence = ""
    assert "\n" not in sentence
    assert len(sentence) < 2000
    if sentence and not target.exists():
        return False
    assert onnx.ModelProto.FromString(target.read_bytes()) == result.model
    return True


@pytest.mark.parametrize("part", range(4))
def test_damaged_files(part: int, tmp_path: Path) -> None:
    rng = random.Random(part)
    passed = [check_file(damaged(rng), tmp_path) for _ in range(250)]
    assert any(passed)
    assert not all(passed)


@pytest.mark.long
def test_very_many_damaged_files(tmp_path: Path) -> None:
    rng = random.Random(2024)
    assert sum(check_file(damaged(rng), tmp_path) for _ in range(50_000)) > 0


@pytest.mark.parametrize("place", range(4))
def test_every_file_cut_anywhere(place: int, tmp_path: Path) -> None:
    data = seeds()[place]
    for length in range(0, len(data), 7):
        check_file(data[:length], tmp_path)


def test_a_whole_file_passes(tmp_path: Path) -> None:
    assert all(check_file(data, tmp_path) for data in seeds())
