"""Code in configurations of promptfoo, which is never run here: prompts and stubs.

A function that only fills in a template is translated. What remains becomes a stub: a function with
the original beside it, which raises until somebody writes it.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.ground.strict.nodes import Node
from promptgraft.ground.text import visible
from promptgraft.project.imported import Messages, name_of

METRICS_MODULE, MODELS_MODULE = "metrics.py", "models.py"
_METRICS = '''"""Metrics that `promptgraft import` could not convert: write them here.

A metric gets the case and the answer, and returns a score from 0 to 1 or a boolean, or either with
a reason. `case.input` holds the variables that the prompt reads, `case.fields["vars"]` all others,
`answer.text` what the model said. To do without a metric, let it return True.
"""
'''
_MODELS = '''"""Models that `promptgraft import` could not convert: write them here.

Each function returns an adapter: an object with a method `evaluate`, which
`help(promptgraft.ProviderAdapter)` describes. Or name a model in `promptgraft.yaml` instead.
"""
'''
_LONGEST_CODE = 4_000
_CODE = re.compile(
    r"^(?:file://|python:|exec:)?([^\s{}]+\.(?:py|js|cjs|mjs|ts|cts|mts|rb))(?::(\w+))?$"
)


def code_reference(text: str) -> tuple[str, str] | None:
    """Return the file and the function that a text names; None if it names no code."""
    match = _CODE.match(text.strip())
    return None if match is None else (match[1], match[2] or "")


@attrs.define
class Stubs:
    """The functions that the user has to write.

    Attributes:
        metrics: the module of metrics, a file that does not exist yet.
        models: the module of models, likewise.
    """

    metrics: str = METRICS_MODULE
    models: str = MODELS_MODULE
    _named: dict[tuple[str, str, str], str] = attrs.field(factory=dict)
    _lines: dict[str, list[str]] = attrs.field(factory=dict)

    def metric(self, name: str, node: Node, original: str) -> str:
        """Return the reference of a metric; the same original gives the same function."""
        return self._added(self.metrics, name, node, original)

    def model(self, name: str, node: Node, original: str) -> str:
        """Return the reference of a function that makes a model."""
        return self._added(self.models, name, node, original)

    def _added(self, module: str, name: str, node: Node, original: str) -> str:
        key = module, name, original
        if key not in self._named:
            names_taken = [
                name_in_module
                for (where, *_), name_in_module in self._named.items()
                if where == module
            ]
            new_name = name_of(name, joint="_")
            is_name = new_name.isidentifier() and not keyword.iskeyword(new_name)
            new_name = name_of(new_name if is_name else f"x_{new_name}", names_taken, joint="_")
            self._named[key] = new_name
            arguments = "case, answer" if module == self.metrics else ""
            comments = [node.source.line(node.path, "").strip().rstrip(":")]
            comments += original[:_LONGEST_CODE].splitlines()
            lines = self._lines.setdefault(module, [])
            lines += _stub(f"{new_name}({arguments})", comments, f"write `{new_name}` in {module}")
        return f"{module}:{self._named[key]}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{module}:{name}" for (module, *_), name in self._named.items())

    @property
    def files(self) -> dict[str, str]:
        """The contents of the modules."""
        return {
            module: "\n".join([_METRICS if module == self.metrics else _MODELS, *lines])
            for module, lines in self._lines.items()
        }


def _stub(head: str, comments: Sequence[str], message: str) -> list[str]:
    # Comments, because text of a foreign file must never become code.
    noted = [f"    # {visible(line)}".rstrip() for line in comments]
    return ["", f"def {head}:", *noted, f"    raise NotImplementedError({message!r})", ""]


def python_prompt(text: str, function: str) -> Messages | None:
    """Return the prompt that a Python function makes, if it returns one template of its variables.

    The function is not run: texts, f-strings, additions, `format` and messages are read.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [statement for statement in module.body if isinstance(statement, ast.FunctionDef)]
    named = [candidate for candidate in functions if candidate.name == function or not function]
    if len(named) != 1:
        return None
    names: dict[str, ast.expr] = {}
    *before, last = named[0].body or [ast.Pass()]
    for statement in (*module.body, *before):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                names[target.id] = statement.value
        elif statement in before and not _is_docstring(statement):
            return None
    if not isinstance(last, ast.Return) or last.value is None:
        return None
    try:
        return list(_Template(names).messages(last.value))
    except (_NotSimpleError, RecursionError):
        return None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class _NotSimpleError(Exception):
    """The function does more than fill in a template."""


@attrs.frozen
class _Template:
    """Reads expressions of Python as templates of Jinja; ``names`` are assigned variables."""

    names: Mapping[str, ast.expr]

    def messages(self, node: ast.expr) -> Iterator[tuple[str, str]]:
        node = self._known(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "json.dumps" and node.args:
            node = self._known(node.args[0])
        if not isinstance(node, ast.List):
            yield "text", self.text(node)
            return
        for item in node.elts:
            if not isinstance(item, ast.Dict):
                raise _NotSimpleError
            pairs = {
                ast.literal_eval(key): value
                for key, value in zip(item.keys, item.values, strict=True)
                if isinstance(key, ast.Constant)
            }
            if set(pairs) != {"role", "content"}:
                raise _NotSimpleError
            yield self.text(pairs["role"]), self.text(pairs["content"])

    def text(self, node: ast.expr) -> str:
        node = self._known(node)
        match node:
            case ast.Constant(value=str(value)):
                # Literal braces of Python must not become a tag of Jinja.
                return re.sub(r"\{(?=[{%#])", "{{ '{' }}", value)
            case ast.JoinedStr(values=values):
                return "".join(map(self.text, values))
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self.text(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.text(left) + self.text(right)
            case ast.Call(func=ast.Attribute(value=value, attr="strip"), args=[]):
                return self.text(value).strip()
            case ast.Call(func=ast.Name(id="str"), args=[value]):
                return self.text(value)
        if name := self._variable(node):
            return f"{{{{ {name} }}}}"
        raise _NotSimpleError

    def _known(self, node: ast.expr) -> ast.expr:
        steps = 0
        while isinstance(node, ast.Name) and node.id in self.names and steps < 10:
            node, steps = self.names[node.id], steps + 1
        return node

    def _variable(self, node: ast.expr) -> str:
        """Return the name of the variable of the test that an expression reads."""
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
                pass
            case ast.Call(
                func=ast.Attribute(value=value, attr="get"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                pass
            case _:
                return ""
        whose = ast.unparse(self._known(value)).replace('"', "'")
        return (
            name
            if whose in ("context['vars']", "context.get('vars')", "context.get('vars', {})")
            and name.isidentifier()
            else ""
        )
