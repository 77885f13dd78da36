"""Which domain each function body goes into, so that no call can reach another's body.

ONNX finds a function by domain and name. A model may need several bodies of one operator (other prefix counts,
producers, constants, opsets). `overload` is ONNX's answer, but runtimes that do not know it run the wrong body
without a word; so the operator keeps its name, and sub-domains tell the bodies apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from graphopt.rewriting.fused_node import Body


def assign_domains(bodies: Sequence[Body], taken: Iterable[tuple[str, str]]) -> None:
    """Set the domain of every body's function.

    Args:
        bodies: the new bodies of a model, in the order their first calls stand in it.
        taken: domain and name of functions, and of calls without a function, that the model has already.
    """
    occupied = set(taken)
    by_operator: dict[tuple[str, str], list[Body]] = defaultdict(list)
    for body in bodies:
        by_operator[body.operator].append(body)
    for (domain, name), variants in by_operator.items():
        alone = len(variants) == 1 and not any(
            other == name and (used == domain or used.startswith(domain + ".")) for used, other in occupied
        )
        labels = [""] if alone else _labels(variants)
        for body, label in zip(variants, labels, strict=True):
            wanted = f"{domain}.{label}" if label else domain
            chosen, count = wanted, 2
            while (chosen, name) in occupied:
                chosen, count = f"{wanted}.v{count}", count + 1
            occupied.add((chosen, name))
            body.function.domain = chosen


def _labels(variants: list[Body]) -> list[str]:
    """A label for each body, of just what differs between them (of all that can differ, for a single one)."""
    optional = sorted(frozenset[str]().union(*(body.absent for body in variants)))
    parts = [
        [
            body.rule_label,
            f"p{body.variadic_count}" if body.variadic_count is not None else "",
            "_".join(body.dtypes),
            "_".join(f"no_{name}" if name in body.absent else name for name in optional),
            f"opset{body.opset}",
        ]
        for body in variants
    ]
    differing = [place for place, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
    if not differing:
        differing = [place for place, part in enumerate(parts[0]) if part]
    return [".".join(filter(None, (row[place] for place in differing))) or "v1" for row in parts]
