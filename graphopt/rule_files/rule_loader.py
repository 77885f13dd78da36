"""From the text of a rule file to `Rule` objects, refusing whatever onnx's parser lets pass but a rule must not be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, defs, helper, numpy_helper

from graphopt.graph.conventions import STANDARD_DOMAINS, opset_versions, standard_name
from graphopt.matching.eligibility import REQUIREMENTS
from graphopt.rule import Condition, PatternNode, Rule
from graphopt.rule_files.producers import expand, is_template
from graphopt.rule_files.rule_text import RuleText, parse_rule_text
from graphopt.wording import counted

REQUIRE = "require"
"""The domain of conditions."""


def load_rule_texts(texts: Iterable[tuple[str, str]]) -> list[Rule]:
    """The rules of several files, templates expanded for the producers among them.

    Args:
        texts: for each file, its content and how error messages call it.

    Raises:
        RuleError: anything is wrong with a rule; the message begins with file and line.
    """
    items = [item for text, source in texts for item in parse_rule_text(text, source)]
    rules = [_rule(item) for item in items if not is_template(item)]
    for template in filter(is_template, items):
        rules += [_rule(item) for item in expand(template, rules)]
    return rules


def load_rule_text(text: str, source: str) -> list[Rule]:
    """The rules of one file, see `load_rule_texts`."""
    return load_rule_texts([(text, source)])


def _rule(item: RuleText) -> Rule:
    function = item.function
    opsets = opset_versions(function)
    _check_header(item)
    statements = [node for node in function.node if node.domain != REQUIRE]
    constants = {node.output[0]: _constant(item, node) for node in statements if node.op_type == "Constant"}
    pattern = [node for node in statements if node.op_type != "Constant"]
    if not pattern:
        raise item.error(f"{function.name} has no operator in its body; write the nodes that it stands for.")
    _check_values(item, pattern)
    for node in pattern:
        _check_operator(item, node, opsets)
    numbers = _numbers(item)
    conditions = list(_conditions(item, numbers))
    body = tuple(_pattern_node(node, numbers.get(id_of(node), 0)) for node in pattern)
    variadic = [condition.values[0] for condition in conditions if condition.kind == "variadic"]
    _check_variadic(item, variadic, pattern)
    interior = [name for node in body for name in node.outputs if name != function.output[0]]
    guards = [condition for condition in conditions if condition.kind in ("sole_reader", "interior")]
    guarded = {value for condition in guards for value in condition.values}
    unguarded = tuple(name for name in interior if name not in guarded)
    if unguarded:  # an interior value must not be read outside, whether or not the rule says so
        conditions.append(Condition(max(numbers.values(), default=0) + 1, "interior values", "interior", unguarded))
    return Rule(
        domain=function.domain,
        op_type=function.name,
        label=function.overload,
        inputs=tuple(function.input),
        output=function.output[0],
        attributes=tuple(function.attribute),
        defaults={attribute.name: attribute for attribute in function.attribute_proto},
        body=body,
        constants=constants,
        conditions=tuple(conditions),
        variadic=variadic[0] if variadic else None,
        opsets=opsets,
        function=function,
        source=item.source,
        line=item.line,
    )


def id_of(node: NodeProto) -> str:
    """A statement's identity within its function: its outputs, or its label and operator where it has none."""
    return ",".join(node.output) or f"{node.name}/{node.op_type}({','.join(node.input)})"


def _check_header(item: RuleText) -> None:
    function = item.function
    if not function.domain or function.domain in STANDARD_DOMAINS:
        raise item.error(f'{function.name} has no domain of its own; begin it with <domain: "ai.ngine", ...>.')
    if len(function.output) != 1:
        raise item.error(f"{function.name} has {len(function.output)} outputs; a rule has exactly one.")
    names = list(function.input) + list(function.attribute) + [a.name for a in function.attribute_proto]
    for name in names:
        if names.count(name) > 1:
            raise item.error(f"{function.name} names {name!r} twice in its header; give each its own name.")
    imported = opset_versions(function)
    newest = defs.onnx_opset_version()
    if imported.get("", 0) > newest:
        raise item.error(
            f"The installed onnx knows ONNX's opsets up to {newest}, not {imported['']}; import one of those."
        )
    for node in function.node:
        domain = standard_name(node.domain)
        if domain not in imported:
            raise item.error(
                f"The operator {node.op_type} is of domain {domain!r}, which the header does not import; "
                f'write opset_import: ["{domain}" : 1, ...].',
                node,
            )


def _check_values(item: RuleText, pattern: list[NodeProto]) -> None:
    function = item.function
    known = set(function.input)
    read: set[str] = set()
    for node in function.node:
        for name in node.input:
            if name and name not in known and not (node.domain == REQUIRE and _made_later(item, name)):
                raise item.error(
                    f"{name!r} is read but nothing makes it; make it before, or add it to the inputs.", node
                )
        if node.domain != REQUIRE:
            read.update(node.input)
            for name in node.output:
                if name in known:
                    raise item.error(f"{name!r} is made twice; give the second value another name.", node)
                known.add(name)
    output = function.output[0]
    if output not in {name for node in pattern for name in node.output}:
        raise item.error(f"The output {output!r} is never made; the last statement of the body must make it.")
    if output not in pattern[-1].output:
        raise item.error(f"The last statement must make the output {output!r}; move that statement to the end.")
    for name in function.input:
        if name not in read:
            raise item.error(f"The input {name!r} is never read; remove it from the header.")
    for node in function.node:
        if node.domain != REQUIRE and not any(name in read or name == output for name in node.output):
            raise item.error(f"Nothing reads {node.output[0]!r}; remove that statement.", node)


def _made_later(item: RuleText, name: str) -> bool:
    return any(name in node.output for node in item.function.node)


def _check_operator(item: RuleText, node: NodeProto, opsets: dict[str, int]) -> None:
    header = {*item.function.attribute, *(attribute.name for attribute in item.function.attribute_proto)}
    for attribute in node.attribute:
        if attribute.ref_attr_name and attribute.ref_attr_name not in header:
            raise item.error(
                f"@{attribute.ref_attr_name} is not among the attributes of {item.function.name}; "
                f"write it in the header: {item.function.name} <{attribute.ref_attr_name}, ...>.",
                node,
            )
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise item.error(f"{node.op_type} holds a graph; a rule's body is flat.", node)
    if node.domain not in STANDARD_DOMAINS:
        return  # operators of other rules are known when all rules are read, see `rule_set`
    version = opsets[""]
    if not defs.has(node.op_type, version, ""):
        raise item.error(f"ONNX has no operator {node.op_type!r} in opset {version}; check its spelling.", node)
    schema = defs.get_schema(node.op_type, version, "")
    for attribute in node.attribute:
        if attribute.name not in schema.attributes:
            known = ", ".join(sorted(schema.attributes)) or "none"
            raise item.error(
                f"{node.op_type} has no attribute {attribute.name!r} in opset {version}; it has {known}.", node
            )
        wanted, found = (_type_name(t) for t in (schema.attributes[attribute.name].type, attribute.type))
        if wanted != found:
            raise item.error(
                f"The attribute {attribute.name!r} of {node.op_type} is written as {found}; "
                f"it is of type {wanted}: write `{attribute.name}: {wanted} = ...`.",
                node,
            )
    if not schema.min_input <= len(node.input) <= schema.max_input:
        raise item.error(f"{node.op_type} cannot have {len(node.input)} inputs in opset {version}.", node)


def _type_name(attribute_type: defs.OpSchema.AttrType | int) -> str:
    """The type of an attribute as ONNX's text calls it: `int`, `floats`."""
    name: str = AttributeProto.AttributeType.Name(
        attribute_type if isinstance(attribute_type, int) else attribute_type.value  # type: ignore[attr-defined]  # an enum without stubs
    )
    return name.lower()


def _constant(item: RuleText, node: NodeProto) -> np.ndarray:
    wanted = "write it as Constant <value = float {3.0}> ()"
    if len(node.attribute) != 1 or len(node.output) != 1:
        raise item.error(f"A constant has one attribute and one output; {wanted}.", node)
    attribute = node.attribute[0]
    if attribute.name == "value_float" and not attribute.ref_attr_name:
        return np.asarray(attribute.f, np.float32)
    if attribute.name != "value" or attribute.t.data_type != TensorProto.FLOAT:
        kind = (
            helper.tensor_dtype_to_string(attribute.t.data_type).removeprefix("TensorProto.").lower()
            if attribute.name == "value"
            else attribute.name
        )
        raise item.error(
            f"The constant {node.output[0]!r} is a {kind}; constants of a rule are float32: {wanted}.", node
        )
    array = numpy_helper.to_array(attribute.t)
    if array.size != 1:
        raise item.error(f"The constant {node.output[0]!r} has {array.size} elements; it must be a number.", node)
    return array.reshape(()).astype(np.float32)


def _numbers(item: RuleText) -> dict[str, int]:
    """The number of each condition: its place among the labelled statements and those of the domain `require`."""
    numbers: dict[str, int] = {}
    for node in item.function.node:
        requirement = REQUIREMENTS.get(node.op_type) if node.domain == REQUIRE else None
        if node.name or (node.domain == REQUIRE and (requirement is None or requirement.refuses)):
            numbers[id_of(node)] = len(numbers) + 1
    return numbers


def _conditions(item: RuleText, numbers: dict[str, int]) -> Iterator[Condition]:
    for node in item.function.node:
        if node.domain != REQUIRE:
            continue
        requirement = REQUIREMENTS.get(node.op_type)
        if requirement is None:
            raise item.error(f"There is no condition {node.op_type!r}; there are {', '.join(REQUIREMENTS)}.", node)
        if "..." not in requirement.arguments and len(node.input) != len(requirement.arguments):
            raise item.error(
                f"The condition {node.op_type} speaks of {counted(len(requirement.arguments), 'value')}; "
                f"write require.{node.op_type} ({', '.join(requirement.arguments)}).",
                node,
            )
        given = {attribute.name: attribute for attribute in node.attribute}
        if set(given) != set(requirement.parameters) or any(a.type != AttributeProto.INT for a in given.values()):
            listed = ", ".join(f"{name}: int = ..." for name in requirement.parameters)
            raise item.error(f"The condition {node.op_type} is written with <{listed}>.", node)
        parameters = {name: attribute.i for name, attribute in given.items()}
        name = node.name or node.op_type.replace("_", " ")
        yield Condition(numbers.get(id_of(node), 0), name, node.op_type, tuple(node.input), parameters)


def _check_variadic(item: RuleText, variadic: list[str], pattern: list[NodeProto]) -> None:
    if len(variadic) > 1:
        raise item.error(f"{' and '.join(variadic)} cannot both stand for any number of inputs; keep one.")
    for name in variadic:
        reads = [node for node in pattern for read in node.input if read == name]
        if name not in item.function.input or len(reads) != 1 or reads[0] is not pattern[-1]:
            raise item.error(f"{name!r} must be an input that the last statement reads once, to stand for many.")


def _pattern_node(node: NodeProto, number: int) -> PatternNode:
    return PatternNode(
        domain=standard_name(node.domain),
        op_type=node.op_type,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        exact={attribute.name: attribute for attribute in node.attribute if not attribute.ref_attr_name},
        references={attribute.name: attribute.ref_attr_name for attribute in node.attribute if attribute.ref_attr_name},
        number=number,
        name=node.name,
    )
