"""Targets: what an engine takes decides what is fused for it, and what it would do with a model."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support.command_line import graphopt_command

import graphopt
from graphopt.errors import UsageError
from graphopt.rule_files.rule_set import load_rules, shipped_folder
from graphopt.targets.target import load_target, shipped_targets
from graphopt.targets.target_check import CANNOT_RUN, DIFFERS, check
from ngine_ref.target import describe

HEADER = '<ir_version: 8, opset_import: ["" : 17]> '


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def test_the_reference_target_is_what_the_registry_has() -> None:
    text = (shipped_folder() / "targets" / "ngine_ref.toml").read_text()
    assert text == describe(), "run: python -m ngine_ref.target > rules/targets/ngine_ref.toml"
    assert set(load_rules("extended").operators) <= set(load_target("ngine_ref").operators)


def test_the_engine_has_every_operator_of_its_own_set() -> None:
    assert set(load_rules("ngine").operators) <= set(load_target("ngine").operators)
    assert shipped_targets() == ["ngine", "ngine_ref"]


class TestFusing:
    text = """g (float[1,2,8] x, float[2,2,3] w) => (float[1,2,6] y) { c = Conv (x, w) y = LeakyRelu (c) }"""

    def test_a_fusion_without_a_kernel_is_refused_with_that_reason(self) -> None:
        original = model(
            "g (float[1,2,8,8] x, float[2,2,3,3] w) => (float[1,2,6,6] y) { c = Conv (x, w) y = Relu (c) }"
        )
        assert graphopt.fuse(original, rules="extended").report.counts["ConvRelu"] == 1
        report = graphopt.fuse(original, rules="extended", target=load_target("ngine")).report
        assert report.counts["ConvRelu"] == 0
        [refusal] = report.refusals
        assert (refusal.condition, refusal.name) == (0, "target")
        assert refusal.reason == "the target ngine has no kernel for ConvRelu"

    def test_a_kernel_for_images_takes_no_signal(self) -> None:
        original = model(self.text)
        original.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [2, 2, 3], [0.5] * 12))
        del original.graph.input[1]
        report = graphopt.fuse(original, target=load_target("ngine")).report
        assert report.counts["ConvLeakyRelu"] == 0
        assert report.refusals[0].reason == "the kernel of the target ngine takes rank 4, not 3"
        assert graphopt.fuse(original, target=load_target("ngine_ref")).report.counts["ConvLeakyRelu"] == 1

    def test_a_producer_without_a_kernel_stays_outside_of_the_tail(self, tmp_path: Path) -> None:
        file = tmp_path / "small.toml"
        file.write_text(
            "[operators.ConvLeakyRelu]\n[operators.ConcatFusedTail]\nproducers = ['Conv']\n", encoding="utf-8"
        )
        original = model(
            "g (float[1,2,8,8] x, float[2,2,3,3] w) => (float[1,4,6,6] y)"
            " { a = AveragePool <kernel_shape = [3, 3]> (x) c = Conv (x, w) l = LeakyRelu (c)"
            " y = Concat <axis = 1> (a, l) }"
        )
        report = graphopt.fuse(original, target=load_target(file)).report
        assert report.counts["ConvLeakyRelu"] == 1
        assert [r.reason for r in report.refusals] == [
            "the kernel of the target small takes Conv as producer, not ConvLeakyRelu"
        ]


class TestChecking:
    def test_what_cannot_run_comes_first(self) -> None:
        problems = check(
            model(
                "g (float[1,2,8,8] x) => (float[1,2,6,6] y) {"
                " s = Sigmoid (x) e = Elu (s) y = AveragePool <kernel_shape = [3, 3]> (e) }"
            ),
            load_target("ngine"),
        )
        assert [(p.severity, p.operator) for p in problems] == [(CANNOT_RUN, "Elu"), (DIFFERS, "Sigmoid")]
        assert problems[0].reason == "it has no kernel for Elu"
        assert "within 5e-5" in problems[1].reason

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("g (double[2,3] x) => (double[2,3] y) { y = Relu (x) }", "its kernel takes float32, not float64"),
            ("g (float[1,2,8] x, float[2,2,3] w) => (float[1,2,6] y) { y = Conv (x, w) }", "takes rank 4, not 3"),
            (
                'g (float[1,2,8,8] x) => (float[1,2,6,6] y) { y = Resize <mode = "cubic"> (x, r, s) }',
                "takes mode nearest or linear, not cubic",
            ),
            ("g (float[1,2,8,8] x) => (float[1,2,6,6] y) { y, m = Dropout (x) n = Not (m) }", "no kernel for Not"),
            ("g (float[1,2,8,8] x) => (float[1,2,6,6] y, bool[1,2,8,8] m) { y, m = Dropout (x) }", "not 2"),
        ],
    )
    def test_each_limit(self, text: str, reason: str) -> None:
        original = model(text)
        if "Resize" in text:
            original.graph.initializer.append(onnx.helper.make_tensor("s", 1, [4], [1.0, 1.0, 2.0, 2.0]))
            original.graph.initializer.append(onnx.helper.make_tensor("r", 1, [0], []))
        reasons = [
            problem.reason for problem in check(original, load_target("ngine")) if problem.severity == CANNOT_RUN
        ]
        assert any(reason in found for found in reasons), reasons

    def test_dilations_of_a_pool(self) -> None:
        original = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 19]> g (float[1,2,8,8] x) => (float[1,2,4,4] y) {'
            " y = AveragePool <kernel_shape = [3, 3], dilations = [2, 2]> (x) }"
        )
        [problem] = check(original, load_target("ngine"))
        assert problem.reason == "its kernel takes no dilations, here [2, 2]"

    def test_an_opset_that_the_engine_does_not_know(self) -> None:
        original = onnx.parser.parse_model(
            '<ir_version: 11, opset_import: ["" : 23]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
        )
        assert check(original, load_target("ngine"))[0].reason == "opset 23 is outside 7 to 21"

    def test_a_fused_model_runs_on_its_engine(self) -> None:
        fused = graphopt.fuse("demo:realesr-general-x4v3").model
        assert check(fused, load_target("ngine")) == []


class TestCommand:
    def test_check_exits_1_when_anything_is_wrong(self, tmp_path: Path) -> None:
        onnx.save(model("g (float[2] x) => (float[2] y) { y = Elu (x) }"), tmp_path / "elu.onnx")
        done = graphopt_command("check", str(tmp_path / "elu.onnx"), "--target", "ngine")
        assert done.returncode == 1
        assert "cannot run" in done.stdout.decode()
        assert done.stderr == b""
        onnx.save(model("g (float[2] x) => (float[2] y) { y = Relu (x) }"), tmp_path / "relu.onnx")
        assert graphopt_command("check", str(tmp_path / "relu.onnx"), "--target", "ngine").returncode == 0

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "lists its operators"),
            ("[operators.Conv]\nrank = [4]", "There is no key 'rank'"),
            ("[operators.Conv]\nranks = 4", "operators.Conv.ranks is a list of int values"),
            ("[operators.PRelu]\nslopes = ['two']", "slopes lists some of one, channel, any"),
            ("opsets = [7]\n[operators.Conv]", "`opsets` is a pair"),
            ("not toml", "is not TOML"),
        ],
    )
    def test_a_wrong_file_is_one_sentence(self, text: str, message: str, tmp_path: Path) -> None:
        file = tmp_path / "engine.toml"
        file.write_text(text, encoding="utf-8")
        done = graphopt_command("check", "demo:span-x4", "--target", str(file))
        assert done.returncode == 2
        assert message in done.stderr.decode()
        assert str(file) in done.stderr.decode()
        assert len(done.stderr.decode().strip().splitlines()) == 1

    def test_an_unknown_target_names_the_known_ones(self) -> None:
        done = graphopt_command("fuse", "demo:span-x4", "--dry-run", "--target", "nobody")
        assert done.returncode == 2
        assert "the shipped targets are ngine, ngine_ref" in done.stderr.decode()


def test_the_library_takes_a_name_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text((shipped_folder() / "targets" / "ngine.toml").read_text())
    for target in ("ngine", str(file), file, load_target("ngine")):
        refusals = graphopt.fuse("demo:span-x4", rules="extended", target=target).report.refusals
        assert sum(refusal.name == "target" for refusal in refusals) == 12, target
    with pytest.raises(UsageError, match="There is no target or file 'engine'"):
        graphopt.fuse("demo:span-x4", target="engine")
