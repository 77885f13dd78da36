"""The content of a model's tensors as arrays, external data included: only what is asked for, and only from where a
model may have its data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from graphopt.errors import ModelError
from graphopt.model_files.external_data import DataFolder, read_place

Array = np.ndarray[Any, np.dtype[Any]]


class TensorReader:
    """Reads tensors of one checked model."""

    def __init__(self, model_path: Path | None, name: str) -> None:
        self._folder = DataFolder(model_path) if model_path is not None else None
        self._name = name

    def can_read(self, tensor: TensorProto) -> bool:
        """Whether the content can be had: external data of a model in memory has no folder to lie in."""
        return tensor.data_location != TensorProto.EXTERNAL or self._folder is not None

    def array(self, tensor: TensorProto) -> Array:
        """The content of a tensor.

        Args:
            tensor: it has passed `model_checks.check_model`, and `can_read` holds.

        Raises:
            ModelError: its data file is not there, is too short, or lies outside the model's folder.
        """
        if tensor.data_location != TensorProto.EXTERNAL:
            return numpy_helper.to_array(tensor)
        title = f"{self._name}: {tensor.name!r}"
        if self._folder is None:
            raise ModelError(f"{title} has external data, and the model came from memory, not from a folder.")
        place = read_place(tensor, title)
        size = self._folder.size(place.location, self._name)
        with open(self._folder.file(place.location), "rb") as file:
            file.seek(place.offset, os.SEEK_SET)
            data = file.read(place.length)
        if len(data) != place.length:
            raise ModelError(
                f"{title} ends at byte {place.offset + place.length} of {place.location!r}, which has only {size}."
            )
        return numpy_helper.to_array(TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=data))
