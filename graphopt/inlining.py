"""Un-fusing: every fused node replaced by the standard nodes of its body, with the names the original had.

Inlining a function is always right; the record in a fused node's metadata only says what the nodes were called and
how they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, helper

from graphopt.errors import CertificateError
from graphopt.fusion import Rules
from graphopt.graph.scope import Scope
from graphopt.graph.scope_reading import read_scopes
from graphopt.model_files import model_io
from graphopt.model_files.model_io import LoadedModel, Model
from graphopt.proof.certificate import certify
from graphopt.rewriting.adoption import Adopter, made_up_record
from graphopt.rewriting.assembly import FUNCTIONS_SINCE_IR
from graphopt.rewriting.fused_node import FusedNode
from graphopt.rewriting.record import (
    INPUTS,
    IR_VERSION,
    ORIGINAL_INPUTS,
    RULES,
    Replaced,
    drop_metadata,
    metadata,
    names_in,
)
from graphopt.rule_files import DEFAULT_SET
from graphopt.rule_files.rule_set import RuleSet, load_rules

_OLDER_IR = frozenset(map(str, range(1, FUNCTIONS_SINCE_IR)))
"""What a model may remember as the IR version it had before it was raised."""


def unfuse(model: Model, *, rules: Rules = DEFAULT_SET) -> ModelProto:
    """The model with standard operators in place of its fused nodes, and with their node and value names.

    Args:
        model: a path, `demo:NAME`, or a model in memory; it is not changed.
        rules: the rules that say what fused nodes without a function in the model mean.

    Raises:
        ModelError: the file cannot be read or is no valid model.
        CertificateError: the result is not provably the same; a defect of graphopt.
    """
    loaded = model if isinstance(model, LoadedModel) else model_io.load(model)
    chosen = rules if isinstance(rules, RuleSet) else load_rules(rules)
    result = deepcopy(loaded.model)
    scopes = read_scopes(result, fused_domains=chosen.domains)
    Adopter(result, chosen.rules).adopt(scopes)
    fused = [node for scope in scopes for node in scope.nodes if isinstance(node, FusedNode)]
    bodies = list(dict.fromkeys(node.body for node in fused))
    by_call = {node.proto.SerializeToString(): node.body.function for node in fused}
    for scope in reversed(scopes):  # bodies before the nodes that hold them
        _inline_scope(scope)
    _restore_model(result, [body.function for body in bodies])
    proof = certify(loaded.model, result, lambda call: by_call.get(call.SerializeToString()))
    if not proof.ok:
        raise CertificateError(f"{loaded.name}: unfusing does not give back the same model: {proof.reason}.")
    return result


def _inline_scope(scope: Scope) -> None:
    """Rewrite one graph or function in place."""
    nodes: list[NodeProto] = []
    original_inputs: list[tuple[NodeProto, Sequence[str]]] = []
    constants: list[NodeProto] = []
    taken = _visible(scope)
    for node in scope.nodes:
        if isinstance(node, FusedNode):
            for inner, replaced in _inlined(node, taken):
                nodes.append(inner)
                if replaced is None:
                    constants.append(inner)
                elif replaced.inputs is not None:
                    original_inputs.append((inner, replaced.inputs))
            continue
        nodes.append(node.proto)
        shared = names_in(metadata(node.proto).get(ORIGINAL_INPUTS))
        if shared is not None:
            drop_metadata(node.proto, ORIGINAL_INPUTS)
            original_inputs.append((node.proto, shared))
    for node, inputs in original_inputs:
        if taken.issuperset(filter(None, inputs)):  # else another tool renamed something; what stands there is right
            node.input[:] = inputs
    read = {name for node in nodes for name in node.input}
    unread = {id(node) for node in constants if node.output[0] not in read}
    kept = [deepcopy(node) for node in nodes if id(node) not in unread]
    del scope.proto.node[:]
    scope.proto.node.extend(kept)


def _visible(scope: Scope) -> set[str]:
    """Every name that has a meaning in a scope."""
    names: set[str] = set()
    around: Scope | None = scope
    while around is not None:
        names |= around.defined
        around = around.parent
    return names


def _inlined(node: FusedNode, taken: set[str]) -> Iterator[tuple[NodeProto, Replaced | None]]:
    """The standard nodes that a fused node stands for, each with its record; a constant of the body has none.

    A value whose name somebody else has taken since gets another; `taken` grows by the names given.
    """
    function = node.body.function
    names = dict(zip(function.input, [*node.inputs, *[""] * len(function.input)], strict=False))
    names.update(zip(function.output, node.outputs, strict=False))
    records = [item for item in node.replaced if not item.passed_on]
    identities = [item for item in node.replaced if item.passed_on]
    if len(records) != sum(inner.op_type != "Constant" for inner in function.node):
        records, identities = list(made_up_record(node.proto, function)), []
    places = iter(records)
    now: dict[str, str] = {}  # the names that the original's values have here
    for inner in function.node:
        record = None if inner.op_type == "Constant" else next(places)
        outputs = record.outputs if record is not None else [f"{node.label}/{inner.output[0]}"]
        for name, original in zip(inner.output, outputs, strict=False):
            if name not in names:
                names[name] = _free(original, taken)
            now[original] = names[name]
        if record is not None and record.inputs is not None:
            record = record._replace(inputs=tuple(now.get(name, name) for name in record.inputs))
        yield _restored(inner, names, node, record), record
        for item in identities:  # in the order of their paths
            if item.passed_on in now and item.outputs[0] not in now:
                now[item.outputs[0]] = _free(item.outputs[0], taken)
                proto = NodeProto(op_type=item.op_type, input=[now[item.passed_on]], output=[now[item.outputs[0]]])
                _restore_texts(proto, item)
                yield proto, item


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _restored(inner: NodeProto, names: Mapping[str, str], call: FusedNode, record: Replaced | None) -> NodeProto:
    inputs = [names.get(name, name) for name in inner.input]
    while inputs and not inputs[-1]:
        inputs.pop()
    proto = NodeProto(op_type=inner.op_type, output=[names[name] for name in inner.output])
    if inner.domain:
        proto.domain = inner.domain
    for attribute in inner.attribute:
        if not attribute.ref_attr_name:
            proto.attribute.append(attribute)
        elif attribute.ref_attr_name in call.attributes:
            given = proto.attribute.add()
            given.CopyFrom(call.attributes[attribute.ref_attr_name])
            given.name = attribute.name
    if record is not None:
        _restore_texts(proto, record)
        if record.attributes is not None:
            _order_attributes(proto, record.attributes)
        if record.swapped:
            inputs.reverse()
        if record.arity is not None:
            inputs += [""] * (record.arity - len(inputs))
        for attribute in proto.attribute:
            if attribute.name == "axis" and record.axis is not None:
                attribute.i = record.axis
    proto.input.extend(inputs)
    return proto


def _restore_texts(proto: NodeProto, record: Replaced) -> None:
    for field in ("name", "domain", "doc_string"):
        if getattr(record, field) or field in record.empty:
            setattr(proto, field, getattr(record, field))
    for key, value in record.metadata.items():
        proto.metadata_props.add(key=key, value=value)


def _order_attributes(proto: NodeProto, order: Sequence[str]) -> None:
    place = {name: index for index, name in enumerate(order)}
    given = (attribute for attribute in proto.attribute if attribute.name in place)
    attributes = sorted(given, key=lambda attribute: place[attribute.name])
    ordered = [deepcopy(attribute) for attribute in attributes]
    del proto.attribute[:]
    proto.attribute.extend(ordered)


def _restore_model(model: ModelProto, inlined_functions: Iterable[FunctionProto]) -> None:
    """Remove what fusing added to the model itself, and put back what it took away."""
    gone = {(function.domain, function.name) for function in inlined_functions}
    kept = [deepcopy(f) for f in model.functions if (f.domain, f.name) not in gone]
    del model.functions[:]
    model.functions.extend(kept)
    fused_domains = {domain for domain, _ in gone}
    functions = list(model.functions)
    in_use = _domains_in_use([model.graph, *functions], model)
    everywhere = set[str]().union(*in_use.values())
    for owner in (model, *functions):
        # A model imports for its functions as well.
        unused = fused_domains - (in_use[id(owner)] if isinstance(owner, FunctionProto) else everywhere)
        for place in reversed(range(len(owner.opset_import))):
            if owner.opset_import[place].domain in unused:
                del owner.opset_import[place]
    remembered = metadata(model)
    if remembered.get(IR_VERSION, "") in _OLDER_IR:
        model.ir_version = int(remembered[IR_VERSION])
    order = names_in(remembered.get(INPUTS))
    if order is not None:
        _restore_inputs(model.graph, order)
    drop_metadata(model, RULES, IR_VERSION, INPUTS)


def _domains_in_use(roots: Sequence[GraphProto | FunctionProto], model: ModelProto) -> dict[int, set[str]]:
    """The domains of the nodes in the main graph and in each function, bodies included, by the id of its message."""
    domains: dict[int, set[str]] = {id(root): set() for root in roots}
    for scope in read_scopes(model):
        domains[id(_root(scope).proto)].update(node.proto.domain for node in scope.nodes)
    return domains


def _root(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope


def _restore_inputs(graph: GraphProto, order: Sequence[str]) -> None:
    """List initializers among the graph's inputs again, in the order they stood there."""
    inputs = {value.name: value for value in graph.input}
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    restored = []
    for name in order:
        if name in inputs:
            restored.append(deepcopy(inputs[name]))
        elif name in tensors:
            restored.append(helper.make_tensor_value_info(name, tensors[name].data_type, list(tensors[name].dims)))
    del graph.input[:]
    graph.input.extend(restored)
