"""Folds BatchNormalization at inference into the weights of the Conv, ConvTranspose or Gemm before it.

What is folded computes the same up to rounding, not the same bits: it cannot be certified, so whoever folds verifies.
Each BatchNormalization is a candidate, and a refusal says which condition it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, numpy_helper

from graphopt.folding.batchnorm_candidates import CONDITIONS, FINITE, Candidate
from graphopt.folding.folded_weights import (
    Array,
    factor_and_shift,
    fold_into_conv,
    fold_into_conv_transpose,
    fold_into_gemm,
)
from graphopt.graph.dataflow import DataflowGraph, sort_nodes
from graphopt.graph.scope import Node, Scope
from graphopt.graph.scope_reading import read_scopes
from graphopt.ledger import Fusion, Refusal
from graphopt.model_files.model_io import LoadedModel
from graphopt.model_files.tensor_reading import TensorReader
from graphopt.rewriting.assembly import assemble
from graphopt.rule_files.rule_set import RuleSet

RULE = "FoldBatchNormalization"
"""What reports call a folding."""


@dataclass(frozen=True, slots=True)
class Folding:
    """A model whose BatchNormalizations are folded, as far as that is possible."""

    model: ModelProto
    """The model itself, where nothing could be folded."""
    fusions: tuple[Fusion, ...]
    refusals: tuple[Refusal, ...]


def fold_batchnorms(loaded: LoadedModel, rules: RuleSet) -> Folding:
    """Fold every BatchNormalization that can be; the model is not changed.

    External weights are read only where they are folded; what comes of them is held in the model.

    Args:
        loaded: the model, and where its external weights lie.
        rules: the rules that run afterwards; functions of their domains are left alone.

    Raises:
        ModelError: external weights cannot be read.
    """
    scopes = read_scopes(loaded.model, fused_domains=rules.domains)
    for scope in scopes:
        sort_nodes(scope, loaded.name)
    work = _Work(scopes, TensorReader(loaded.path, loaded.name))
    refusals = [refusal for scope in scopes for refusal in work.fold(scope)]
    if not work.fusions:
        return Folding(loaded.model, (), tuple(refusals))
    work.drop_unread()
    model = assemble(loaded.model, scopes, digest=rules.digest)
    return Folding(model, tuple(work.fusions), tuple(refusals))


class _Work:
    """What one folding has done so far."""

    def __init__(self, scopes: Sequence[Scope], reader: TensorReader) -> None:
        self.fusions: list[Fusion] = []
        self._scopes = scopes
        self._reader = reader
        self._main = scopes[0]
        self._taken = {name for scope in scopes for name in scope.defined}
        self._left: set[str] = set()
        """Parameters that a folded node read: perhaps nobody reads them now."""

    def fold(self, scope: Scope) -> list[Refusal]:
        """Fold what can be folded in one scope, again and again while there is more; returns what is refused."""
        while True:
            view = DataflowGraph.of(scope)
            refusals: list[Refusal] = []
            folded: dict[int, Node] = {}
            gone: set[int] = set()
            for anchor in view.with_operator("", "BatchNormalization"):
                candidate = Candidate(view, anchor, self._reader)
                outcome = self._outcome(candidate)
                if isinstance(outcome, Refusal):
                    refusals.append(outcome)
                elif candidate.place is not None:
                    folded[candidate.place] = outcome
                    gone.add(anchor)
            if not gone:
                return refusals
            scope.nodes = [folded.get(index, node) for index, node in enumerate(scope.nodes) if index not in gone]
            scope.is_rewritten = True
            scope.forget()

    def _outcome(self, candidate: Candidate) -> Node | Refusal:
        norm, scope = candidate.norm, candidate.view.scope
        for number, (name, check) in enumerate(CONDITIONS, start=1):
            fault = check(candidate)
            if fault is not None:
                return Refusal(RULE, norm.label, number, name, *fault, scope.title)
        weight, bias = self._parameters(candidate)
        if not (_is_finite(weight) and _is_finite(bias)):
            reason = f"the new weights of {candidate.linear.title} would not be finite in {weight.dtype}"
            return Refusal(RULE, norm.label, *FINITE, reason, candidate.linear.label, scope.title)
        return self._folded(candidate, weight, bias)

    def _parameters(self, candidate: Candidate) -> tuple[Array, Array]:
        """The new weight and bias, in the element type of the old weight; there, they may have overflowed."""
        weight, bias, scale, offset, mean, variance = (self._array(candidate, name) for name in candidate.parameters)
        factor, shift = factor_and_shift(scale, offset, mean, variance, candidate.epsilon)
        new = _exact(candidate, weight, bias if candidate.parameters[1] else None, factor, shift)
        with np.errstate(over="ignore", invalid="ignore"):
            return new[0].astype(weight.dtype), new[1].astype(weight.dtype)

    def _array(self, candidate: Candidate, value: str) -> Array:
        tensor = candidate.view.constant(value) if value else None
        return np.zeros(0) if tensor is None else self._reader.array(tensor)

    def _folded(self, candidate: Candidate, weight: Array, bias: Array) -> Node:
        node, norm = candidate.linear, candidate.norm
        names = [self._add(f"{norm.outputs[0]}.{kind}", array) for kind, array in (("weight", weight), ("bias", bias))]
        self._left.update(filter(None, candidate.parameters))
        folded = node.with_names((node.inputs[0], *names), norm.outputs[:1])
        candidate.view.scope.defined.discard(node.outputs[0])
        self.fusions.append(
            Fusion(
                RULE, node.label, (node.label, norm.label), folded.inputs, folded.outputs, candidate.view.scope.title
            )
        )
        return folded

    def _add(self, wanted: str, array: Array) -> str:
        """A new initializer of the main graph, which the bodies inside can read too."""
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        self._main.added[name] = self._main.initializers[name] = numpy_helper.from_array(array, name)
        self._main.defined.add(name)
        self._main.is_rewritten = True
        return name

    def drop_unread(self) -> None:
        """Let go of the parameters that only folded nodes read."""
        unread = self._left.difference(self._reads())
        for scope in self._scopes:
            for name in unread & scope.initializers.keys():
                del scope.initializers[name]
                if scope.added.pop(name, None) is None:
                    scope.dropped.add(name)
                scope.is_rewritten = True
            kept = [node for node in scope.nodes if node.op_type != "Constant" or unread.isdisjoint(node.outputs)]
            if len(kept) < len(scope.nodes):
                scope.nodes = kept
                scope.is_rewritten = True

    def _reads(self) -> Iterator[str]:
        for scope in self._scopes:
            yield from scope.outputs
            yield from scope.training_reads
            for node in scope.nodes:
                yield from node.inputs
            if isinstance(scope.proto, GraphProto):
                for annotation in scope.proto.quantization_annotation:
                    yield from (entry.value for entry in annotation.quant_parameter_tensor_names)


def _exact(candidate: Candidate, weight: Array, bias: Array | None, factor: Array, shift: Array) -> tuple[Array, Array]:
    """The new weight and bias, in float64, of the node before a BatchNormalization that is `factor * x + shift`."""
    if candidate.linear.op_type == "Conv":
        return fold_into_conv(weight, bias, factor, shift)
    if candidate.linear.op_type == "ConvTranspose":
        return fold_into_conv_transpose(weight, bias, factor, shift, candidate.group)
    return fold_into_gemm(weight, bias, factor, shift, transposed=candidate.is_transposed, beta=candidate.beta)


def _is_finite(array: Array) -> bool:
    return bool(np.isfinite(array).all())
