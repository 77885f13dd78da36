"""Writing a model with the options of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto

    from graphopt.model_files.model_io import LoadedModel


@dataclass(frozen=True, slots=True)
class Weights:
    """What happens to the weights, see `model_io.save`."""

    external: bool
    threshold: int
    link: bool


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
