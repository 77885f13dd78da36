"""Sets of rules: where they are found, that they fit together, and the order they run in."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx

from graphopt.cleanups.names import CLEANUPS, known_cleanups
from graphopt.errors import RuleError, UsageError
from graphopt.rule import PatternNode, Rule
from graphopt.rule_files import DEFAULT_SET
from graphopt.rule_files.rule_loader import load_rule_texts

SUFFIX = ".onnxtxt"
SET_FILE = "set.toml"
"""In a folder of rules, what the set takes from other sets, and the cleanups it turns on."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules that are used together, grouped by fused operator, in the order they run in."""

    groups: tuple[tuple[Rule, ...], ...]
    digest: str
    """A SHA-256 of the rules' texts: which rules made a model."""
    cleanups: tuple[str, ...] = ()
    """The cleanups that run with them unless somebody says otherwise."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, in the order they run in."""
        return tuple(rule for group in self.groups for rule in group)

    @property
    def domains(self) -> frozenset[str]:
        """The domains of the fused operators."""
        return frozenset(rule.domain for rule in self.rules)

    @property
    def operators(self) -> tuple[str, ...]:
        """The names of the fused operators, in the order they are made."""
        return tuple(group[0].op_type for group in self.groups)


def load_rules(
    rules: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = DEFAULT_SET, *, skip: Iterable[str] = ()
) -> RuleSet:
    """Read rules.

    Args:
        rules: a shipped set's name, a file, a folder, or several of these.
        skip: fused operators (one, or several) to leave out, with whatever is built on them.

    Raises:
        RuleError: a rule is wrong; the message begins with file and line.
        UsageError: there is no such set, file, folder or rule.
    """
    places = [rules] if isinstance(rules, str | os.PathLike) else list(rules)
    paths = list(dict.fromkeys(path for place in places for path in _files(place)))
    texts = [(path, _read(path)) for path in paths]
    loaded = load_rule_texts((text, str(path)) for path, text in texts)
    digest = hashlib.sha256("\0".join(text for _, text in texts).encode()).hexdigest()
    _check_unique(loaded)
    _check_mentions(loaded)
    cleanups = known_cleanups(name for place in places for name in _cleanups(place))
    return RuleSet(_ordered(_without(loaded, {skip} if isinstance(skip, str) else set(skip))), digest, cleanups)


def shipped_folder() -> Path:
    """The folder of the shipped sets: inside an installed package, or at the top of the repository."""
    package = Path(__file__).parents[1]
    inside = package / "rules"
    return inside if inside.is_dir() else package.parent / "rules"


def shipped_sets() -> list[str]:
    """The names of the shipped sets."""
    return sorted(entry.name for entry in shipped_folder().iterdir() if any(entry.glob(f"*{SUFFIX}")))


def _place(place: str | os.PathLike[str]) -> Path:
    return shipped_folder() / place if isinstance(place, str) and place in shipped_sets() else Path(place)


def _files(place: str | os.PathLike[str]) -> list[Path]:
    """The rule files of a set, a folder or a file, those of the sets it includes first."""
    path = _place(place)
    if path.is_dir():
        found = sorted(path.glob(f"*{SUFFIX}"))
        if not found:
            raise UsageError(f"The folder {path} has no rule file in it; a rule file's name ends in {SUFFIX}.")
        return [*(file for name in _includes(path / SET_FILE) for file in _files(name)), *found]
    if path.is_file():
        return [path]
    sets = ", ".join(shipped_sets())
    raise UsageError(f"There is no rule set, file or folder {str(place)!r}; the shipped sets are {sets}.")


def _settings(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{path}:1: The file is not TOML: {error}.") from None


def _cleanups(place: str | os.PathLike[str]) -> list[str]:
    """The cleanups that a set, or one it includes, turns on."""
    path = _place(place) / SET_FILE
    names = _settings(path).get("cleanups", [])
    if not isinstance(names, list) or not all(name in CLEANUPS for name in names):
        raise RuleError(f"{path}:1: `cleanups` must list cleanups, of {', '.join(CLEANUPS)}.")
    return [*names, *(name for included in _includes(path) for name in _cleanups(included))]


def _includes(path: Path) -> list[str]:
    names = _settings(path).get("includes", [])
    if not isinstance(names, list) or not all(name in shipped_sets() and name != path.parent.name for name in names):
        raise RuleError(f"{path}:1: `includes` must list other shipped sets, of {', '.join(shipped_sets())}.")
    return names


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RuleError(f"{path}:1: The file cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise RuleError(f"{path}:1: The file is not a text in UTF-8.") from None


def _error(rule: Rule, message: str) -> RuleError:
    return RuleError(f"{rule.source}:{rule.line}: {message}")


def _check_unique(rules: list[Rule]) -> None:
    seen: dict[tuple[str, str, str], Rule] = {}
    for rule in rules:
        earlier = seen.setdefault((*rule.key, rule.label), rule)
        if earlier is not rule:
            raise _error(
                rule,
                f"The rule {rule.title} is already in {earlier.source}:{earlier.line}; "
                'rename it, or tell the two apart by overload: "..." in the header.',
            )


def _check_mentions(rules: list[Rule]) -> None:
    """Operators of other domains in a body must be fused operators of these rules, with attributes they have."""
    operators: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        operators.setdefault(rule.key, set()).update(rule.attributes, rule.defaults)
    for rule in rules:
        for node in rule.body:
            if node.domain == "" or (node.domain, node.op_type) in operators:
                unknown = () if node.domain == "" else _unknown_attributes(node, operators)
                if unknown:
                    raise _error(rule, f"{node.op_type} has no attribute {unknown[0]!r}; see the rule that makes it.")
                continue
            if node.domain in {domain for domain, _ in operators}:
                raise _error(
                    rule, f"{rule.title} is built on {node.domain}.{node.op_type}, and no rule here makes that."
                )
            raise _error(rule, f"The operator {node.op_type} of domain {node.domain!r} is not known to ONNX.")


def _unknown_attributes(node: PatternNode, operators: dict[tuple[str, str], set[str]]) -> tuple[str, ...]:
    known = operators[node.domain, node.op_type]
    return tuple(name for name in (*node.exact, *node.references) if name not in known)


def _without(rules: list[Rule], skip: set[str]) -> list[Rule]:
    names = {rule.op_type for rule in rules}
    unknown = sorted(skip - names)
    if unknown:
        raise UsageError(f"There is no rule {unknown[0]!r} to skip; the rules are {', '.join(sorted(names))}.")
    kept = [rule for rule in rules if rule.op_type not in skip]
    while True:  # leaving out a rule may leave out the last one that makes what another is built on
        made = {rule.key for rule in kept}
        gone = {rule.key for rule in rules} - made
        remaining = [rule for rule in kept if gone.isdisjoint(rule.mentioned)]
        if len(remaining) == len(kept):
            return kept
        kept = remaining


def _ordered(rules: list[Rule]) -> tuple[tuple[Rule, ...], ...]:
    """Groups by fused operator: after the operators they are built on, else larger bodies first, else by name."""
    groups: dict[tuple[str, str], list[Rule]] = {}
    for rule in rules:
        groups.setdefault(rule.key, []).append(rule)
    graph = nx.DiGraph()
    graph.add_nodes_from(groups)
    graph.add_edges_from(
        (mentioned, rule.key) for rule in rules for mentioned in sorted(rule.mentioned) if mentioned in groups
    )

    def precedence(key: tuple[str, str]) -> tuple[int, str, str]:
        return -max(len(rule.body) for rule in groups[key]), key[1], key[0]

    try:
        order = list(nx.lexicographical_topological_sort(graph, key=precedence))
    except nx.NetworkXUnfeasible:
        cycle = [start for start, _ in nx.find_cycle(graph)]
        names = " -> ".join(op_type for _, op_type in [*cycle, cycle[0]])
        raise _error(groups[cycle[0]][0], f"These rules are built on each other in a circle: {names}.") from None
    return tuple(tuple(groups[key]) for key in order)
