"""Loading and saving models. Only the graph is ever loaded: external weights stay where they are.

What is loaded has been checked, so that everything after may rely on it, and what is saved appears complete or not at
all.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto, TensorProto

from graphopt import demo_models
from graphopt.errors import ModelError, SaveError
from graphopt.graph.graph_reader import GraphReader
from graphopt.graph.model_walk import iterate_tensors
from graphopt.model_files import DEFAULT_THRESHOLD
from graphopt.model_files.atomic_files import NewFiles, check_destination
from graphopt.model_files.data_files import DataFile, Progress, bring, files_to_bring, pack
from graphopt.model_files.external_data import DataFolder, check_external_data, read_place
from graphopt.model_files.model_checks import TOO_DEEP, check_model
from graphopt.model_files.tensor_size import tensor_size
from graphopt.model_files.wrong_files import describe_wrong_file

DEMO_PREFIX = "demo:"
STANDARD_OUTPUT = "-"
_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that passed the checks, and where it came from."""

    model: ModelProto
    """The graph and the weights that the file itself holds; the data of external ones was not read."""
    path: Path | None
    """The file; None for a model from memory or a demo model."""
    name: str
    """What messages call it."""
    data_files: tuple[str, ...] = ()
    """The files with external data, as the model names them: relative to its folder."""
    reader: GraphReader = field(default_factory=GraphReader, repr=False, compare=False)
    """What was read of the graphs already; see `GraphReader.forget`."""


Model = str | os.PathLike[str] | ModelProto | LoadedModel
"""What a model may be given as: a path, `demo:NAME`, a model in memory, or one that is loaded already."""


def load(source: str | os.PathLike[str] | ModelProto) -> LoadedModel:
    """Load and check a model.

    Args:
        source: a file's path, `demo:NAME`, or a model in memory, which is kept as it is and not copied.

    Raises:
        ModelError: the file cannot be read, is not ONNX, or breaks a rule of ONNX.
        UsageError: there is no demo model of that name.
    """
    if isinstance(source, ModelProto):
        return _checked(source, None, source.graph.name or "the model")
    name = os.fspath(source)
    if name.startswith(DEMO_PREFIX):
        return LoadedModel(demo_models.build(name.removeprefix(DEMO_PREFIX)), None, name)
    return _checked(_parse(_read(name), name), Path(name), name)


def _checked(model: ModelProto, path: Path | None, name: str) -> LoadedModel:
    reader = GraphReader()
    external = check_model(model, name, reader)
    return LoadedModel(model, path, name, tuple(check_external_data(external, path, name)), reader)


def _read(name: str) -> bytes:
    if not name or "\0" in name:
        raise ModelError(f"{name!r} is no file name; name a model file, or a demo model as demo:NAME.")
    try:
        status = os.stat(name)
        if stat.S_ISDIR(status.st_mode):
            raise ModelError(f"{name} is a folder; name a model file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{name} is not a plain file; save the model to a file first.")
        if status.st_size > _LIMIT:
            raise ModelError(
                f"{name} has {status.st_size / 2**30:.1f} GiB, and an ONNX file ends at 2; "
                "its weights must be stored as external data."
            )
        with open(name, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        raise ModelError(f"{name}: there is no such file.") from error
    except OSError as error:
        raise ModelError(f"{name}: cannot be read: {error.strerror}.") from error


def _parse(data: bytes, name: str) -> ModelProto:
    model = ModelProto()
    problem = describe_wrong_file(data)
    if problem:
        raise ModelError(f"{name} {problem}.")
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        if "depth" in str(error).lower():
            raise ModelError(f"{name}: {TOO_DEEP}") from error
        raise ModelError(
            f"{name} cannot be read as ONNX: it is cut short, damaged, or another kind of file; get it again."
        ) from error
    return model


@dataclass(frozen=True, slots=True)
class _Plan:
    """What saving will do; made without writing anything."""

    output: Path | None
    """None is standard output."""
    pack_into: Path | None
    bring: tuple[DataFile, ...] = ()


def check_save(
    model: ModelProto,
    output: str | os.PathLike[str],
    *,
    source: LoadedModel | None = None,
    save_as_external_data: bool = False,
) -> None:
    """Everything that can be known before the work starts about whether a result can be saved; nothing is written.

    Args: as of `save`; `model` may be the model before it is rewritten.

    Raises:
        SaveError: it cannot be saved there, or not without external data.
        ModelError: a data file that should come along is not there.
    """
    try:
        _plan(model, output, source, save_as_external_data)
    except OSError as error:
        raise _unwritable(output, error) from error


def save(
    model: ModelProto,
    output: str | os.PathLike[str],
    *,
    source: LoadedModel | None = None,
    save_as_external_data: bool = False,
    external_data_threshold: int = DEFAULT_THRESHOLD,
    link_weights: bool = False,
    on_progress: Progress | None = None,
) -> None:
    """Write a model, its external weights included, so that it appears complete or not at all.

    Saved into the folder it was loaded from, a model goes on using the same data files. Saved elsewhere, it takes them
    along. No data file is ever overwritten, but for the one that an older `output` had for itself alone.

    Args:
        model: what to write; it is not changed.
        output: the file, or "-" for standard output, where external data stays where it is.
        source: what `model` was made from; without it, external data is expected beside `output` already.
        save_as_external_data: put the weights into one data file, named as `output` with `.data` behind.
        external_data_threshold: the bytes from which an initializer goes there; what is external already goes in any
            case.
        link_weights: take data files along as hard links, which needs no room and no time. onnxruntime reads them;
            `onnx.load` refuses data with several links, of this model and of its source.
        on_progress: called with the bytes of weights written and to write, as they are copied.

    Raises:
        SaveError: it cannot be written; everything is as it was before.
        ModelError: a data file is not there.
    """
    try:
        plan = _plan(model, output, source, save_as_external_data)
        if plan.output is None:
            _write_standard_output(_serialized(model, "standard output"))
            return
        with NewFiles() as files:
            bring(plan.bring, files, link=link_weights, on_progress=on_progress)
            if plan.pack_into is not None:
                model = pack(
                    model,
                    source.path if source else None,
                    plan.pack_into,
                    files,
                    threshold=external_data_threshold,
                    on_progress=on_progress,
                )
            files.open(plan.output).write(_serialized(model, plan.output.name))
            files.commit()
    except OSError as error:
        raise _unwritable(output, error) from error


def _unwritable(output: str | os.PathLike[str], error: OSError) -> SaveError:
    return SaveError(f"{os.fspath(output)}: cannot be written: {error.strerror or error}.")


def _plan(
    model: ModelProto, output: str | os.PathLike[str], source: LoadedModel | None, save_as_external_data: bool
) -> _Plan:
    if os.fspath(output) == STANDARD_OUTPUT:
        if save_as_external_data:
            raise SaveError("Standard output has no room for a data file; name an output file for external data.")
        _check_from_memory(model, source, STANDARD_OUTPUT, None)
        return _Plan(None, None)
    path = check_destination(output)
    source_path = source.path if source else None
    locations = source.data_files if source else ()
    if source_path and path in {DataFolder(source_path).file(location) for location in locations}:
        raise SaveError(f"{path} holds the weights of {source_path}; choose another name for the output.")
    if save_as_external_data:
        data_file = path.with_name(path.name + ".data")
        _check_data_file(data_file, path, source)
        return _Plan(path, data_file)
    _check_from_memory(model, source, path.name, path)
    return _Plan(path, None, tuple(files_to_bring(locations, source_path, path)) if source_path else ())


def _check_from_memory(model: ModelProto, source: LoadedModel | None, name: str, output: Path | None) -> None:
    """What is known already of a model from a file: it is small enough, and its data files are there."""
    if source is not None and source.path is not None:
        return
    folder = DataFolder(output) if output is not None else None
    total = 0
    for tensor in iterate_tensors(model):
        if tensor.data_location != TensorProto.EXTERNAL:
            size = tensor_size(tensor.data_type, tuple(tensor.dims))
            total += size.bytes if size else 0
        elif folder is not None:
            folder.size(read_place(tensor, f"{name}: {tensor.name!r}").location, name)
    if total > _LIMIT:
        raise _too_large(name, total)


def _too_large(name: str, size: int | None = None) -> SaveError:
    amount = f"{size / 2**30:.1f} GiB of weights" if size else "more than 2 GiB"
    return SaveError(
        f"{name}: the model has {amount}, and an ONNX file ends at 2 GiB; save its weights as external data."
    )


def _check_data_file(data_file: Path, output: Path, source: LoadedModel | None) -> None:
    """Refuse to overwrite a data file, unless it belongs to the model that is being overwritten."""
    check_destination(data_file)
    if not data_file.exists():
        return
    needed_by_source = False
    if source is not None and source.path is not None and os.path.realpath(source.path) != os.fspath(output):
        needed_by_source = any(
            os.path.samefile(source.path.parent / location, data_file) for location in source.data_files
        )
    if needed_by_source or data_file.name not in _data_files_of(output):
        raise SaveError(f"{data_file} exists and belongs to another model; choose another name for the output.")


def _data_files_of(path: Path) -> set[str]:
    """The data files that a model file names; none where it is not there or no model."""
    try:
        model = _parse(_read(os.fspath(path)), path.name)
        external = [tensor for tensor in iterate_tensors(model) if tensor.data_location == TensorProto.EXTERNAL]
        return {read_place(tensor, path.name).location for tensor in external}
    except ModelError:
        return set()


def _serialized(model: ModelProto, name: str) -> bytes:
    try:
        data: bytes = model.SerializeToString()
    except EncodeError as error:
        raise _too_large(name) from error
    return data


def _write_standard_output(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Whoever read it has gone. What is still buffered goes nowhere: else Python complains of it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
