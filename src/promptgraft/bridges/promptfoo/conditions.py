"""Simple conditions in JavaScript and Python as metrics; the code is parsed and never run."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping

import attrs

from promptgraft.ground.serde import Json, parse_json

_LONGEST_CODE = 4_000


@attrs.frozen(kw_only=True)
class Condition:
    """A condition on an answer.

    Attributes:
        kind: the metric.
        options: its options.
        value: what the answer is compared with; None if the options suffice.
        variable: the variable that holds the value, in its place.
        path: the keys that lead to the compared value in an answer in JSON.
        inverted: whether it must not hold.
    """

    kind: str
    options: Mapping[str, Json] = attrs.field(factory=dict, hash=False)
    value: Json = attrs.field(default=None, hash=False)
    variable: str = ""
    path: tuple[str, ...] = ()
    inverted: bool = False

    def reference(self, values: Mapping[str, Json]) -> Json:
        """Return the value to compare with, for a test with these variables."""
        value = values.get(self.variable) if self.variable else self.value
        for key in reversed(self.path):
            value = {key: value}
        return value


def conditions_of(kind: str, code: str) -> list[Condition] | None:
    """Return what a `javascript` or `python` assertion asks; None if that is not simple."""
    text = code.strip()
    if len(text) > _LONGEST_CODE:
        return None
    if kind == "python":
        try:
            tree = ast.parse(re.sub(r"^return\b", "", text).strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        parts = _python_conjuncts(tree.body)
        conditions = [_of_python(part) for part in parts]
    else:
        bare = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE).strip()
        bare = re.sub(r"^return\b|;\s*$", "", bare).strip()
        conditions = [_of_javascript(part.strip()) for part in _conjuncts(bare)]
    return (
        [condition for condition in conditions if condition is not None]
        if None not in conditions
        else None
    )


_STRING = r"""(?:"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)')"""
_VARIABLE = r"""(?:context\.)?vars(?:\.(?P<name>[A-Za-z_]\w*)|\[['"](?P<key>\w+)['"]\])"""
_OUTPUT = r"(?:String\(output\)|output)(?:\.trim\(\))?"
_LOWER = r"(?P<lower>\.toLowerCase\(\))?(?:\.trim\(\))?"
_OTHER = rf"(?:{_STRING}|{_VARIABLE})(?:\.toLowerCase\(\))?"
_NUMBER = r"(?P<number>-?\d+(?:\.\d+)?|true|false)"
_KEYS = r"""(?P<keys>(?:\??\.[A-Za-z_]\w*|\[['"]\w+['"]\])+)"""
_LENGTH = re.compile(rf"{_OUTPUT}\.length\s*(?P<sign><=?|>=?|===?)\s*(?P<size>\d+)")
_SAME = re.compile(rf"{_OUTPUT}{_LOWER}\s*(?P<sign>[=!]==?)\s*{_OTHER}")
_HELD = re.compile(
    rf"(?P<sign>!?){_OUTPUT}{_LOWER}\.(?P<call>includes|startsWith)\(\s*{_OTHER}\s*\)"
)
_TESTED = re.compile(
    rf"(?P<sign>!?)/(?P<pattern>(?:[^/\\\n]|\\.)+)/(?P<flags>[ims]*)\.test\({_OUTPUT}\)"
)
_MEMBER = re.compile(
    rf"(?:JSON\.parse\({_OUTPUT}\)|output){_KEYS}\s*(?P<sign>[=!]==?)\s*(?:{_OTHER}|{_NUMBER})"
)
_KEY = re.compile(r"\w+")
# Members of texts and lists, which are no keys of an answer in JSON.
_NO_KEYS = {"length", "toLowerCase", "toUpperCase", "trim", "includes"}


def _conjuncts(code: str) -> list[str]:
    """Split a condition at `&&`, unless anything in it could hold one."""
    simple = not re.search(r"\|\||[;{}?](?!\.)|=>|\n", code)
    return re.split(r"\s*&&\s*", code) if simple and "&&" in code else [code]


def _of_javascript(code: str) -> Condition | None:
    if match := _LENGTH.fullmatch(code):
        return _length(match["sign"].replace("===", "=="), int(match["size"]))
    if match := _SAME.fullmatch(code):
        folded: dict[str, Json] = {"ignore_case": True} if match["lower"] else {}
        return _compared(match, "exact", folded, inverted=match["sign"].startswith("!"))
    if match := _HELD.fullmatch(code):
        folded = {"ignore_case": True} if match["lower"] else {}
        if match["call"] == "includes":
            return _compared(match, "contains", folded, inverted=bool(match["sign"]))
        prefix = _text_in(match)
        if prefix is None or folded:
            return None
        pattern = rf"\A{re.escape(prefix)}"
        return Condition(kind="regex", value=pattern, inverted=bool(match["sign"]))
    if match := _TESTED.fullmatch(code):
        flags = f"(?{match['flags']})" if match["flags"] else ""
        pattern = flags + match["pattern"].replace(r"\/", "/")
        return Condition(kind="regex", value=pattern, inverted=bool(match["sign"]))
    if match := _MEMBER.fullmatch(code):
        return _member(match)
    return None


def _compared(
    found: re.Match[str], kind: str, options: Mapping[str, Json], *, inverted: bool
) -> Condition | None:
    if variable := found["name"] or found["key"]:
        return Condition(kind=kind, options=options, variable=variable, inverted=inverted)
    text = _text_in(found)
    return Condition(kind=kind, options=options, value=text, inverted=inverted) if text else None


def _member(found: re.Match[str]) -> Condition | None:
    keys = tuple(_KEY.findall(found["keys"]))
    if _NO_KEYS & {*keys}:
        return None
    text, number = _text_in(found), found["number"]
    variable = found["name"] or found["key"] or ""
    return Condition(
        kind="json_match",
        options={"paths": [".".join(keys)]},
        value=parse_json(number, where="") if text is None and number else text,
        variable=variable,
        path=keys,
        inverted=found["sign"].startswith("!"),
    )


def _text_in(found: re.Match[str]) -> str | None:
    raw = found["double"] if found["double"] is not None else found["single"]
    if raw is None:
        return None
    try:
        # As JSON, in which quotes have to be escaped and apostrophes must not be.
        value = json.loads(f'"{raw}"' if found["double"] is not None else _requoted(raw))
    except ValueError:
        return None
    return str(value)


def _requoted(raw: str) -> str:
    bare = raw.replace("\\'", "'")
    return '"' + re.sub(r'(?<!\\)"', r"\"", bare) + '"'


def _length(sign: str, size: int) -> Condition | None:
    bounds: Mapping[str, dict[str, Json]] = {
        "<": {"max": size - 1},
        "<=": {"max": size},
        ">": {"min": size + 1},
        ">=": {"min": size},
        "==": {"min": size, "max": size},
    }
    return Condition(kind="length", options=bounds[sign]) if size or sign != "<" else None


def _python_conjuncts(node: ast.expr) -> list[ast.expr]:
    is_and = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)
    return node.values if is_and and isinstance(node, ast.BoolOp) else [node]


_SIGNS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
}


def _of_python(node: ast.expr) -> Condition | None:
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    left_text, operator, right = ast.unparse(node.left), node.ops[0], node.comparators[0]
    constant_value = right.value if isinstance(right, ast.Constant) else None
    constant = constant_value if isinstance(constant_value, str | int | float) else None
    variable = _python_variable(right)
    sign = _SIGNS.get(type(operator), "")
    if left_text == "len(output)" and sign and type(constant) is int:
        return _length(sign, constant)
    if isinstance(operator, ast.In | ast.NotIn):
        return _python_contains(node, inverted=isinstance(operator, ast.NotIn))
    if not isinstance(operator, ast.Eq | ast.NotEq) or not (variable or constant is not None):
        return None
    inverted = isinstance(operator, ast.NotEq)
    if left_text in ("output", "output.strip()", "output.lower()", "output.strip().lower()"):
        folded: dict[str, Json] = {"ignore_case": True} if "lower" in left_text else {}
        value = constant if isinstance(constant, str) else None
        if not (value or variable):
            return None
        return Condition(
            kind="exact", options=folded, value=value, variable=variable, inverted=inverted
        )
    keys = tuple(_python_keys(node.left))
    if not keys:
        return None
    return Condition(
        kind="json_match",
        options={"paths": [".".join(keys)]},
        value=constant,
        variable=variable,
        path=keys,
        inverted=inverted,
    )


def _python_contains(node: ast.Compare, *, inverted: bool) -> Condition | None:
    place = ast.unparse(node.comparators[0])
    text, variable = node.left, _python_variable(node.left)
    value = text.value if isinstance(text, ast.Constant) else None
    if place not in ("output", "output.lower()") or not (variable or isinstance(value, str)):
        return None
    folded: dict[str, Json] = {"ignore_case": True} if "lower" in place else {}
    return Condition(
        kind="contains",
        options=folded,
        value=value if isinstance(value, str) else None,
        variable=variable,
        inverted=inverted,
    )


def _python_variable(node: ast.expr) -> str:
    """Return the name in `context["vars"]["name"]` or `context["vars"].get("name")`."""
    text = ast.unparse(node).replace('"', "'")
    match = re.fullmatch(r"context\['vars'\](?:\['(\w+)'\]|\.get\('(\w+)'\))", text)
    return "" if match is None else match[1] or match[2]


def _python_keys(node: ast.expr) -> Iterator[str]:
    """Yield the keys in `json.loads(output)["a"]["b"]`, or the same without `json.loads`."""
    keys = []
    while isinstance(node, ast.Subscript):
        if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
            return
        keys.append(node.slice.value)
        node = node.value
    if ast.unparse(node) in ("output", "json.loads(output)") and all(map(str.isidentifier, keys)):
        yield from reversed(keys)
