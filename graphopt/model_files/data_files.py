"""Moving weights that lie outside the model file: along with a model that is saved elsewhere, or into one new file.

Bytes are streamed in pieces, so that a model larger than memory can be moved, and holes of sparse files stay holes.
"""

from __future__ import annotations

import errno
import filecmp
import os
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from onnx import GraphProto, ModelProto, TensorProto

from graphopt.errors import SaveError
from graphopt.graph.model_walk import iterate_places, tensors_of
from graphopt.model_files.atomic_files import NewFiles
from graphopt.model_files.external_data import DataFolder, ExternalData, read_place
from graphopt.model_files.tensor_size import tensor_size
from graphopt.proof.tensor_identity import tensor_bytes

Progress = Callable[[int, int], None]
"""Called with the bytes written so far and the bytes to write in all."""

_PIECE = 8 << 20
_PAGE = 4096
_LARGE = 1 << 20
_SMALL_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that has to come along with a model saved to another folder."""

    location: str
    source: Path
    target: Path
    size: int


def files_to_bring(locations: Sequence[str], source: Path, output: Path) -> list[DataFile]:
    """The data files that are missing beside `output`; none where it stands in the folder of `source`.

    Raises:
        ModelError: a data file is not there.
        SaveError: another file has its place.
    """
    if os.path.samefile(source.parent, output.parent):
        return []
    folder = DataFolder(source)
    found = []
    for location in locations:
        size = folder.size(location, source.name)
        file = DataFile(location, folder.file(location), output.parent / location, size)
        if not _is_there(file, output):
            found.append(file)
    return found


def _is_there(file: DataFile, output: Path) -> bool:
    target = file.target
    if target == output:
        raise SaveError(f"{output} has the name of the model's own data file; choose another name for the output.")
    if not Path(os.path.realpath(target)).is_relative_to(output.parent):
        raise SaveError(f"{target} is a link that leaves the folder of {output.name}; the weights cannot be put there.")
    if not os.path.lexists(target):
        return False
    if target.is_file() and filecmp.cmp(file.source, target, shallow=False):
        return True
    raise SaveError(
        f"{target} exists and is not the data file {file.location!r} of the model; "
        "remove it, or save to another folder or with external data of its own."
    )


def bring(data_files: Sequence[DataFile], files: NewFiles, *, link: bool, on_progress: Progress | None) -> None:
    """Copy data files to the folder of the output, or hard-link them, keeping sub-folders.

    Raises:
        SaveError: a link was asked for and cannot be made.
    """
    total = sum(file.size for file in data_files)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(done, total)

    for file in data_files:
        files.make_folder(file.target.parent)
        if not link:
            with open(file.source, "rb", buffering=0) as source:
                _copy(source, 0, file.size, files.open(file.target), advance)
            continue
        try:
            files.link(file.source, file.target)
        except OSError as error:
            raise SaveError(
                f"{file.target} cannot be hard-linked to {file.source}: {error.strerror}; "
                "without linking, the weights are copied."
            ) from error
        advance(file.size)


def pack(
    model: ModelProto,
    source: Path | None,
    data_file: Path,
    files: NewFiles,
    *,
    threshold: int,
    on_progress: Progress | None,
) -> ModelProto:
    """Write the weights into one data file; returns a copy of the model that refers to it.

    Initializers of at least `threshold` bytes go there, and all that was external before, wherever it stands. Tensors
    that shared their bytes still do.
    """
    packed = deepcopy(model)
    folder = DataFolder(source) if source is not None else None
    moving = list(_moving_tensors(packed, threshold))
    total = sum(size for _, size in moving)
    done = 0
    target = files.open(data_file)
    shared: dict[tuple[str, int, int], int] = {}

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(done, total)

    for tensor, size in moving:
        if tensor.data_location == TensorProto.EXTERNAL:
            place = read_place(tensor, data_file.name)
            key = (place.location, place.offset, place.length)
            if key in shared:
                advance(size)
            else:
                shared[key] = _next_offset(target, size)
                _copy_external(place, folder, target, shared[key], advance)
            offset = shared[key]
        else:
            offset = _next_offset(target, size)
            target.seek(offset)
            target.write(tensor_bytes(tensor))
            advance(size)
        _refer(tensor, data_file.name, offset, size)
    return packed


def _moving_tensors(model: ModelProto, threshold: int) -> Iterator[tuple[TensorProto, int]]:
    for place in iterate_places(model):
        initializers = len(place.graph.initializer) if isinstance(place.graph, GraphProto) else 0
        for index, (tensor, _) in enumerate(tensors_of(place)):  # which begins with the initializers
            size = tensor_size(tensor.data_type, tuple(tensor.dims))
            if size is None or size.field == "string_data":
                continue
            if tensor.data_location == TensorProto.EXTERNAL or (index < initializers and size.bytes >= threshold):
                yield tensor, size.bytes


def _next_offset(target: BinaryIO, size: int) -> int:
    # Runtimes map large tensors straight from the file, which needs whole pages.
    alignment = _PAGE if size >= _LARGE else _SMALL_ALIGNMENT
    return -(-target.seek(0, os.SEEK_END) // alignment) * alignment


def _copy_external(
    place: ExternalData, folder: DataFolder | None, target: BinaryIO, at: int, advance: Callable[[int], None]
) -> None:
    if folder is None:
        raise SaveError(
            f"The weights in {place.location!r} cannot be packed: the model came from memory, not from a folder."
        )
    with open(folder.file(place.location), "rb", buffering=0) as source:
        _copy(source, place.offset, place.length, target, advance, at)


def _refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data"):
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def _copy(
    source: BinaryIO, start: int, length: int, target: BinaryIO, advance: Callable[[int], None], at: int = 0
) -> None:
    """Copy `length` bytes from `start` of one file to `at` of another; what is a hole stays one."""
    buffer = memoryview(bytearray(min(_PIECE, max(length, 1))))
    end, position = start + length, start
    for begin, stop in _stretches(source.fileno(), start, end):
        advance(begin - position)
        position = begin
        source.seek(begin)
        target.seek(at + begin - start)
        while position < stop:
            count = source.readinto(buffer[: stop - position])  # type: ignore[attr-defined]  # a raw file has it
            if not count:
                raise SaveError(f"{source.name} became shorter while it was copied.")
            target.write(buffer[:count])
            position += count
            advance(count)
    advance(end - position)
    if target.seek(0, os.SEEK_END) < at + length:
        target.truncate(at + length)


def _stretches(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts between two offsets that hold data; the rest is zeros that take no room on the disk."""
    if not hasattr(os, "SEEK_DATA"):
        yield start, end
        return
    while start < end:
        try:
            begin = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the file's end
                return
            raise
        start = min(end, os.lseek(descriptor, begin, os.SEEK_HOLE))
        if begin < end:
            yield begin, start
