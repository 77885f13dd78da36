"""The proof that a rewritten model computes the same expressions as the original, for all inputs.

Both models get value numbers in one table; every graph output must have the same number in both. This shares no code
with the matcher and the outliner: a mistake there shows here.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass

from onnx import FunctionProto, ModelProto

from graphopt.errors import ModelError
from graphopt.graph.conventions import is_fused_domain
from graphopt.graph.graph_reader import GraphReader
from graphopt.proof.difference import first_difference
from graphopt.proof.node_reading import BodyOf, FunctionName, body_by_name
from graphopt.proof.value_numbering import NumberedModel, ValueNumbering


@dataclass(frozen=True, slots=True)
class Certificate:
    """Whether two models compute the same, and where not, what differs."""

    ok: bool
    outputs: int
    """How many graph outputs the original has: all of them are proven when `ok`."""
    output: str | None = None
    """The first graph output that differs; None when none does, or when the models differ as a whole."""
    reason: str | None = None
    """What differs, a phrase that names the values, to follow a colon."""


def certify(
    original: ModelProto,
    rewritten: ModelProto,
    functions: Sequence[FunctionProto] | BodyOf = (),
    *,
    domains: Collection[str] = (),
    reader: GraphReader | None = None,
) -> Certificate:
    """Prove that every output of the rewritten model is the same expression as in the original.

    Args:
        original: the model before; neither model is changed, and external data is not read.
        rewritten: the model after.
        functions: bodies for calls whose function a model does not carry: one for each domain and name, or, where one
            name has several bodies, what gives each call its own.
        domains: the domains of the rules beside `ai.ngine`: functions in them and in their sub-domains mean what
            their bodies say, wherever they were made.
        reader: has read the original's graphs already; the proof shares nothing else with what made the rewritten one.

    Raises:
        ModelError: the original is not a valid graph (a value that nothing makes, or that is made twice; a cycle; a
            function that calls itself).
        UsageError: `functions` has two bodies for one call.
    """
    # Weights keep their names, so comparing those of one name proves nearly every rewrite; only where it does not,
    # the contents of all are read, and types and shapes inferred.
    body_of = functions if callable(functions) else body_by_name(functions) if functions else None
    # A function that only one of the models has was made, or taken away, by fusing: its calls are what it says.
    old, new = ({(function.domain, function.name) for function in model.functions} for model in (original, rewritten))
    inlined = (old ^ new) | {key for key in old & new if _is_within(key[0], domains)}
    reader = reader or GraphReader()
    quick = ValueNumbering(by_content=False, by_type=False)
    certificate = _compare(quick, original, rewritten, body_of, inlined, reader)
    return certificate if certificate.ok else _compare(ValueNumbering(), original, rewritten, body_of, inlined, reader)


def _is_within(domain: str, domains: Collection[str]) -> bool:
    return any(domain == outer or domain.startswith(outer + ".") for outer in domains)


def _compare(
    numbering: ValueNumbering,
    original: ModelProto,
    rewritten: ModelProto,
    body_of: BodyOf | None,
    inlined: Container[FunctionName],
    reader: GraphReader,
) -> Certificate:
    before = numbering.number(original, body_of, inlined, reader)
    if before.problems:
        raise ModelError(f"The model cannot be certified: {before.problems[0]}.")
    after = numbering.number(rewritten, body_of, inlined, reader)
    count = len(before.outputs)
    reason = _interface_difference(before, after)
    if reason is not None:
        return Certificate(False, count, None, reason)
    for (name, was), (_, now) in zip(before.outputs, after.outputs, strict=True):
        if was != now:
            return Certificate(
                False, count, name, f"output {name!r}: {first_difference(numbering.expressions, before, was, now)}"
            )
    return Certificate(True, count)


def _interface_difference(before: NumberedModel, after: NumberedModel) -> str | None:
    """What differs in what a caller sees, and what would make the comparison of numbers void."""
    old_names, new_names = [name for name, _ in before.outputs], [name for name, _ in after.outputs]
    if old_names != new_names:
        return f"the outputs were {', '.join(old_names)} and are {', '.join(new_names) or 'none'} after fusing"
    if before.inputs != after.inputs:
        old_inputs, new_inputs = [entry[1] for entry in before.inputs], [entry[1] for entry in after.inputs]
        if old_inputs == new_inputs:
            changed = next(old[1] for old, new in zip(before.inputs, after.inputs, strict=True) if old != new)
            return f"input {changed!r} has another type after fusing"
        return f"the inputs were {', '.join(old_inputs)} and are {', '.join(new_inputs) or 'none'} after fusing"
    for domain in sorted(before.imports.keys() & after.imports.keys()):
        old, new = before.imports[domain], after.imports[domain]
        if old != new and not is_fused_domain(domain):
            return f"domain {domain or 'ai.onnx'!r} is imported at version {old} in the original and {new} after fusing"
    return f"after fusing, {after.problems[0]}" if after.problems else None
