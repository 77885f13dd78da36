"""Writing a model with the options of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onnx import ModelProto

    from graphopt.model_files.model_io import LoadedModel


@dataclass(frozen=True, slots=True)
class Weights:
    """What happens to the weights, see `model_io.save`."""

    external: bool
    threshold: int
    link: bool


def check_report(report: Path, models: Iterable[LoadedModel], output: str | None = None) -> None:
    """Refuse to write a report where that cannot be done, or over a model or its weights.

    Raises:
        SaveError: it must go elsewhere.
    """
    import os

    from graphopt.errors import SaveError
    from graphopt.model_files.atomic_files import check_destination
    from graphopt.model_files.external_data import DataFolder

    path = check_destination(report)
    taken = {os.path.realpath(name) for name in ([output, f"{output}.data"] if output is not None else [])}
    for model in models:
        if model.path is not None:
            folder = DataFolder(model.path)
            taken |= {os.path.realpath(model.path), *(os.fspath(folder.file(name)) for name in model.data_files)}
    if os.fspath(path) in taken:
        raise SaveError(f"{report} is the model's own file; choose another name for the report.")


def save(model: ModelProto, target: str, source: LoadedModel, weights: Weights, *, quiet: bool) -> None:
    """Write a model, with a progress bar on stderr while much is copied."""
    from graphopt.model_files import model_io
    from graphopt.model_files.weights_progress import weights_progress
    from graphopt.report import console

    with weights_progress(console(stderr=True, quiet=quiet)) as on_progress:
        model_io.save(
            model,
            target,
            source=source,
            save_as_external_data=weights.external,
            external_data_threshold=weights.threshold,
            link_weights=weights.link,
            on_progress=on_progress,
        )
