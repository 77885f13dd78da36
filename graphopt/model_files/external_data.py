"""Weights outside the model file: where they lie, and whether they may lie there. Their bytes are never read here.

ONNX stores the place as text in the model: a path relative to the model's folder, an offset and a length. A model
from elsewhere must not be able to name any other file there is, so the path may not leave that folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from onnx import TensorProto

from graphopt.errors import ModelError
from graphopt.model_files.tensor_size import tensor_size


@dataclass(frozen=True, slots=True)
class ExternalData:
    """Where the bytes of one tensor lie."""

    tensor: TensorProto
    location: str
    """The path as the model has it, relative to the model's folder."""
    offset: int
    length: int
    """Bytes that the tensor's element type and dims need, which is what the model states, where it states it."""


def read_place(tensor: TensorProto, title: str) -> ExternalData:
    """Where an external tensor lies, as the model states it.

    Args:
        tensor: it has passed `model_checks.check_model`, and its data is external.
        title: what messages call it, file name included.

    Raises:
        ModelError: the place is not stated, or leaves the model's folder.
    """
    entries = [(entry.key, entry.value) for entry in tensor.external_data]
    place = dict(entries)
    if len(place) != len(entries):
        raise ModelError(f"{title} states its external data twice over; the file is damaged.")
    location = place.get("location", "")
    if not isinstance(location, str) or not location or "\0" in location:
        raise ModelError(f"{title} is external data without a usable file name; the file is damaged.")
    # Read as Windows reads it, a path shows both kinds of separators, drives and shares.
    path = PureWindowsPath(location)
    if path.drive or path.root or ".." in path.parts:
        raise ModelError(
            f"{title} has its data in {location!r}, outside the model's folder, which is not allowed; "
            "put the data file beside the model."
        )
    size = tensor_size(tensor.data_type, tuple(tensor.dims))
    needed = size.bytes if size else 0
    length = _number(place, "length", needed, title)
    if length != needed:
        raise ModelError(
            f"{title} has {length} bytes of external data, and its type and dims need {needed}; "
            "the model does not fit its data file."
        )
    return ExternalData(tensor, location, _number(place, "offset", 0, title), needed)


def _number(place: dict[str, str], key: str, default: int, title: str) -> int:
    text = place.get(key)
    if text is None:
        return default
    # int() would also take signs, blanks, underscores and the digits of other scripts.
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"{title} has the {key} {text!r} for its external data; it must be a number of bytes.")
    return int(text)


class DataFolder:
    """The folder that holds a model's data files; each file is looked up once, however many tensors lie in it."""

    def __init__(self, model_path: Path) -> None:
        self.path = model_path.parent
        # A model that is a symbolic link may have its data beside the file it points to, as download caches do.
        self._roots = {Path(os.path.realpath(self.path)), Path(os.path.realpath(model_path)).parent}
        self._sizes: dict[str, int] = {}

    def file(self, location: str) -> Path:
        """The path of a data file, links resolved."""
        return Path(os.path.realpath(self.path / location))

    def size(self, location: str, name: str) -> int:
        """The bytes of a data file.

        Raises:
            ModelError: it is not there, not a plain file, or a link that leaves the folder.
        """
        if location not in self._sizes:
            self._sizes[location] = self._look_up(location, name)
        return self._sizes[location]

    def _look_up(self, location: str, name: str) -> int:
        file = self.file(location)
        if not any(file.is_relative_to(root) for root in self._roots):
            raise ModelError(
                f"{name}: the data file {location!r} is a link that leaves the model's folder, which is not allowed; "
                "put the file itself beside the model."
            )
        try:
            status = os.stat(file)
        except OSError as error:
            hint = "; ONNX separates folders by '/', not by '\\'" if "\\" in location else ""
            raise ModelError(
                f"{name}: the data file {location!r} cannot be found in {self.path}: {error.strerror}{hint}."
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{name}: the data file {location!r} is not a plain file.")
        return status.st_size


def check_external_data(tensors: Iterable[tuple[TensorProto, str]], model_path: Path | None, name: str) -> list[str]:
    """Refuse external data that is not there, does not fit, or lies outside the model's folder. Only sizes are read.

    Args:
        tensors: the external tensors, each with what messages call it.
        model_path: where the model was loaded from; None for a model in memory, of which only the text is checked.
        name: what messages call the model.

    Returns:
        The data files, each once, as the model names them.

    Raises:
        ModelError: naming the tensor and the file.
    """
    folder = DataFolder(model_path) if model_path is not None else None
    locations: dict[str, None] = {}
    for tensor, title in tensors:
        data = read_place(tensor, f"{name}: {title}")
        locations[data.location] = None
        if folder is None:
            continue
        size = folder.size(data.location, name)
        if data.offset + data.length > size:
            raise ModelError(
                f"{name}: {title} lies at bytes {data.offset} to {data.offset + data.length} of the data file "
                f"{data.location!r}, which has {size}; the file may be cut, or belong to another model."
            )
    return list(locations)
