"""The layers of the code, and the house figures that can be counted."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest

SOURCE = Path(__file__).parents[1] / "src" / "promptgraft"

# From the top; imports go down only, and packages of one row do not import each other.
ROWS = (
    {"bridges"},
    {"service"},
    {"service.server"},
    {"service.jobs"},
    {"service.database"},
    {"cli"},
    {"project"},
    {"runs"},
    {"algorithms"},
    {"search"},
    {"agents", "graphs"},
    {"targets"},
    {"evals"},
    {"adapters"},
    {"prompt"},
    {"overrides", "runtime", "journal"},
    {"overrides.parts"},
    {"ground", "errors"},
)
LEVELS = {unit: level for level, row in enumerate(ROWS) for unit in row}
# The lowest row: the errors are public, and the rest of the ground builds on them.
GROUND = ROWS[-1]
# Their folders stand in rows of their own.
ROOFS = {"bridges", "service", "overrides"}
# The face of the package hands on names of every layer; nobody below imports it.
FACES = {"__init__", "__main__"}
# May import anything, and nobody imports it.
TESTING = "testing"

# Library: where it may be imported at all, and whether only when it is needed.
HEAVY: Mapping[str, tuple[str | tuple[str, ...], bool]] = {
    "baml_py": ("bridges/baml/", True),
    "click": (("cli/", "service/commands/"), False),
    "hypothesis": ("testing/", False),
    "jinja2": (
        (
            "prompt/jinja.py",
            "prompt/sandbox.py",
            "evals/metrics/expressions.py",
            "runs/report/page.py",
            "service/server/pages.py",
        ),
        True,
    ),
    "PIL": ("runs/report/data.py", True),
    "joserfc": ("service/server/oidc.py", True),
    "jsonschema": ("evals/metrics/", True),
    "markdown_it": ("project/markdown/", True),
    "opentelemetry": ("bridges/telemetry.py", True),
    "pytest": (("testing/", "bridges/pytest_plugin"), False),
    "rapidfuzz": ("evals/metrics/", True),
    "regex": ("evals/metrics/patterns.py", True),
    "numpy": ("evals/gains.py", True),
    "prometheus_client": ("service/server/", False),
    "pydantic": (("bridges/baml/", "ground/strict/converter.py"), True),
    "rich": (("cli/", "service/commands/"), False),
    "scipy": ("evals/gains.py", True),
    "starlette": ("service/server/", False),
    "uvicorn": ("service/server/", False),
    "sqlalchemy": (
        (
            "service/database/",
            "service/jobs/",
            "service/server/sessions.py",
            "service/server/tokens.py",
        ),
        False,
    ),
}
# Import a heavy library and are themselves imported only when they are needed.
LATE = tuple(f"promptgraft.{name}" for name in ("prompt.sandbox", "service"))
LONGEST_MODULE = 700
MOST_FOLDERS = 18
MOST_LATE = 130
"""Imports inside of functions; may only fall."""
MOST_SHARED = 47
"""Classes that share their name with another one; may only fall."""
LONGEST_FUNCTION = 60


@attrs.frozen
class Import:
    """One imported module, and whether it is loaded only when it is needed."""

    name: str
    line: int
    lazy: bool


@attrs.frozen
class Module:
    """One parsed file of the package, gone through once for all rules."""

    path: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...] = attrs.field(init=False)
    imports: tuple[Import, ...] = attrs.field(init=False)

    @nodes.default
    def _all_nodes(self) -> tuple[ast.AST, ...]:
        return tuple(_nodes(self.tree))

    @imports.default
    def _all_imports(self) -> tuple[Import, ...]:
        return tuple(_imports(self, self.tree, lazy=False))

    @property
    def unit(self) -> str:
        """The package or module directly below ``promptgraft``, or below one of its roofs."""
        return unit_of(self.path.removesuffix(".py").split("/"))

    @property
    def package(self) -> tuple[str, ...]:
        return ("promptgraft", *self.path.split("/")[:-1])


def unit_of(parts: Sequence[str]) -> str:
    """Return which row's name stands for a module whose path below ``promptgraft`` this is.

    A folder under a roof that stands in a row of its own is a unit; the rest of the roof is one.
    """
    under_roof = ".".join(parts[:2])
    if parts[0] in ROOFS and parts[1:] == ["__init__"]:
        return "__init__"
    return under_roof if parts[0] in ROOFS and under_roof in LEVELS else parts[0]


def modules_of(source: Path) -> list[Module]:
    files = sorted(path for path in source.rglob("*.py"))
    texts = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in files}
    return [Module(path, text, ast.parse(text)) for path, text in texts.items()]


@functools.cache
def own_modules() -> list[Module]:
    """Return the modules of the package, parsed once for all tests."""
    return modules_of(SOURCE)


_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.boolop)
"""Most nodes, of which no rule says anything."""


def _children(node: ast.AST) -> list[ast.AST]:
    return [child for child in ast.iter_child_nodes(node) if not isinstance(child, _LEAVES)]


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        waiting += _children(node)
        yield node


def _imports(module: Module, node: ast.AST, *, lazy: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _base(module, node)
        yield from (Import(f"{base}.{alias.name}", node.lineno, lazy) for alias in node.names)
    elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
        for argument in node.args[:1]:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield Import(argument.value, node.lineno, lazy)
    inside = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    if isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING":
        for statement in node.body:
            yield from _imports(module, statement, lazy=True)
        for statement in node.orelse:
            yield from _imports(module, statement, lazy=lazy)
        return
    for child in _children(node):
        yield from _imports(module, child, lazy=inside)


def _base(module: Module, node: ast.ImportFrom) -> str:
    above = module.package[: len(module.package) - node.level + 1] if node.level else ()
    return ".".join((*above, *((node.module,) if node.module else ())))


def _called(node: ast.Call) -> str:
    return _name(node.func)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def layer_faults(module: Module) -> Iterator[str]:
    """Yield imports that go up or sideways."""
    if module.unit in {*FACES, TESTING}:
        return
    if module.unit not in LEVELS:
        yield f"{module.path}: `{module.unit}` stands in no row of the table"
        return
    for found in module.imports:
        package, _, rest = found.name.partition(".")
        target = unit_of(rest.split("."))
        if package != "promptgraft" or target in {module.unit, "__version__"}:
            continue
        if target not in LEVELS:
            yield f"{module.path}:{found.line}: imports `{found.name}`; import it from its home"
            continue
        if LEVELS[target] <= LEVELS[module.unit] and not {target, module.unit} <= GROUND:
            yield f"{module.path}:{found.line}: `{module.unit}` may not import `{target}`"


NEUTRAL = {"runs", "evals", "project", "cli", "bridges", "search", "targets"}
"""Units that serve any algorithm and so name none; `promptgraft.algorithms` finds them by name."""

OF_ANY = {"algorithm", "shipped_questions"}
"""What `promptgraft.algorithms` has for those who name none."""


def algorithm_faults(module: Module) -> Iterator[str]:
    """Yield imports of an algorithm by those who are to serve any."""
    for found in module.imports:
        parts = found.name.split(".")
        named = parts[:2] == ["promptgraft", "algorithms"] and len(parts) > 2
        if module.unit in NEUTRAL and named and parts[2].islower() and parts[2] not in OF_ANY:
            yield f"{module.path}:{found.line}: `{module.unit}` names an algorithm, `{found.name}`"


def library_faults(module: Module) -> Iterator[str]:
    """Yield imports of heavy libraries where they do not belong, or too early."""
    for found in module.imports:
        library = found.name.split(".")[0]
        is_late = f"promptgraft.{_dotted(module.path)}".startswith(LATE)
        if found.name.startswith(LATE) and not (found.lazy or is_late):
            yield f"{module.path}:{found.line}: `{found.name}` is imported inside functions"
        if library not in HEAVY:
            continue
        home, lazily = HEAVY[library]
        where = f"{module.path}:{found.line}: `{library}`"
        if not module.path.startswith(home):
            homes = home if isinstance(home, str) else " and ".join(home)
            yield f"{where} is imported only in {homes}"
        elif lazily and not found.lazy and not is_late:
            yield f"{where} is imported inside the functions that need it"


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def size_faults(module: Module) -> Iterator[str]:
    """Yield modules and functions that are too long."""
    lines = len(module.text.splitlines())
    if lines > LONGEST_MODULE:
        yield f"{module.path}: {lines} lines; at most {LONGEST_MODULE}"
    for node in module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node) else 0)
            if length > LONGEST_FUNCTION:
                yield (
                    f"{module.path}:{node.lineno}: `{node.name}` has {length} lines without its "
                    f"docstring; at most {LONGEST_FUNCTION}"
                )


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def manner_faults(module: Module) -> Iterator[str]:
    """Yield prints outside the command line and modules that do not say what they are."""
    if not ast.get_docstring(module.tree):
        yield f"{module.path}: has no docstring"
    for node in module.nodes:
        if _prints(node) and module.unit not in {"cli", "__main__"}:
            yield f"{module.path}: prints `{ast.unparse(node)}`; only the command line does"


def _prints(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id == "print"


RULES = (layer_faults, algorithm_faults, library_faults, size_faults, manner_faults)


def faults_in(source: Path) -> list[str]:
    modules = own_modules() if source == SOURCE else modules_of(source)
    folders = sorted({module.path.rpartition("/")[0] for module in modules})
    nameless = [folder for folder in folders if not (source / folder / "__init__.py").exists()]
    return [
        *(f"{folder}: has no __init__.py" for folder in nameless),
        *(fault for module in modules for rule in RULES for fault in rule(module)),
    ]


def test_imports_go_down_only_and_modules_keep_the_house_figures() -> None:
    assert len(list(SOURCE.rglob("*.py"))) > 30
    faults = faults_in(SOURCE)
    assert not faults, "\n".join(faults)


GOOD: Mapping[str, str] = {
    "__init__.py": "import importlib\nfrom promptgraft.search import base\n",
    "errors.py": "",
    "ground/serde.py": "from promptgraft import errors\nimport attrs\n",
    "runtime/__init__.py": "from promptgraft.runtime.session import Session\n",
    "runtime/session.py": "from ..ground.serde import dump\nfrom . import deadline\n",
    "runtime/deadline.py": "def f():\n    import fcntl\n",
    "prompt/jinja.py": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import jinja2\n"
        "def f():\n    from jinja2 import meta\n"
    ),
    "search/base.py": "from promptgraft.runtime import Session\nSession().print(1)\n",
    "algorithms/gepa/loop.py": "from promptgraft.search.context import x\nfrom ..base import y\n",
    "cli/main.py": "from promptgraft import __version__\nimport click, rich.table\nprint(1)\n",
    "testing/contract.py": "import pytest\nfrom promptgraft.cli import main\n",
}


def write(source: Path, files: Mapping[str, str]) -> Path:
    for path, code in files.items():
        file = source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'"""What it is."""\n{code}', "utf-8")
        for folder in (parent for parent in file.parents if parent.is_relative_to(source)):
            if not (folder / "__init__.py").exists():
                (folder / "__init__.py").write_text('"""A package."""\n', "utf-8")
    return source


def late_imports(modules: Sequence[Module]) -> list[str]:
    """Return the imports of the package by itself inside of functions, or for types only."""
    return [
        f"{module.path}:{found.line}: {found.name}"
        for module in modules
        for found in module.imports
        if found.lazy
        and found.name.startswith("promptgraft.")
        and module.path.count("__init__") == 0
    ]


def imports_within(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Return the modules that each one imports, late and for types only included."""
    names = {module_name(module) for module in modules}
    graph: dict[str, set[str]] = {}
    for module in modules:
        targets = (nearest(imported.name, names) for imported in module.imports)
        graph[module_name(module)] = {name for name in targets if name} - {module_name(module)}
    return graph


def module_name(module: Module) -> str:
    """Return the dotted name of a module."""
    return "promptgraft." + module.path.removesuffix(".py").replace("/", ".").removesuffix(
        ".__init__"
    )


def nearest(name: str, names: set[str]) -> str:
    """Return the module that an imported name is in; empty if it is not one of ours."""
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that all import each other, directly or not."""
    reach = {name: reached(name, graph) for name in graph}
    groups = {
        tuple(sorted(other for other in reach[name] if name in reach[other])) for name in graph
    }
    return sorted(list(group) for group in groups if len(group) > 1)


def reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that one imports, directly or not."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = graph.get(waiting.pop(), set()) - seen
        seen |= fresh
        waiting += fresh
    return seen


def test_classes_of_different_ideas_have_different_names() -> None:
    by_name: dict[str, list[str]] = {}
    for module in own_modules():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                by_name.setdefault(node.name, []).append(f"{module.path}:{node.lineno}")
    shared = {name: places for name, places in by_name.items() if len(places) > 1}
    count = sum(map(len, shared.values()))
    lines = [f"{name}: {', '.join(places)}" for name, places in sorted(shared.items())]
    assert count <= MOST_SHARED, "one class name for one idea:\n" + "\n".join(lines)


def test_no_modules_import_each_other_in_a_circle() -> None:
    groups = circles(imports_within(own_modules()))
    assert not groups, (
        "late and type-only imports hide a circle; move what is shared\n"
        + "\n".join(" ".join(group) for group in groups)
    )


@pytest.mark.parametrize(
    "back",
    [
        "from promptgraft.runtime.session import x\n",
        "def f():\n    from promptgraft.runtime import session\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .session import x\n",
    ],
)
def test_a_late_import_does_not_hide_a_circle(tmp_path: Path, back: str) -> None:
    files = {
        "runtime/session.py": "from promptgraft.runtime.deadline import y\n",
        "runtime/deadline.py": back,
    }
    assert circles(imports_within(modules_of(write(tmp_path, files)))) == [
        ["promptgraft.runtime.deadline", "promptgraft.runtime.session"]
    ]


def test_imports_inside_of_functions_do_not_become_more() -> None:
    late = late_imports(own_modules())
    assert len(late) <= MOST_LATE, "only for extras and start-up: import at the top\n" + "\n".join(
        late
    )


def test_few_folders_lie_side_by_side() -> None:
    folders = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    assert len(folders) <= MOST_FOLDERS, sorted(folders)


def test_no_script_of_the_pages_has_the_name_of_a_standard_module() -> None:
    # The wheel holds them and a plugin of pytest, which then takes them for modules of its own: a
    # `site.py` among them ends every pytest in a new environment.
    names = {path.stem for path in (SOURCE.parents[1] / "docs").glob("*.py")}
    assert not names & sys.stdlib_module_names


def test_the_specifications_have_these_layers() -> None:
    page = Path(__file__).parents[1] / "specs" / "README.md"
    drawn = page.read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    assert [set(row.split()) for row in drawn.splitlines()] == list(ROWS)


def test_a_tree_that_keeps_the_rules_has_no_faults(tmp_path: Path) -> None:
    assert faults_in(write(tmp_path, GOOD)) == []


@pytest.mark.parametrize(
    ("path", "code", "fault"),
    [
        ("errors.py", "import promptgraft.cli.main", ":2: `errors` may not import `cli`"),
        ("prompt/a.py", "from promptgraft.adapters import base", ":2: `prompt` may not import"),
        ("prompt/a.py", "def f():\n    from promptgraft import runs", ":3: `prompt` may not"),
        ("prompt/a.py", "class A:\n    import promptgraft.runs", ":3: `prompt` may not"),
        (
            "prompt/a.py",
            "import typing\nif typing.TYPE_CHECKING:\n    import promptgraft.runs",
            ":4: `prompt` may not import `runs`",
        ),
        ("prompt/sub/a.py", "from ...runs import report", ":2: `prompt` may not import `runs`"),
        ("prompt/sub/a.py", "from ... import runs", ":2: `prompt` may not import `runs`"),
        (
            "prompt/a.py",
            "import importlib\ndef f():\n    importlib.import_module('promptgraft.runs')",
            ":4: `prompt` may not import `runs`",
        ),
        ("journal/a.py", "import promptgraft.runtime.session", ":2: `journal` may not import"),
        ("overrides/a.py", "from promptgraft import runtime", ":2: `overrides` may not import"),
        (
            "cli/a.py",
            "def f():\n    import promptgraft.service.server",
            ":3: `cli` may not import `service.server`",
        ),
        ("evals/a.py", "import promptgraft.agents", ":2: `evals` may not import `agents`"),
        ("runs/a.py", "from promptgraft import Prompt", "imports `promptgraft.Prompt`; import it"),
        ("runs/a.py", "import promptgraft", "imports `promptgraft`; import it from its home"),
        ("cli/a.py", "from promptgraft.testing import x", "imports `promptgraft.testing.x`"),
        ("runs/a.py", "from promptgraft.algorithms.gepa import x", "`runs` names an algorithm"),
        ("utils.py", "", "`utils` stands in no row of the table"),
        ("prompt/jinja.py", "import jinja2", ":2: `jinja2` is imported inside the functions"),
        ("prompt/a.py", "def f():\n    import jinja2.meta", "`jinja2` is imported only in prompt/"),
        ("runs/a.py", "def f():\n    import click", ":3: `click` is imported only in cli/"),
        ("runs/a.py", "from rich.table import Table", ":2: `rich` is imported only in cli/"),
        ("evals/gains.py", "import scipy", ":2: `scipy` is imported inside the functions"),
        ("runs/a.py", "def f():\n    import pytest", "`pytest` is imported only in testing/"),
        ("runs/a.py", "import hypothesis", "`hypothesis` is imported only in testing/"),
        ("runs/a.py", "x = 1\n" * 700, "runs/a.py: 701 lines; at most 700"),
        ("runs/a.py", "def f():\n" + "    x = 1\n" * 60, ":2: `f` has 61 lines without its"),
        (
            "runs/a.py",
            "class A:\n    async def f(self):\n" + "        x = 1\n" * 60,
            ":3: `f` has 61 lines without its docstring; at most 60",
        ),
        ("runs/a.py", "def f():\n    print(1)", ": prints `print(1)`; only the command line does"),
    ],
)
def test_a_tree_that_breaks_a_rule_has_one_fault(
    path: str, code: str, fault: str, tmp_path: Path
) -> None:
    write(tmp_path, {**GOOD, path: code})

    found = faults_in(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(path)
    assert fault in found[0]


def test_a_folder_of_modules_is_a_package(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "runtime" / "__init__.py").unlink()
    assert faults_in(tmp_path) == ["runtime: has no __init__.py"]


def test_docstrings_do_not_count_as_length_but_modules_need_them(tmp_path: Path) -> None:
    long = 'def f():\n    """One.\n' + "\n    More.\n" * 50 + '    """\n' + "    x = 1\n" * 59
    assert faults_in(write(tmp_path, {"runs/a.py": long})) == []

    (tmp_path / "runs" / "__init__.py").write_text("x = 1\n", "utf-8")
    assert faults_in(tmp_path) == ["runs/__init__.py: has no docstring"]
