"""Conversion of promptfoo assertions to metrics.

Simple conditions in JavaScript and Python are parsed, and never run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import attrs

from promptgraft.bridges.promptfoo.code import Stubs, code_reference
from promptgraft.bridges.promptfoo.prompts import as_jinja
from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.patterns import hold_pattern
from promptgraft.ground.serde import Json, canonical_json, map_texts, parse_json, shown
from promptgraft.ground.strict.nodes import Node
from promptgraft.project.imported import Foreign, filled, name_of

_LONGEST_CODE = 4_000


@attrs.frozen(kw_only=True)
class Condition:
    """A condition on an answer.

    Attributes:
        kind: the metric.
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
            conditions = [_of_python(part) for part in _python_conjuncts(tree.body)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
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
_OTHER = rf"(?:{_STRING}|{_VARIABLE})(?P<lowered>\.toLowerCase\(\))?"
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
    if (match := _SAME.fullmatch(code)) and _is_folded_alike(match):
        folded: dict[str, Json] = {"ignore_case": True} if match["lower"] else {}
        return _comparison(match, "exact", folded, inverted=match["sign"].startswith("!"))
    if (match := _HELD.fullmatch(code)) and _is_folded_alike(match):
        folded = {"ignore_case": True} if match["lower"] else {}
        if match["call"] == "includes":
            return _comparison(match, "contains", folded, inverted=bool(match["sign"]))
        prefix = _text_in(match)
        if prefix is None or folded:
            return None
        pattern = rf"\A{re.escape(prefix)}"
        return Condition(kind="regex", value=pattern, inverted=bool(match["sign"]))
    if match := _TESTED.fullmatch(code):
        flags = f"(?{match['flags']})" if match["flags"] else ""
        pattern = flags + match["pattern"].replace(r"\/", "/")
        return Condition(kind="regex", value=pattern, inverted=bool(match["sign"]))
    if (match := _MEMBER.fullmatch(code)) and not match["lowered"]:
        return _member(match)
    return None


def _is_folded_alike(match: re.Match[str]) -> bool:
    """Return whether a metric can ignore case, as the condition does: on both sides or on none."""
    return bool(match["lower"]) or not match["lowered"]


def _comparison(
    match: re.Match[str], kind: str, options: Mapping[str, Json], *, inverted: bool
) -> Condition | None:
    if variable := match["name"] or match["key"]:
        return Condition(kind=kind, options=options, variable=variable, inverted=inverted)
    text = _text_in(match)
    return Condition(kind=kind, options=options, value=text, inverted=inverted) if text else None


def _member(match: re.Match[str]) -> Condition | None:
    keys = tuple(_KEY.findall(match["keys"]))
    if _NO_KEYS & {*keys}:
        return None
    text, number = _text_in(match), match["number"]
    variable = match["name"] or match["key"] or ""
    return Condition(
        kind="json_match",
        options={"paths": [".".join(keys)]},
        value=parse_json(number, where="") if text is None and number else text,
        variable=variable,
        path=keys,
        inverted=match["sign"].startswith("!"),
    )


def _text_in(match: re.Match[str]) -> str | None:
    raw = match["double"] if match["double"] is not None else match["single"]
    if raw is None:
        return None
    try:
        # Read as JSON, which requires escapes of quotes and forbids those of apostrophes.
        value = json.loads(f'"{raw}"' if match["double"] is not None else _requoted(raw))
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


_SHORT = re.compile(r"(not-)?([a-z][a-z0-9-]*)(?:\((\d+(?:\.\d+)?)\))?(?::(.*))?", re.DOTALL)
_LEGACY = {"fn": "javascript", "eval": "javascript", "grade": "llm-rubric"}
_READ = frozenset(("type", "value", "threshold", "weight", "metric", "assert", "provider"))


@attrs.frozen(kw_only=True)
class AssertedMetric:
    """One assertion as a metric.

    Attributes:
        kind: the kind of the metric.
        reference: the value to compare with, for ``expected``; None if the options suffice.
        name: the preferred name.
        inverted: whether it must not hold.
    """

    kind: str
    options: Mapping[str, Json] = attrs.field(hash=False)
    reference: Json = attrs.field(default=None, hash=False)
    name: str = ""
    weight: float = 1.0
    inverted: bool = False

    @property
    def key(self) -> str:
        """Equal for assertions that can share one metric."""
        # By content, so that a thousand tests with the same assertion share one metric.
        return canonical_json(
            [self.kind, dict(self.options), self.weight, self.inverted, self.name]
        )


def row_as_test(row: Node) -> Node:
    """Convert a row of a table to a test."""
    asserts: list[dict[str, Json]] = []
    values: dict[str, Json] = {}
    test: dict[str, Json] = {}
    metadata: dict[str, Json] = {}
    for key, cell in row.members().items():
        name, text = key.removeprefix("__"), str(cell.value)
        if name == key:
            values[key] = text
        elif key.startswith("__expected") and text.strip():
            asserts.append(_of_text(text))
        elif text and name.startswith("metadata:"):
            metadata[name.removeprefix("metadata:").removesuffix("[]")] = (
                [tag.strip() for tag in text.split(",")] if name.endswith("[]") else text
            )
        elif text:
            test[name] = _number(text) if name == "threshold" else text
    if metadata:
        test["metadata"] = metadata
    metric = {"metric": test.pop("metric")} if "metric" in test else {}
    tests: list[Json] = [{**entry, **metric} for entry in asserts]
    return Node({**test, "vars": values, "assert": tests}, row.path, row.source)


def _of_text(text: str) -> dict[str, Json]:
    """Convert a cell, such as ``contains: a``, to an assertion."""
    if text.strip().startswith("file://") and (code := code_reference(text)):
        kind = "python" if code[0].endswith(".py") else "javascript"
        return {"type": kind, "value": text.strip()}
    match = _SHORT.fullmatch(text.strip())
    kind = "" if match is None else _LEGACY.get(match[2], match[2])
    if match is None or kind not in _KNOWN:
        return {"type": "equals", "value": text}
    value: Json = match[4]
    if match[4] is not None and kind.endswith(("-all", "-any")):
        value = [word.strip() for word in match[4].split(",")]
    entry: dict[str, Json] = {"type": f"{match[1] or ''}{kind}", "value": value}
    threshold = match[3] or (match[4] if kind in ("cost", "latency") else None)
    return entry if threshold is None else {**entry, "threshold": _number(threshold)}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@attrs.frozen(kw_only=True)
class Asserting:
    """What the conversion of assertions needs.

    Attributes:
        files: the files of the import.
        stubs: takes the functions that the user has to write.
        judge: returns the name of the judge for a provider.
    """

    files: Foreign
    stubs: Stubs
    judge: Callable[[Node], str]

    def read(self, node: Node, values: Mapping[str, Json]) -> Iterator[AssertedMetric]:
        """Convert an assertion of a test with these variables to metrics."""
        notes, members = self.files.notes, node.members()
        type_text = str(node.member("type").value)
        kind = type_text.removeprefix("not-")
        for key, member in members.items():
            if key not in _READ and not (key == "config" and kind in _CODE):
                notes.add(member, f"`{key}` of an assertion is left out: no metric has it")
        weight = node.member("weight").value
        if kind == "assert-set":
            if "threshold" in members:
                what = "the `threshold` of an `assert-set` is left out: all of it has to hold"
                notes.add(node, what)
            for inner in node.member("assert").items():
                yield from self.read(inner, values)
            return
        if weight == 0:
            what = "an assertion of weight 0 is left out: it decides nothing"
            notes.add(node.member("weight"), what)
            return
        metrics = list(
            self._of_code(kind, node, values) if kind in _CODE else self._of(kind, node, values)
        )
        if not metrics:
            why = _NONE.get(kind, "no metric does the same")
            notes.add(node.member("type"), f"`{type_text}` is left out: {why}")
        label = node.member("metric").value
        for metric in metrics:
            yield attrs.evolve(
                metric,
                name=name_of(str(label or metric.name or type_text), joint="_"),
                weight=float(weight) if isinstance(weight, (int, float)) else 1.0,
                inverted=metric.inverted is not (type_text != kind),
            )

    def _of(self, kind: str, node: Node, values: Mapping[str, Json]) -> Iterator[AssertedMetric]:
        value = self._value(node.member("value"), values)
        threshold = node.member("threshold").value
        judge = partial(self.judge, node.member("provider"))
        if (metric := _metric(kind, value, threshold, judge=judge)) is not None:
            yield metric

    def _of_code(
        self, kind: str, node: Node, values: Mapping[str, Json]
    ) -> Iterator[AssertedMetric]:
        """Convert code to metrics, or else to a function that the user has to write."""
        value = node.member("value")
        text = self._value(value, values)
        conditions = conditions_of(kind, text) if isinstance(text, str) else None
        metrics = [_of_condition(condition, values) for condition in conditions or ()]
        if metrics and None not in metrics:
            yield from (metric for metric in metrics if metric is not None)
            return
        original = value.value if isinstance(value.value, str) else json.dumps(value.value)
        named = code_reference(original)
        config = node.member("config").value
        if config is not None:  # another one is another function
            original += f"\nconfig: {json.dumps(config, ensure_ascii=False)}"
        name = str(node.member("metric").value or (named and named[1]) or kind)
        where = self.stubs.metric(name, node, original)
        module = where.partition(":")[0]
        what = f"the `{kind}` code is not run here: write it in `{module}`"
        self.files.notes.add(node.member("type"), what)
        yield AssertedMetric(kind="python", options={"function": where}, name=name)

    def _value(self, node: Node, values: Mapping[str, Json]) -> Json:
        """Return the value of an assertion, rendered with the variables of its test."""

        def change(text: str) -> str:
            if "{{" not in text and "{%" not in text:
                return text
            text_filled = filled(as_jinja(text).text, values)
            if text_filled is None:
                what = f"{shown(text)} cannot be rendered by Jinja, and is kept as it is"
                self.files.notes.add(node, what)
                return text
            self.files.budget.spend("characters", len(text_filled), node.source.line(node.path, ""))
            return text_filled

        value = node.value
        if (
            isinstance(value, str)
            and value.startswith("file://")
            and value.endswith((".txt", ".md", ".json", ".yaml", ".yml"))
        ):
            paths = self.files.named(node, value)
            value = self.files.text(paths[0], node) if paths else None
        return map_texts(value, change)


def _of_condition(condition: Condition, values: Mapping[str, Json]) -> AssertedMetric | None:
    reference = condition.reference(values)
    if condition.variable and values.get(condition.variable) is None:
        return None
    if reference is not None and condition.kind != "json_match":
        reference = _reference(condition.kind, reference)
        if not reference:
            return None
    name = condition.path[-1] if condition.path else condition.kind
    return AssertedMetric(
        kind=condition.kind,
        options=condition.options,
        reference=reference,
        name=name,
        inverted=condition.inverted,
    )


_FACTS = "The answer says the same facts as this one, and none against it: {}"
# Passing scores here and in `_COMPARED` are the defaults of promptfoo.
_JUDGED: Mapping[str, tuple[str, float]] = {  # the rubric and the passing score
    "llm-rubric": ("{}", 1.0),
    "model-graded-closedqa": ("{}", 1.0),
    "g-eval": ("{}", 0.7),
    "factuality": (_FACTS, 1.0),
    "model-graded-factuality": (_FACTS, 1.0),
}
_COMPARED: Mapping[str, tuple[str, Mapping[str, Json]]] = {
    "equals": ("exact", {}),
    "contains": ("contains", {}),
    "icontains": ("contains", {"ignore_case": True}),
    "contains-all": ("contains", {}),
    "contains-any": ("contains", {"any_of": True}),
    "icontains-all": ("contains", {"ignore_case": True}),
    "icontains-any": ("contains", {"ignore_case": True, "any_of": True}),
    "regex": ("regex", {}),
    "starts-with": ("regex", {}),
    "rouge-n": ("rouge", {"variant": "rouge1", "threshold": 0.75}),
}
_LIMITS = {"cost": 1.0, "latency": 0.001}  # ours in US dollars and seconds, by theirs
_SCHEMAS: Mapping[str, Mapping[str, Json]] = {"is-json": {}, "contains-json": {"fenced": True}}
_WORDS = "word-count"
_NONE: Mapping[str, str] = {
    "levenshtein": "its threshold counts characters; `edit_similarity` takes a share",
    "similar": "there are no embeddings here; ask a judge",
    "select-best": "candidates are compared by their scores",
    "max-score": "candidates are compared by their scores",
    "human": "an answer is judged while the search runs",
}
_CODE = ("javascript", "python", "ruby")
_KNOWN = frozenset((*_CODE, *_JUDGED, *_COMPARED, *_LIMITS, *_SCHEMAS, _WORDS, *_NONE))


def _metric(
    kind: str, value: Json, threshold: Json, *, judge: Callable[[], str]
) -> AssertedMetric | None:
    """Convert an assertion of a kind; return None if no metric corresponds to it."""
    if kind in _COMPARED:
        return _compared(kind, value, threshold)
    if kind in _JUDGED and value:
        text, least = _JUDGED[kind]
        criteria = value if isinstance(value, list) else [value]
        texts = [
            criterion if isinstance(criterion, str) else json.dumps(criterion)
            for criterion in criteria
        ]
        rubrics: list[Json] = [
            {"id": f"r{number}", "text": text.format(criterion)}
            for number, criterion in enumerate(texts, start=1)
        ]
        passing = least if threshold is None else threshold
        return AssertedMetric(
            kind="llm_rubric_response",
            options={"judges": [judge()], "rubrics": rubrics, "threshold": passing},
        )
    if kind in _LIMITS and isinstance(threshold, (int, float)):
        return AssertedMetric(kind=kind, options={"limit": threshold * _LIMITS[kind]})
    if kind in _SCHEMAS:
        return _schema(value, _SCHEMAS[kind])
    if kind == _WORDS and isinstance(value, dict):
        return AssertedMetric(kind="length", options={"unit": "words", **value})
    if kind == _WORDS and re.fullmatch(r"\s*[0-9]{1,9}\s*", str(value)):
        number = int(str(value))
        return AssertedMetric(
            kind="length", options={"unit": "words", "min": number, "max": number}
        )
    return None


def _compared(kind: str, value: Json, threshold: Json) -> AssertedMetric | None:
    name, options = _COMPARED[kind]
    if kind == "equals" and value == "":
        return AssertedMetric(kind="length", options={"max": 0})
    if kind == "equals" and isinstance(value, (dict, list, bool)):
        return AssertedMetric(kind="json_match", options={}, reference=value)
    if "threshold" in options and threshold is not None:
        options = {**options, "threshold": threshold}
    reference = _reference(kind, value)
    return AssertedMetric(kind=name, options=options, reference=reference) if reference else None


def _reference(kind: str, value: Json) -> Json:
    """Return the value to compare answers with; None if it is unusable."""
    if kind.endswith(("-all", "-any")):
        words = value.split(",") if isinstance(value, str) else value
        texts = [str(word).strip() for word in words] if isinstance(words, list) else []
        return [text for text in texts if text]
    if value is None or isinstance(value, (bool, dict, list)):
        return None
    if kind == "starts-with":
        return rf"\A{re.escape(str(value))}"
    if kind == "regex":
        # Groups with names, as JavaScript writes them.
        value = re.sub(r"(?<!\\)\(\?<(?=[A-Za-z_])", "(?P<", str(value))
        try:
            hold_pattern(value)
        except ConfigError:
            return None
    return str(value)


def _schema(value: Json, further: Mapping[str, Json]) -> AssertedMetric | None:
    try:
        schema = json.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except ValueError:
        return None
    is_schema = isinstance(schema, dict)
    return (
        AssertedMetric(kind="json_schema", options={"schema": schema, **further})
        if is_schema
        else None
    )
