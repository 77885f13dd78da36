"""What an installed package holds: the rules inside `graphopt`, and nothing beside the two packages."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from graphopt.rule_files.rule_set import load_rules, shipped_folder, shipped_sets

ROOT = Path(__file__).parent.parent


def can_build() -> bool:
    """Whether the build backend is here, or can be fetched."""
    done = subprocess.run([sys.executable, "-c", "import hatchling.build"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet", "--wheel-dir", str(folder)]
    if can_build():
        command.append("--no-build-isolation")  # no network, no waiting
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "hatchling" in done.stderr:
        pytest.skip("hatchling, which builds the wheel, is not installed and cannot be fetched")
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_every_rule_is_inside_the_package(wheel: zipfile.ZipFile):
    shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rules").rglob("*") if path.is_file()}
    inside = {name.removeprefix("graphopt/") for name in wheel.namelist() if name.startswith("graphopt/rules/")}
    assert inside == shipped
    assert "rules/ngine/ConcatFusedTail.onnxtxt" in inside


def test_nothing_stands_beside_the_two_packages(wheel: zipfile.ZipFile):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"graphopt", "ngine_ref"}


def test_types_licence_and_command_are_shipped(wheel: zipfile.ZipFile):
    names = wheel.namelist()
    assert "graphopt/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
    assert "graphopt = graphopt.cli:main" in wheel.read(entry_points).decode()


def test_the_unpacked_package_finds_its_rules(wheel: zipfile.ZipFile, tmp_path: Path):
    wheel.extractall(tmp_path)
    script = (
        "import graphopt, graphopt.rule_files.rule_set as r; print(graphopt.__file__); print(r.shipped_folder()); "
        "print(graphopt.load_rules().digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    package, folder, digest = done.stdout.split()
    assert Path(package).parent == tmp_path / "graphopt"
    assert Path(folder) == tmp_path / "graphopt" / "rules"
    assert digest == load_rules().digest


def test_the_rules_of_a_checkout_are_those_at_its_top():
    """What people read and edit is what runs: also in an editable install, which imports from here."""
    if shipped_folder() != ROOT / "rules":
        pytest.skip("an installed package is under test, not the checkout")
    assert set(shipped_sets()) == {path.parent.name for path in (ROOT / "rules").glob("*/*.onnxtxt")}
    assert "ngine" in shipped_sets()
