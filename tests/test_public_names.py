"""The names of `import graphopt`: what type checkers are told is what there is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import graphopt


def names_for_type_checkers() -> dict[str, str]:
    """The home of each name that `graphopt/__init__.py` imports for type checkers only."""
    [block] = [node for node in ast.parse(Path(graphopt.__file__).read_text()).body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_type_checkers_and_the_interpreter_find_the_same_names_in_the_same_modules():
    assert set(names_for_type_checkers()) == set(graphopt.__all__) <= set(dir(graphopt))
    for name, home in names_for_type_checkers().items():
        assert getattr(graphopt, name).__module__ == home


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'fuze'"):
        graphopt.fuze  # noqa: B018 - reading it is the test
