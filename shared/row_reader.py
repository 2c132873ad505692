"""A function that reads rows of one schema, made for it: every feature in one straight line, without a loop.

Of a value of the usual kinds it only makes sure that it is one; all others go to the feature's rule. So it says what
the rules of ``shared.rules`` say, in a fraction of the time that it takes to call one for each feature: between two
passes of a graph, whose code and data fill the processor's caches, each further step of the interpreter costs twice.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, cast

from shared.codes import Code
from shared.rules import FLOAT32_LIMIT, MAX_EXACT, USUALLY_ABOVE, BooleanRule, CodeRule, NumericRule, ScalarRule

Line = tuple[bytes, bytes]
"""The numbers of one row as float32, and its codes as int64."""

Read = Callable[[Mapping[str, object]], Line | None]
"""A row's line; None where a value breaks a rule. KeyError where the row lacks a feature."""

_NUMBER = f"""\
type(v{{n}}) is float and {USUALLY_ABOVE!r} < v{{n}} < {FLOAT32_LIMIT!r} \
or type(v{{n}}) is int and 0 <= v{{n}} <= {MAX_EXACT!r}"""
_TRUTH = "v{n} is True or v{n} is False or type(v{n}) is int and 0 <= v{n} <= 1"
_SCALAR = """
    v{n} = row[name{n}]
    if not ({usual}):
        v{n} = decode{n}(v{n})
        if type(v{n}) is Code:
            return None"""
_CODE = """
    value = row[name{n}]
    v{n} = code{n}(value) if type(value) is kind{n} else None
    if v{n} is None:
        v{n} = decode{n}(value)
        if type(v{n}) is Code:
            return None"""
_WHOLE = """\
def read(row):{features}
    return pack_numbers({numbers}), pack_codes({codes})
"""


def row_reader(features: Sequence[tuple[str, ScalarRule]]) -> Read:
    """The function for features and their rules, in the schema's order.

    Its text depends on nothing but the kinds of the rules: names, and all else that comes from a schema, are given to
    it as objects.
    """
    known: dict[str, Any] = {"Code": Code}
    for place, (name, rule) in enumerate(features):
        known |= {f"name{place}": name, f"decode{place}": rule.decode}
        if isinstance(rule, CodeRule):
            known |= {f"code{place}": rule.codes.get, f"kind{place}": rule.kind}
    numbers, codes = _of_kind(features, NumericRule | BooleanRule), _of_kind(features, CodeRule)
    known |= {"pack_numbers": Struct(f"={len(numbers)}f").pack, "pack_codes": Struct(f"={len(codes)}q").pack}
    text = _WHOLE.format(features="".join(_steps(features)), numbers=", ".join(numbers), codes=", ".join(codes))
    exec(compile(text, "<row reader>", "exec"), known)  # noqa: S102 - a text of this file's own, see above
    return cast("Read", known["read"])


def _steps(features: Iterable[tuple[str, ScalarRule]]) -> Iterator[str]:
    for place, (_, rule) in enumerate(features):
        match rule:
            case NumericRule():
                yield _SCALAR.format(n=place, usual=_NUMBER.format(n=place))
            case BooleanRule():
                yield _SCALAR.format(n=place, usual=_TRUTH.format(n=place))
            case _:
                yield _CODE.format(n=place)


def _of_kind(features: Iterable[tuple[str, ScalarRule]], kind: Any) -> list[str]:
    return [f"v{place}" for place, (_, rule) in enumerate(features) if isinstance(rule, kind)]
