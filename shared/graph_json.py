"""The JSON of an exported graph: what each string, name and operator in it may be (see ``shared.archive``)."""

import keyword
import math
import re
from typing import Any, NoReturn

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from shared.errors import BundleCorrupt

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,999}")
_WORD = re.compile(r"[A-Za-z0-9_]{0,1000}(\.[A-Za-z0-9_]{1,1000}){0,50}|-Infinity")
_OPERATOR = re.compile(r"torch\.ops\.aten\.([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)")

# what a symbolic expression is made of: torch evaluates it as Python, so no dot, no string, no name but these
_EXPRESSION = re.compile(
    r"(?:Symbol\('[su]\d{1,9}'(?:, (?:positive|nonnegative|integer)=True)*\)"
    r"|\b(?:Integer|Add|Mul|Pow|Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|ModularIndexing|Where|Identity"
    r"|Eq|Ne|Lt|Le|Gt|Ge|Equality|Unequality|StrictLessThan|LessThan|StrictGreaterThan|GreaterThan"
    r"|And|Or|Not|true|false|True|False)\b"
    r"|\b[su]\d{1,9}\b|\b\d{1,18}\b|[-+*/(), <>=])+"
)
_FORMS = {"expr_str": _EXPRESSION, "torch_version": re.compile(r"[0-9A-Za-z.+]{1,50}"), "type": re.compile("cpu")}
"""By the key under which the text stands; ``_WORD`` for all others. ``type`` is that of a device."""

_MAX_TEXT = 2000

_SYMBOLIC = {
    *(
        f"_operator.{name}"
        for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")
    ),
    *(f"torch.sym_{name}" for name in ("max", "min", "not")),
}
"""Arithmetic on sizes."""

_WITHOUT_TENSOR = {
    "sym_size", "sym_numel", "sym_stride", "sym_storage_offset", "sym_constrain_range", "sym_constrain_range_for_size",
    "_assert_tensor_metadata", "_assert_scalar", "_assert_async", "item", "_local_scalar_dense",
}  # fmt: skip
"""Operators that return no tensor and touch nothing outside."""

_FILES = {"from_file"}

MAX_ELEMENTS = 2**28
"""Elements of one tensor whose size is written into the graph: 1 GiB of float32."""

_FROM_A_NUMBER = tuple(f"torch.ops.aten.{name}." for name in ("arange", "eye", "linspace", "logspace", "one_hot"))
"""Operators that make a tensor of a size that is one number."""

_INPUT_KINDS = {"parameter", "buffer", "tensor_constant", "user_input"}
_REFUSED_KEYS = {"as_graph", "as_custom_obj", "as_operator", "custom_obj", "token"}
_EMPTY_KEYS = {"guards_code", "treespec_namedtuple_fields", "custom_obj_values", "metadata"}


def refuse(what: str) -> NoReturn:
    """Ends the check."""
    raise BundleCorrupt(f"graph.pt2 is refused: {what}; build the bundle again from a model that you trust")


def check_model(model: Any) -> None:
    """Refuses a graph that holds anything but tensor arithmetic on its inputs and weights."""
    match model:
        case {
            "graph_module": {
                "graph": {"inputs": list(), "nodes": list(nodes)},
                "signature": {"input_specs": list(inputs), "output_specs": [{"user_output": dict()}]},
                "module_call_graph": [{"fqn": "", "signature": {"in_spec": in_spec, "out_spec": out_spec}}],
            },
            "verifiers": ["TRAINING"],
        }:
            pass
        case _:
            refuse("its graph is not of the one form that a build writes: inputs, operators, one output")
    names = [_input_name(spec) for spec in inputs]
    _check_trees(in_spec, out_spec, users=sum("user_input" in spec for spec in inputs))
    _check_text("", model)
    for node in nodes:
        _check_node(node, set(names))


def _input_name(spec: Any) -> str:
    if not isinstance(spec, dict) or len(spec) != 1 or not set(spec) <= _INPUT_KINDS:
        refuse("an input is neither a tensor nor a weight")
    match next(iter(spec.values())):
        case {"arg": {"name": str(name)} | {"as_tensor": {"name": str(name)}}}:
            return name
        case _:
            refuse("an input is not a tensor")


def _check_trees(in_spec: Any, out_spec: Any, *, users: int) -> None:
    """The calling convention: ``users`` tensors in, one tensor out. torch builds Python objects from its text."""
    leaf = object()
    expected = pytree.tree_structure(((leaf,) * users, {})), pytree.tree_structure(leaf)
    if [in_spec, out_spec] != [pytree.treespec_dumps(tree) for tree in expected]:
        refuse("it is not called with one tensor for each input, and does not return one tensor")


def _check_text(key: str, value: Any) -> None:
    """Every string, keys included, is a plain word, but for the few that have a form of their own."""
    if key in _REFUSED_KEYS or (key in _EMPTY_KEYS and value):
        refuse(f"it holds {key}")
    if isinstance(value, dict):
        for inner, content in value.items():
            if not _WORD.fullmatch(inner):
                refuse(f"it holds the name {inner[:50]!r}")
            _check_text(inner, content)
    elif isinstance(value, list):
        for content in value:
            _check_text(key, content)
    elif isinstance(value, str) and not _is_plain(key, value):
        refuse(f"it holds {key} {value[:50]!r}")


def _is_plain(key: str, text: str) -> bool:
    if key in {"name", "as_name", "forward_arg_names"}:
        return _NAME.fullmatch(text) is not None and not keyword.iskeyword(text)
    if key in {"target", "in_spec", "out_spec"}:
        return True  # each is checked on its own
    if key == "as_string":
        return len(text) <= _MAX_TEXT and text.isprintable()  # torch only ever quotes it
    if key == "expr_str" and len(text) > _MAX_TEXT:
        return False
    return _FORMS.get(key, _WORD).fullmatch(text) is not None


def _check_node(node: Any, inputs: set[str]) -> None:
    match node:
        case {"target": str(target), "inputs": list(arguments)}:
            pass
        case _:
            refuse("a node is not an operator")
    if target in _SYMBOLIC:
        return
    operator = _operator(target)
    values = {}
    for argument in arguments:
        match argument:
            case {"name": str(name), "arg": dict(value)}:
                values[name] = value
            case _:
                refuse(f"{target[:100]!r} has an argument without a name")
    _check_sizes(target, values)
    _check_writes(target, operator, values, inputs)
    _check_mode(target, operator, values)


def _check_sizes(target: str, values: dict[str, Any]) -> None:
    """No size that is written into the graph asks for more memory than a host has. Sizes alone do not say all: what
    several operators make together is bounded by the golden rows, which are scored before anybody is served."""
    for value in values.values():
        match value:
            case {"as_ints": list(extents)} | {"as_sym_ints": list(extents)}:
                numbers = [extent.get("as_int") if isinstance(extent, dict) else extent for extent in extents]
                elements = math.prod(max(1, number) for number in numbers if isinstance(number, int))
            case {"as_int": int(elements)} if target.startswith(_FROM_A_NUMBER):
                pass
            case _:
                continue
        if elements > MAX_ELEMENTS:
            refuse(f"{target[:100]} makes {elements:,} elements, of {MAX_ELEMENTS:,} at most")


def _schema(operator: OpOverload) -> torch._C.FunctionSchema:
    return operator._schema  # noqa: SLF001 - torch has no public way to an operator's schema


def _operator(target: str) -> OpOverload:
    found = _OPERATOR.fullmatch(target)
    packet = getattr(torch.ops.aten, found[1], None) if found else None
    operator = getattr(packet, found[2], None) if found else None
    if not isinstance(operator, OpOverload) or found is None or found[1] in _FILES:
        refuse(f"it calls {target[:100]!r}, which is not an operator on tensors")
    if found[1] not in _WITHOUT_TENSOR and not any("Tensor" in str(given.type) for given in _schema(operator).returns):
        refuse(f"it calls {target[:100]!r}, which does not give a tensor")
    return operator


def _check_writes(target: str, operator: OpOverload, values: dict[str, Any], inputs: set[str]) -> None:
    for argument in _schema(operator).arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            match values.get(argument.name):
                case {"as_tensor": {"name": name}} if name in inputs:
                    refuse(f"{target} writes into an input or a weight, so one call would change the next")


def _check_mode(target: str, operator: OpOverload, values: dict[str, Any]) -> None:
    """Nothing is in training mode, and nothing is random."""
    for name in {"training", "train"} & set(values):
        if values[name] != {"as_bool": False}:
            refuse(f"{target} is in training mode; call eval() on the model before building")
    if values.get("use_input_stats", {}).get("as_bool") and "as_tensor" in values.get("running_mean", {}):
        refuse(f"{target} is in training mode; call eval() on the model before building")
    if values.get("dropout_p", {"as_float": 0.0}) != {"as_float": 0.0}:
        refuse(f"{target} drops values at random; call eval() on the model before building")
    takes_mode = {"training", "train", "dropout_p"} & {argument.name for argument in _schema(operator).arguments}
    if torch.Tag.nondeterministic_seeded in operator.tags and not takes_mode:
        refuse(f"{target} is random; a score must not be")
