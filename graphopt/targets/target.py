"""What an engine's kernels take: operators, element types, ranks, attributes. Read from TOML; nothing in it runs."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from graphopt.errors import UsageError
from graphopt.rule_files.rule_set import shipped_folder

SUFFIX = ".toml"
SLOPES = ("one", "channel", "any")
"""The shapes of a PRelu slope: one element, one a channel, anything that ONNX broadcasts."""


@dataclass(frozen=True, slots=True)
class OperatorLimits:
    """What the kernel of one operator takes. What is not given is not limited."""

    dtypes: tuple[str, ...] | None = None
    """Element types of what is computed at run time, by NumPy's names."""
    ranks: tuple[int, ...] | None = None
    """Ranks of the first input."""
    groups: bool = True
    """Whether a convolution may have groups."""
    dilations: bool = True
    """Whether a window may be dilated."""
    slopes: tuple[str, ...] | None = None
    """Shapes of a PRelu slope, of `SLOPES`."""
    producers: tuple[str, ...] | None = None
    """The producers that a ConcatFusedTail may have."""
    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The values that an attribute may have."""
    outputs: int | None = None
    """How many outputs there may be."""
    tolerance: float | None = None
    """How far its result may be from the exact one."""
    differs: str = ""
    """How its result differs from what ONNX defines."""


@dataclass(frozen=True, slots=True)
class Target:
    """An engine."""

    name: str
    description: str
    opsets: tuple[int, int] | None
    """The oldest and the newest opset it takes."""
    operators: Mapping[str, OperatorLimits]
    """By operator name, ONNX's own and fused ones."""


def shipped_targets() -> list[str]:
    """The names of the shipped targets."""
    return sorted(path.stem for path in (shipped_folder() / "targets").glob(f"*{SUFFIX}"))


def load_target(target: str | os.PathLike[str]) -> Target:
    """Read a target.

    Args:
        target: a shipped target's name, or a file.

    Raises:
        UsageError: there is no such target, or the file is not one; the message names the file and the key.
    """
    path = Path(target)
    if isinstance(target, str) and target in shipped_targets():
        path = shipped_folder() / "targets" / f"{target}{SUFFIX}"
    if not path.is_file():
        raise UsageError(
            f"There is no target or file {str(target)!r}; the shipped targets are {', '.join(shipped_targets())}."
        )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: The file is not TOML: {error}.") from None
    except OSError as error:
        raise UsageError(f"{path}: The file cannot be read: {error.strerror}.") from None
    return _target(content, path)


def _target(content: Mapping[str, Any], path: Path) -> Target:
    known = {"name", "description", "opsets", "defaults", "operators"}
    unknown = sorted(set(content) - known)
    if unknown:
        raise UsageError(f"{path}: There is no key {unknown[0]!r}; a target has {', '.join(sorted(known))}.")
    operators = content.get("operators", {})
    if not isinstance(operators, dict) or not operators:
        raise UsageError(f"{path}: A target lists its operators, a table [operators.NAME] for each.")
    opsets = content.get("opsets")
    if opsets is not None and (not isinstance(opsets, list) or [type(o) for o in opsets] != [int, int]):
        raise UsageError(f"{path}: `opsets` is a pair, the oldest and the newest: opsets = [7, 21].")
    defaults = content.get("defaults", {})
    return Target(
        name=str(content.get("name", path.stem)),
        description=str(content.get("description", "")),
        opsets=(opsets[0], opsets[1]) if opsets is not None else None,
        operators={
            name: _limits({**defaults, **table}, f"{path}: operators.{name}") for name, table in operators.items()
        },
    )


_LISTS = {"dtypes": str, "ranks": int, "slopes": str, "producers": str}
_VALUES = {"groups": bool, "dilations": bool, "outputs": int, "tolerance": float, "differs": str}


def _limits(table: Mapping[str, Any], where: str) -> OperatorLimits:
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in _LISTS:
            if not _is_list_of(value, _LISTS[key]):
                raise UsageError(f"{where}.{key} is a list of {_LISTS[key].__name__} values, not {value!r}.")
            values[key] = tuple(value)
        elif key in _VALUES:
            if not isinstance(value, _VALUES[key]):
                raise UsageError(f"{where}.{key} is a {_VALUES[key].__name__}, not {value!r}.")
            values[key] = value
        elif key == "attributes":
            if not isinstance(value, dict) or not all(isinstance(allowed, list) for allowed in value.values()):
                raise UsageError(f"{where}.attributes lists the allowed values of each attribute.")
            values[key] = {name: tuple(allowed) for name, allowed in value.items()}
        else:
            names = ", ".join(entry.name for entry in fields(OperatorLimits))
            raise UsageError(f"{where}: There is no key {key!r}; an operator has {names}.")
    if not set(values.get("slopes", ())) <= set(SLOPES):
        raise UsageError(f"{where}.slopes lists some of {', '.join(SLOPES)}, not {values['slopes']}.")
    return OperatorLimits(**values)


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(type(item) is kind for item in value)
