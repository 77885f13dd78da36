"""The text of a rule file: parsed by onnx, with the lines that onnx forgets.

onnx's parser keeps no line numbers and stops without a word at what it does not understand behind a function, so the
text is scanned once here for where each function and each statement stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from onnx import FunctionProto, NodeProto
from onnx.parser import ParseError, parse_model

from graphopt.errors import RuleError

_STUB = '<ir_version: 10, opset_import: ["" : 17]> rules () => () {}\n'
"""A model without nodes put in front: a whole file of functions then parses as one model, one line further down."""


@dataclass(frozen=True, slots=True)
class RuleText:
    """One function of a rule file."""

    function: FunctionProto
    source: str
    text: str
    """The function's text, comments blanked out."""
    first_line: int
    line: int
    """The line of its name."""

    def error(self, message: str, node: NodeProto | None = None) -> RuleError:
        """An error at this function, or at a statement of it."""
        line = self.line if node is None else self.line_of(node)
        return RuleError(f"{self.source}:{line}: {message}")

    def line_of(self, node: NodeProto) -> int:
        """The line where a statement of the body begins."""
        if node.output:
            pattern = rf"(?<![\w.]){re.escape(node.output[0])}\s*(,[^=()]*)?=\s*[\w.]*\b{re.escape(node.op_type)}\b"
        elif node.name:
            pattern = rf'\[\s*"{re.escape(node.name)}"\s*\]'
        else:
            pattern = rf"\b{re.escape(node.domain)}\s*\.\s*{re.escape(node.op_type)}\b"
        found = re.search(pattern, self.text)
        return self.line if found is None else self.first_line + self.text.count("\n", 0, found.start())


def parse_rule_text(text: str, source: str) -> list[RuleText]:
    """The functions of a rule file.

    Raises:
        RuleError: the text is not a list of ONNX functions.
    """
    blanked = _blank_comments(text)
    if not blanked.strip():
        raise RuleError(f"{source}:1: The file has no rule in it; rules/README.md shows how one is written.")
    try:
        functions = list(parse_model(_STUB + text).functions)
    except ParseError as error:
        raise _parse_error(error, source, last_line=1 + blanked.rstrip().count("\n")) from None
    spans = _function_spans(blanked)
    if len(spans) != len(functions):
        line = 1 + blanked.count("\n", 0, spans[len(functions)][0]) if len(spans) > len(functions) else 1
        raise RuleError(f"{source}:{line}: What stands here is not an ONNX function.")
    return [_rule_text(function, source, blanked, span) for function, span in zip(functions, spans, strict=True)]


def _rule_text(function: FunctionProto, source: str, text: str, span: tuple[int, int]) -> RuleText:
    own = text[span[0] : span[1]]
    first_line = 1 + text.count("\n", 0, span[0])
    named = re.search(rf"\b{re.escape(function.name)}\b\s*[<(]", own)
    line = first_line + (own.count("\n", 0, named.start()) if named else 0)
    return RuleText(function, source, own, first_line, line)


def _blank_comments(text: str) -> str:
    """The text with comments replaced by spaces, so that places stay the same."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else " " * len(found[0])

    return re.sub(r'"(?:\\.|[^"\\])*"|#[^\n]*', blank, text)


def _function_spans(text: str) -> list[tuple[int, int]]:
    """Where each function begins and ends: it ends with the brace that closes its body."""
    spans: list[tuple[int, int]] = []
    depth = start = 0
    for found in re.finditer(r'"(?:\\.|[^"\\])*"|[{}]', text):
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            depth -= 1
            if depth == 0:
                begin = start + len(text[start:]) - len(text[start:].lstrip())
                spans.append((begin, found.end()))
                start = found.end()
    if text[start:].strip():
        spans.append((start + len(text[start:]) - len(text[start:].lstrip()), len(text)))
    return spans


def _parse_error(error: ParseError, source: str, *, last_line: int) -> RuleError:
    message = error.args[0]
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    place = re.search(r"line: (\d+)", text)
    line = min(int(place[1]) - 1, last_line) if place else 1  # at its end, the parser points behind the blank lines
    what = [part for part in text.splitlines() if part and not part.startswith(("[ParseError", "Error context"))]
    context = re.search(r"Error context: *([^\n]*)", text)
    shown = f" in `{context[1].strip()}`" if context and context[1].strip() else ""
    hint = "; a constant of a rule is written as Constant <value = float {3.0}> ()" if "float16" in shown else ""
    return RuleError(f"{source}:{line}: Not an ONNX function: {' '.join(what) or 'a syntax error'}{shown}{hint}")
