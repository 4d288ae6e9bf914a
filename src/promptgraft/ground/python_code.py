"""Analysis of Python source and bytecode: the names that code binds, uses and changes."""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import linecache
import sys
import threading
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from types import CodeType, FunctionType

import attrs

Place = tuple[int, str]
"""First line and name of a function."""
Import = ast.Import | ast.ImportFrom

_BLOCKS = (ast.If, ast.Try, ast.ExceptHandler, ast.With, ast.Match, ast.match_case)


# `ast.parse` in two threads at once raises SystemError in Python 3.11 (python/cpython#106905).
_PARSING = threading.Lock()


@attrs.frozen(eq=False)
class CodeSource:
    """A parsed file: the statements that bind or change each name, and its functions."""

    bound: dict[str, list[ast.stmt]] = attrs.field(factory=dict)
    nodes: dict[Place, list[ast.AST]] = attrs.field(factory=dict)
    codes: dict[Place, list[CodeType]] = attrs.field(factory=dict)


def source_of(file: str) -> CodeSource:
    """Parse the current content of a file; empty if it is not readable Python."""
    try:
        with tokenize.open(file) as opened:
            text = opened.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        text = "".join(linecache.getlines(file))  # cells of notebooks exist only there
    return _parsed(file, text)


# By text too, because a file may be edited while the process runs.
@functools.lru_cache(maxsize=64)
def _parsed(file: str, text: str) -> CodeSource:
    source = CodeSource()
    try:
        # `dont_inherit`, or the `annotations` import of this module would apply to the source.
        with _PARSING:
            tree, module = ast.parse(text), compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return source
    for name, statement in _bindings(tree):
        source.bound.setdefault(name, []).append(statement)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            # The code of a decorated function begins at its first decorator.
            first = min(
                statement.lineno for statement in (node, *getattr(node, "decorator_list", ()))
            )
            source.nodes.setdefault((first, getattr(node, "name", "<lambda>")), []).append(node)
    for code in codes_in(module):
        source.codes.setdefault(place_of(code), []).append(code)
    return source


def place_of(code: CodeType) -> Place:
    """Return the place of compiled code in its file."""
    return code.co_firstlineno, code.co_name


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield compiled code and all code nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def bytecode(code: CodeType) -> str:
    """Return the instructions and constants of compiled code, without its place in a file."""
    # The order of a frozenset depends on the hash seed of the process.
    constants = [
        str(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)
        for constant in code.co_consts
        if not isinstance(constant, CodeType)
    ]
    return repr((code.co_code, code.co_names, constants))


def _bindings(parent: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that the statements of a module bind or change."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, _BLOCKS):
            yield from _bindings(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node
        elif isinstance(node, Import):
            yield from ((name, node) for name in imported(node))
        elif isinstance(node, ast.stmt):
            names = (name_node for name_node in ast.walk(node) if isinstance(name_node, ast.Name))
            stored = {
                name_node.id for name_node in names if not isinstance(name_node.ctx, ast.Load)
            }
            yield from ((name, node) for name in stored | changed([node]))


def imported(statement: Import) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return for each bound name its module, with leading dots if relative, and its name there.

    ``import a.b`` binds ``a``; ``import a.b as c`` binds ``a.b``.
    """
    if isinstance(statement, ast.ImportFrom):
        module = "." * statement.level + (statement.module or "")
        return {alias.asname or alias.name: (module, (alias.name,)) for alias in statement.names}
    bound = {alias.asname or alias.name.partition(".")[0]: alias for alias in statement.names}
    return {name: (alias.name if alias.asname else name, ()) for name, alias in bound.items()}


@functools.lru_cache(maxsize=1024)
def text_of(node: ast.AST) -> str:
    """Return the source of a node without comments."""
    return ast.unparse(node)


@functools.lru_cache(maxsize=1024)
def imports_in(node: ast.AST) -> dict[str, Import]:
    """Return the imports inside a node by the names that they bind."""
    inside = (statement for statement in ast.walk(node) if isinstance(statement, Import))
    return {name: statement for statement in inside for name in imported(statement)}


@functools.lru_cache(maxsize=1024)
def used(node: ast.AST) -> set[tuple[str, ...]]:
    """Return the global and imported names that a node uses, with their attributes."""
    names = {name_node.id for name_node in ast.walk(node) if isinstance(name_node, ast.Name)}
    statement = ast.Expr(node) if isinstance(node, ast.expr) else node
    if isinstance(statement, ast.stmt):
        module = ast.fix_missing_locations(ast.Module([statement], []))
        # A nested function with `nonlocal` does not compile alone; then every name counts.
        with contextlib.suppress(SyntaxError):
            names = loaded(compile(module, "<part>", "exec", dont_inherit=True))
    names |= imports_in(node).keys()
    names_used = set()
    for inner_node in ast.walk(node):
        path: tuple[str, ...] = ()
        inner: ast.AST = inner_node
        while isinstance(inner, ast.Attribute):
            path, inner = (inner.attr, *path), inner.value
        if isinstance(inner, ast.Name) and inner.id in names:
            names_used.add((inner.id, *path))
    return names_used


def loaded(code: CodeType) -> set[str]:
    """Return the global names that compiled code loads."""
    return {
        str(instruction.argval)
        for part in codes_in(code)
        for instruction in dis.get_instructions(part)
        if instruction.opname == "LOAD_NAME" or instruction.opname.endswith("GLOBAL")
    }


def changed(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names and attributes that code changes, which hold its state."""
    names_changed: set[str] = set()
    for node in (inner for each in nodes for inner in ast.walk(each)):
        match node:
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                names_changed.update(names)
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                names_changed.add(name)
            case (
                ast.Subscript(value=value, ctx=ast.Store() | ast.Del())
                | ast.Expr(value=ast.Call(func=ast.Attribute(value=value)))
            ):
                names_changed.add(getattr(value, "attr", getattr(value, "id", "")))
    return names_changed


def bound_to(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the values bound to a function: its closure and the defaults of its arguments."""
    code, defaults = function.__code__, function.__defaults__ or ()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet
            yield name, cell.cell_contents
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    yield from zip(names, defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def found_module(name: str) -> tuple[str | None, Sequence[str] | None]:
    """Return the file of a module and the folders of its submodules, without importing it."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__file__", None), getattr(module, "__path__", None)
    parent = name.rpartition(".")[0]
    folders = found_module(parent)[1] if parent else None
    # Not `importlib.util.find_spec`, which imports the parents.
    spec = PathFinder.find_spec(name, folders) if folders or not parent else None
    return (spec.origin, spec.submodule_search_locations) if spec else (None, None)
