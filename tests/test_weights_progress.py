"""The bar shows how much is copied, only where it is worth one, and goes away again."""

from io import StringIO

from rich.console import Console

from graphopt.model_files.weights_progress import LARGE, weights_progress


def shown(total: int, *, terminal: bool = True) -> str:
    text = StringIO()
    with weights_progress(Console(file=text, force_terminal=terminal, width=120)) as progress:
        progress(0, total)
        progress(total // 2, total)
    return text.getvalue()


def test_much_gets_a_bar_that_is_erased_at_the_end() -> None:
    text = shown(4 * LARGE)
    assert "Copying weights" in text
    assert "512.0/1024.0 MiB" in text or "0.5/1.0 GiB" in text
    assert text.endswith("\x1b[2K")


def test_little_gets_none() -> None:
    assert "Copying" not in shown(LARGE - 1)


def test_nothing_is_drawn_into_a_pipe() -> None:
    assert shown(4 * LARGE, terminal=False).strip() == ""
