"""The driver: load, fuse rule by rule, certify, report. Data flows one way, and no step reaches back."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

from onnx import FunctionProto, ModelProto

from graphopt.cleanups.driver import clean
from graphopt.cleanups.names import AFTER_FUSION, ONLY_AFTER_FUSION, known_cleanups
from graphopt.errors import CertificateError, UsageError, VerificationError
from graphopt.folding.batchnorm_folding import RULE as FOLDING
from graphopt.folding.batchnorm_folding import fold_batchnorms
from graphopt.fusion_result import FusionResult
from graphopt.graph.dataflow import sort_nodes
from graphopt.graph.scope import Scope
from graphopt.graph.scope_reading import read_scopes
from graphopt.ledger import CertificateSummary, Cleaned, Ledger, Report
from graphopt.matching.eligibility import Order
from graphopt.model_files import model_io
from graphopt.model_files.model_io import LoadedModel, Model
from graphopt.proof.certificate import certify
from graphopt.rewriting.adoption import Adopter
from graphopt.rewriting.assembly import assemble
from graphopt.rewriting.bare_calls import bodies_of_bare_calls, bodies_of_written_calls, body_of
from graphopt.rewriting.outlining import Outliner
from graphopt.rewriting.prefix_sharing import share_prefixes
from graphopt.rule import Rule
from graphopt.rule_files import DEFAULT_SET
from graphopt.rule_files.rule_set import RuleSet, load_rules
from graphopt.rule_sweep import Observer, sweep
from graphopt.targets.target import Target, load_target

if TYPE_CHECKING:
    from graphopt.verifying.verification_report import VerificationReport

Rules = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | RuleSet
Verifier = Callable[[LoadedModel, LoadedModel], "VerificationReport"]
"""Compares the numbers of the original and of the result."""


def fuse(
    model: Model,
    *,
    rules: Rules = DEFAULT_SET,
    skip_rules: Iterable[str] = (),
    share_prefix: bool = True,
    order: Order = "sink",
    functions: bool = True,
    cleanups: Iterable[str] | None = None,
    fold_batchnorm: bool = False,
    target: str | os.PathLike[str] | Target | None = None,
    observer: Observer | None = None,
    verifier: Verifier | None = None,
) -> FusionResult:
    """Fuse the operators of a model by rules, and prove that the result computes the same.

    Args:
        model: a path, `demo:NAME`, or a model in memory; it is not changed. External weights are not read.
        rules: a shipped set's name, a rule file or folder, several of these, or rules already loaded.
        skip_rules: fused operators to leave out.
        share_prefix: let a longer Concat start from a shorter one where that makes fusions possible.
        order: what "immediately before" means to the adjacency condition: the engine's own order, in which a
            convolution sinks to its only reader ("sink"), or that of the file ("file").
        functions: write the body of each fused operator into the model, so that any runtime can run it.
        cleanups: names of cleanups to run (see `graphopt.cleanups.names`); None for those that the
            rules' set chooses.
        fold_batchnorm: first fold BatchNormalizations into the weights before them. That changes rounding, so the
            proof holds from the folded model on, and the numbers of the original and the result are compared.
        target: an engine: a shipped target's name, a file, or one that is loaded; a fusion that it has no kernel for is
            refused.
        observer: called at every decision; it must not change anything.
        verifier: what compares the numbers, if values change; `graphopt.verify` with its defaults unless given.

    Raises:
        ModelError: the file cannot be read or is no valid model.
        RuleError, UsageError: a rule is wrong, or a rule or a cleanup does not exist.
        CertificateError: the result is not provably the same; a defect of graphopt or of a rule.
        VerificationError: values change by more than rounding.
    """
    if order not in ("sink", "file"):
        raise UsageError(f"There is no order {order!r}; choose sink or file.")
    with _paused_garbage_collection():
        original = model if isinstance(model, LoadedModel) else model_io.load(model)
        chosen = rules if isinstance(rules, RuleSet) else load_rules(rules, skip=skip_rules)
        engine = target if target is None or isinstance(target, Target) else load_target(target)
        fused = _fused(original, chosen, share_prefix, order, functions, cleanups, fold_batchnorm, engine, observer)
    return _verified(original, fused, verifier) if fused.report.changes_values else fused


def _fused(
    original: LoadedModel,
    chosen: RuleSet,
    share_prefix: bool,
    order: Order,
    functions: bool,
    cleanups: Iterable[str] | None,
    fold_batchnorm: bool,
    target: Target | None,
    observer: Observer | None,
) -> FusionResult:
    """The result of `fuse` before its numbers are compared; everything that is made on the way ends here."""
    cleaning = chosen.cleanups if cleanups is None else known_cleanups(cleanups)
    loaded = original
    scopes = _prepared_scopes(loaded, chosen)
    before = _operators(scopes)
    ledger = Ledger(counts=dict.fromkeys(chosen.operators, 0))
    if fold_batchnorm:
        loaded = _folded(loaded, chosen, ledger)
        if loaded is not original:
            scopes = _prepared_scopes(loaded, chosen)
    bare = bodies_of_bare_calls(loaded.model, scopes)
    ledger.cleaned += clean(loaded.model, scopes, [name for name in cleaning if name not in ONLY_AFTER_FUSION])
    outliner = Outliner()
    for group in chosen.groups:
        for scope in scopes:
            if share_prefix and _joins_prefixes(group):
                ledger.shared_prefixes += share_prefixes(scope, group, order)
            sweep(group, scope, order, ledger, outliner, target, observer)
    ledger.cleaned += clean(loaded.model, scopes, [name for name in AFTER_FUSION if name in cleaning])
    result, certificate = _certified(loaded, scopes, chosen, bare, functions=functions)
    after = _operators(scopes)
    report = Report(
        model=loaded.name,
        output=None,
        nodes_before=before.total(),
        nodes_after=after.total(),
        ops_before=_sorted(before),
        ops_after=_sorted(after),
        counts=ledger.counts,
        shared_prefixes=ledger.shared_prefixes,
        cleanups=_counts(ledger.cleaned, cleaning),
        cleaned=tuple(ledger.cleaned),
        fusions=ledger.fusions,
        refusals=ledger.refusals,
        absorptions=ledger.absorptions,
        certificate=certificate,
        changes_values=loaded is not original,
        functions=functions,
        rules_digest=chosen.digest,
    )
    for scope in scopes:
        scope.forget()  # a view knows its scope and the scope its view: without the circle all is freed at once
    original.reader.forget()
    return FusionResult(result, report)


def _folded(loaded: LoadedModel, rules: RuleSet, ledger: Ledger) -> LoadedModel:
    """The model with its BatchNormalizations folded; the same object where none could be."""
    folding = fold_batchnorms(loaded, rules)
    ledger.counts[FOLDING] = len(folding.fusions)
    ledger.fusions += folding.fusions
    ledger.refusals += folding.refusals
    return replace(loaded, model=folding.model) if folding.fusions else loaded


def _verified(original: LoadedModel, fused: FusionResult, verifier: Verifier | None) -> FusionResult:
    """The result with the comparison of its numbers."""
    if verifier is None:
        from graphopt.verifying.verification import verify  # it loads onnxruntime, which nothing else here needs

        verifier = verify
    outcome = verifier(original, replace(original, model=fused.model))
    fused = replace(fused, verification=outcome)
    first = outcome.first_mismatch
    if not outcome.ok:
        where = f"; the first that differs is {first.name!r}, made by {first.made_by}" if first is not None else ""
        raise VerificationError(
            f"{original.name}: the fused model gives other numbers than the original{where}.", fused
        )
    return fused


def _prepared_scopes(loaded: LoadedModel, rules: RuleSet) -> list[Scope]:
    """The scopes of a model in topological order, its own fused nodes recognised."""
    scopes = read_scopes(loaded.model, fused_domains=rules.domains, reader=loaded.reader)
    for scope in scopes:
        sort_nodes(scope, loaded.name)
    Adopter(loaded.model, rules.rules).adopt(scopes)
    return scopes


def _joins_prefixes(rules: Sequence[Rule]) -> bool:
    """Whether the rules are anchored at a Concat of any number of inputs."""
    return any(rule.variadic is not None and rule.anchor.op_type == "Concat" for rule in rules)


def _certified(
    loaded: LoadedModel,
    scopes: Sequence[Scope],
    rules: RuleSet,
    bare: Mapping[bytes, FunctionProto],
    *,
    functions: bool,
) -> tuple[ModelProto, CertificateSummary]:
    """The rewritten model and its proof; a model that nothing changed is a plain copy."""
    original = loaded.model
    if not any(scope.is_rewritten for scope in scopes):
        return deepcopy(original), CertificateSummary(ok=True, outputs=len(original.graph.output))
    result = assemble(original, scopes, digest=rules.digest, functions=functions)
    written = bodies_of_written_calls(original, scopes, functions=functions)
    bodies = body_of(bare, written) if bare or written else ()
    proof = certify(original, result, bodies, domains=rules.domains, reader=loaded.reader)
    if not proof.ok:
        raise CertificateError(
            f"{loaded.name}: the fused model does not compute the same: {proof.reason}; nothing was written."
        )
    return result, CertificateSummary(ok=True, outputs=proof.outputs)


def _counts(cleaned: Iterable[Cleaned], cleaning: Iterable[str]) -> dict[str, int]:
    counts = Counter(item.cleanup for item in cleaned)
    return {name: counts[name] for name in cleaning}


def _operators(scopes: Iterable[Scope]) -> Counter[str]:
    return Counter([node.op_type for scope in scopes for node in scope.nodes])


def _sorted(operators: Counter[str]) -> dict[str, int]:
    return dict(sorted(operators.items(), key=lambda entry: (-entry[1], entry[0])))


@contextmanager
def _paused_garbage_collection() -> Iterator[None]:
    """Nothing large made here is cyclic garbage, and walks over many objects grow faster than their number with it on.

    What is made must be gone when this ends: the collector looks at all that is left as soon as it is back.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
