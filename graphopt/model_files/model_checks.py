"""Is a model well formed enough to be rewritten? Everything here looks at the model alone and never at its data files.

Unsorted node lists pass (they are sorted later), and so does whatever only an executor would mind. What is refused
would make a rewrite guess: two meanings of one name, a value that nobody makes, weights that do not fit their shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, defs

from graphopt.errors import ModelError
from graphopt.graph.conventions import STANDARD_DOMAINS, standard_name
from graphopt.graph.graph_reader import GraphReader, NodeReading
from graphopt.graph.model_walk import (
    GraphPlace,
    function_title,
    iterate_places,
    node_title,
    sparse_tensors_of,
    tensor_title,
    tensors_of,
)
from graphopt.model_files.tensor_checks import sparse_fault, tensor_fault

_ATTRIBUTE_TYPES = {
    number: getattr(defs.OpSchema.AttrType, kind)
    for kind, number in AttributeProto.AttributeType.items()
    if number != AttributeProto.UNDEFINED
}
"""What onnx.proto and the operators' schemas call the same type."""


DEEPEST_BODY = 30
"""Bodies inside each other; protobuf reads about 33, so that a model in memory which has more cannot be saved."""
TOO_DEEP = "its graphs are nested more deeply than protobuf reads (about 30 bodies); flatten the model."


def check_model(model: ModelProto, name: str, reader: GraphReader | None = None) -> list[tuple[TensorProto, str]]:
    """Refuse a model that breaks a rule of ONNX which rewriting relies on.

    Args:
        model: it is not changed.
        name: what messages call it, usually the file's name.
        reader: reads the graphs, and may go on being used for this model.

    Returns:
        The tensors whose data is external, each with what messages call it; nothing was checked of their data.

    Raises:
        ModelError: with the first thing found wrong, in one sentence.
    """
    _check_header(model, name)
    defined: dict[GraphPlace, set[str]] = {}
    external: list[tuple[TensorProto, str]] = []
    reader = reader or GraphReader()
    for place in iterate_places(model, reader):
        if place.depth > DEEPEST_BODY:
            raise ModelError(f"{name}: {TOO_DEEP}")
        nodes = reader.nodes(place.graph)
        _check_nodes(place, nodes, name)
        defined[place] = _check_names(place, nodes, name)
        _check_reads(place, nodes, defined, name)
        for sparse, title in sparse_tensors_of(place):
            if (fault := sparse_fault(sparse)) is not None:
                raise ModelError(f"{name}: {fault.format(title)}")
        for tensor, title in tensors_of(place):
            is_external = tensor.data_location == TensorProto.EXTERNAL
            if (fault := tensor_fault(tensor, is_external)) is not None:
                raise ModelError(f"{name}: {fault.format(tensor_title(tensor, title))}")
            if is_external:
                external.append((tensor, tensor_title(tensor, title)))
    return external


def _check_header(model: ModelProto, name: str) -> None:
    if not model.HasField("graph"):
        raise ModelError(f"{name}: the model has no graph; it may be cut short, or not be an ONNX model at all.")
    if model.ir_version < 1:
        raise ModelError(f"{name}: the model states no IR version; it may be damaged, or not be an ONNX model at all.")
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{name}: the model has IR version {model.ir_version}, and onnx {onnx.__version__} knows versions up to "
            f"{int(onnx.IR_VERSION)}; install a newer onnx."
        )
    _check_own_text(model, "the model", name)
    _check_standard_import(_imports(model, name), model.graph.node, "the model", name)
    for title, count in Counter(map(function_title, model.functions)).items():
        if count > 1:
            raise ModelError(f"{name}: the model defines the function {title} {count} times; keep one of them.")
    for function in model.functions:
        title = f"function {function_title(function)}"
        _check_standard_import(_imports(function, f"{name}: {title}"), function.node, title, name)


def _check_standard_import(imports: dict[str, int], nodes: Iterable[NodeProto], title: str, name: str) -> None:
    if "" not in imports and any(node.domain in STANDARD_DOMAINS for node in nodes):
        raise ModelError(
            f"{name}: {title} has no opset import for ONNX's own operators, so their meaning is not known; "
            "export it again, or add the import with onnx.helper.make_opsetid."
        )


def _imports(owner: ModelProto | FunctionProto, name: str) -> dict[str, int]:
    """Version by domain. The same import twice is harmless; two versions of one domain leave the meaning open."""
    imports: dict[str, int] = {}
    for entry in owner.opset_import:
        if isinstance(entry.domain, bytes):  # protobuf gives bytes for what is not UTF-8
            raise ModelError(f"{name}: an opset import has a domain that is not UTF-8 text; the file is damaged.")
        domain = standard_name(entry.domain)
        if imports.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"{name}: the domain {domain or 'ai.onnx'!r} is imported twice, with versions {imports[domain]} and "
                f"{entry.version}; keep the one the model was made for."
            )
        if domain == "" and entry.version > defs.onnx_opset_version():
            raise ModelError(
                f"{name}: the model has opset {entry.version}, and onnx {onnx.__version__} knows operators up to opset "
                f"{defs.onnx_opset_version()}; install a newer onnx."
            )
        if entry.version < 1:
            raise ModelError(f"{name}: the opset import of {domain or 'ai.onnx'!r} has version {entry.version}.")
    return imports


def _check_own_text(message: ModelProto | GraphProto | FunctionProto, title: str, name: str) -> None:
    """Refuse a message whose own text, such as its name or its metadata, is not text. None has a field of bytes."""
    values = [value for _, value in message.ListFields()]
    values += [text for entry in message.metadata_props for text in (entry.key, entry.value)]
    if isinstance(message, FunctionProto):
        values += message.attribute
    _check_text(values, title, name)


def _check_nodes(place: GraphPlace, nodes: Sequence[NodeReading], name: str) -> None:
    """Refuse what protobuf accepts in a damaged node: text that is not text, attributes without name or type."""
    _check_text({text for node in nodes for text in (node.op_type, node.domain)}, place.title, name)
    for field in ("name", "doc_string"):
        _check_text(map(attrgetter(field), place.nodes), place.title, name)
    entries = [entry for node in place.nodes if node.metadata_props for entry in node.metadata_props]
    _check_text([text for entry in entries for text in (entry.key, entry.value)], place.title, name)
    attributes: dict[tuple[str, str, str, int], NodeProto] = {}
    for node, domain, op_type in _one_a_list(nodes):
        found = node.attribute
        if len(found) > 1 and len({attribute.name for attribute in found}) < len(found):
            raise ModelError(f"{name}: {node_title(node)} has an attribute twice; which of the two counts is open.")
        for attribute in found:
            attributes.setdefault((domain, op_type, attribute.name, attribute.type), node)
    _check_text((attribute for _, _, attribute, _ in attributes), place.title, name)
    for (domain, op_type, attribute_name, kind), node in attributes.items():
        if not attribute_name or kind == AttributeProto.UNDEFINED:
            raise ModelError(
                f"{name}: {node_title(node)} has an attribute {attribute_name!r} without a name or a type; "
                "the file is damaged, or written by a tool older than ONNX 1.0."
            )
        if not _may_have_type(domain, op_type, attribute_name, kind):
            raise ModelError(
                f"{name}: {node_title(node)} has an attribute {attribute_name!r} of type "
                f"{AttributeProto.AttributeType.Name(kind)}, which the operator does not take; the file is damaged."
            )


def _one_a_list(nodes: Sequence[NodeReading]) -> list[tuple[NodeProto, str, str]]:
    """The first node, with its domain and operator, for each operator and list of attributes, and every node whose
    attributes may hold tensors or graphs, in the order of the file."""
    backwards = zip(reversed(range(len(nodes))), reversed(nodes), strict=True)
    places = {(node.domain, node.op_type, id(node.attributes)): place for place, node in backwards}
    holders = [place for place, node in enumerate(nodes) if node.attributes is None]
    chosen = [nodes[place] for place in sorted({*places.values(), *holders})]
    return [(node.proto, node.domain, node.op_type) for node in chosen]


@lru_cache(maxsize=4096)
def _may_have_type(domain: str, op_type: str, attribute: str, kind: int) -> bool:
    """Whether any version of the operator takes an attribute of that type; one that onnx does not know takes all."""
    domain = standard_name(domain)
    if not defs.has(op_type, domain):
        return True
    newest = defs.get_schema(op_type, domain).since_version
    known = False
    for version in range(newest, 0, -1):
        if defs.has(op_type, max_inclusive_version=version, domain=domain):
            taken = defs.get_schema(op_type, version, domain).attributes.get(attribute)
            known = known or taken is not None
            if taken is not None and taken.type == _ATTRIBUTE_TYPES[kind]:
                return True
    return not known


def _check_names(place: GraphPlace, nodes: Sequence[NodeReading], name: str) -> set[str]:
    """Refuse names with two meanings; returns all names to which this graph gives one."""
    graph = place.graph
    _check_own_text(graph, place.title, name)
    outputs = [*filter(None, chain.from_iterable([node.outputs for node in nodes]))]
    if isinstance(graph, GraphProto):
        inputs = [value.name for value in graph.input]
        constants = [tensor.name for tensor in graph.initializer]
        constants += [sparse.values.name for sparse in graph.sparse_initializer]
    else:
        inputs, constants = list(graph.input), []
    made = {*outputs, *inputs, *constants}
    _check_text(made, place.title, name)
    if "" in made:
        raise ModelError(f"{name}: {place.title} has an input or an initializer without a name.")
    _check_once(inputs, "lists the input", place, name)
    _check_once(constants, "has the initializer", place, name)
    # An initializer may also be listed among the inputs (its default value); a node's output may be neither.
    if len(made) != len(outputs) + len(set(inputs) | set(constants)):
        raise ModelError(f"{name}: {_two_producers(place, {*inputs, *constants})}")
    return made


def _check_text(names: Iterable[object], title: str, name: str) -> None:
    # Protobuf gives bytes where text was expected and the file's bytes are not UTF-8.
    if bytes in set(map(type, names)):
        raise ModelError(f"{name}: {title} has text that is not UTF-8; the file is damaged.")


def _check_once(names: list[str], has: str, place: GraphPlace, name: str) -> None:
    if len(set(names)) != len(names):
        repeated = next(value for value, count in Counter(names).items() if count > 1)
        raise ModelError(f"{name}: {place.title} {has} {repeated!r} more than once; every name must be unique.")


def _two_producers(place: GraphPlace, given: set[str]) -> str:
    producer: dict[str, str] = dict.fromkeys(given, "an input or initializer of that name")
    for node in place.nodes:
        for value in filter(None, node.output):
            if value in producer:
                return (
                    f"the value {value!r} has two producers in {place.title}, {producer[value]} and "
                    f"{node_title(node)}; every value must be made once."
                )
            producer[value] = node_title(node)
    return "a value has two producers."


def _check_reads(
    place: GraphPlace, nodes: Sequence[NodeReading], defined: dict[GraphPlace, set[str]], name: str
) -> None:
    """Refuse reading what no node, input or initializer makes, here or in a graph further out."""
    graph = place.graph
    read = {*chain.from_iterable([node.inputs for node in nodes])}
    read.discard("")
    read.update([value.name for value in graph.output] if isinstance(graph, GraphProto) else graph.output)
    scope: GraphPlace | None = place
    while scope is not None and read:
        read -= defined[scope]
        scope = scope.parent
    if not read:
        return
    _check_text(read, place.title, name)
    for node in place.nodes:
        for value in node.input:
            if value in read:
                raise ModelError(f"{name}: {node_title(node)} reads {value!r}, and nothing in the model makes it.")
    raise ModelError(f"{name}: the output {min(read)!r} of {place.title} is made by no node.")
