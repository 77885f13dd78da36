"""The cases in tests/cases: counts, results, and clean refusals. Their README says what the files mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from support.command_line import graphopt_command
from support.soundness import check_fusing

import graphopt
import ngine_ref
from graphopt.model_files import model_io

FOLDER = Path(__file__).parent / "cases"
CASES = {path.name: json.loads((path / "case.json").read_text()) for path in sorted(FOLDER.iterdir()) if path.is_dir()}
FUSED = [name for name, case in CASES.items() if "tolerance" in case]
REFUSED = [name for name, case in CASES.items() if "refused" in case]
NOT_RUN = [name for name, case in CASES.items() if "not_run" in case]

Arrays = dict[str, Any]


@pytest.mark.parametrize("rules", ["ngine", "extended"])
@pytest.mark.parametrize("name", FUSED)
def test_what_is_fused(name: str, rules: str) -> None:
    case = CASES[name]
    model = onnx.load(FOLDER / name / "model.onnx")
    applied = check_fusing(model, rules=rules, cleanups=()).report.counts
    assert graphopt.fuse(model, rules=rules).report.counts == applied, "cleanups take no fusion away"
    for rule, count in applied.items():
        if "fused" in case:
            assert count == case["fused"].get(rule, 0), rule
        elif rule in case["fused_at_most"] or rules == "ngine":
            assert count <= case["fused_at_most"].get(rule, 0), rule


@pytest.mark.parametrize("name", FUSED)
def test_what_comes_out(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    source = FOLDER / name / "model.onnx"
    fused = tmp_path / "elsewhere.onnx"
    loaded = model_io.load(source)
    model_io.save(graphopt.fuse(loaded).model, fused, source=loaded)
    runs = sorted((FOLDER / name).glob("run_*.npz"))
    assert runs
    for path in runs:
        feeds, expected = arrays(path)
        if case.get("onnxruntime", True):
            for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
                assert_close(in_onnxruntime(fused, feeds, level), expected, case["tolerance"])
        for model in (source, fused):
            try:
                outputs = in_ngine_ref(model, feeds)
            except ngine_ref.NgineError:
                assert case.get("may_refuse_to_run", False)
            else:
                assert_close(outputs, expected, case["tolerance"])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    done = graphopt_command("fuse", FOLDER / name / "model.onnx", output)
    assert done.returncode == 2
    assert done.stdout == b""
    (sentence,) = done.stderr.decode().splitlines()
    assert CASES[name]["refused"] in sentence
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ngine_ref.NgineError):
        ngine_ref.InferenceSession(FOLDER / name / "model.onnx")


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_cannot_be_run(name: str) -> None:
    model = onnx.load(FOLDER / name / "model.onnx")
    fused = check_fusing(model).model
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    for either in (model, fused):
        with pytest.raises(ngine_ref.NgineError, match=CASES[name]["not_run"]):
            ngine_ref.InferenceSession(either).run(None, {model.graph.input[0].name: np.ones(shape, np.float32)})


def arrays(path: Path) -> tuple[Arrays, Arrays]:
    """What to feed, and what must come out."""
    with np.load(path) as stored:
        found = {name: stored[name] for name in stored.files}
    return (
        {name.removeprefix("in/"): value for name, value in found.items() if name.startswith("in/")},
        {name.removeprefix("out/"): value for name, value in found.items() if name.startswith("out/")},
    )


def in_onnxruntime(path: Path, feeds: Arrays, level: str) -> Arrays:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, feeds), strict=True))


def in_ngine_ref(path: Path, feeds: Arrays) -> Arrays:
    session = ngine_ref.InferenceSession(path)
    return dict(zip([value.name for value in session.get_outputs()], session.run(None, feeds), strict=True))


def assert_close(outputs: Arrays, expected: Arrays, tolerance: list[float]) -> None:
    rtol, atol = tolerance
    assert outputs.keys() == expected.keys()
    for name, wanted in expected.items():
        got = outputs[name]
        assert got.shape == wanted.shape, name
        assert got.dtype.itemsize == wanted.dtype.itemsize, name
        if got.dtype.kind in "fiub":
            assert got.dtype == wanted.dtype, name
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, err_msg=name)
        else:  # types that NumPy files do not hold: bit by bit
            bits = f"u{got.dtype.itemsize}"
            np.testing.assert_array_equal(got.view(bits), wanted.view(bits), err_msg=name)
