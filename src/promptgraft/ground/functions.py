"""Identities of functions: a name, and a digest of the source that determines their results.

The digest covers a function and everything it uses from the user's own modules: functions, classes
and constants, through imports, closures, partials and decorators. It ignores comments, layout and
module names. For libraries only the imported names count.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import inspect
import linecache
import os
import re
import sys
import threading
import tokenize
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, FunctionType, MethodType, NoneType
from typing import Any

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.entry_points import place_in_package
from promptgraft.ground.serde import digest, shown
from promptgraft.ground.text import raised

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
            parts = (node, *getattr(node, "decorator_list", ()))
            first = min(part.lineno for part in parts)
            source.nodes.setdefault((first, getattr(node, "name", "<lambda>")), []).append(node)
    for code in codes_in(module):
        source.codes.setdefault(place_of_code(code), []).append(code)
    return source


def place_of_code(code: CodeType) -> Place:
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
            names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
            stored = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
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
        if instruction.opname == "LOAD_NAME" or "GLOBAL" in instruction.opname
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


_DIGITS = 12
# Part by part, for a `repr` may hold long texts of models.
_OBJECT = re.compile(r"<(?:(?:\w+|<locals>)\.)*(\w+) object at 0x[0-9a-f]+>")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LIBRARIES = (Path(os.__file__).parent, Path(__file__).parents[1])
_NOT_OWN = ("<frozen ", *(f"{library}{os.sep}" for library in _LIBRARIES))
_PACKAGES = ("site-packages", "dist-packages")
_NUMBERS = (int, float, complex, Decimal)
_PLAIN = (str, bytes, *_NUMBERS, NoneType, date, time, timedelta, Enum, re.Pattern)
# Attributes that only these assign are settings, which determine results, and not state.
_MAKERS = {"__init__", "__post_init__", "__attrs_post_init__"}
_ANNOTATE = {"__annotate__", "__annotate_func__"}


def function_name(function: object) -> str:
    """Return ``file.name`` for a function of the user's, ``module.name`` for one of a library."""
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    name = getattr(named, "__qualname__", "")
    path = Path(_home(named))
    if not is_own(str(path)) or not path.is_file():
        return f"{named.__module__}.{name}"
    return f"{path.parent.name if path.stem == '__init__' else path.stem}.{name}"


def call_fault(function: object, *given: str, named: Collection[str] = ()) -> str:
    """Return why a function cannot be called with these arguments; empty if it can.

    Args:
        function: any callable; one whose signature cannot be read counts as callable.
        given: names of the positional arguments, for the message.
        named: names of the arguments that are given by name.
    """
    if (signature := signature_of(function)) is None:
        return ""
    try:
        signature.bind(*given, **dict.fromkeys(named))
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        expected_arguments = ", ".join([*given, *(f"{name}=..." for name in named)])
        # Without defaults and annotations, which may be long, or secret.
        takes = ", ".join(_spelled(signature))
        return f"{name}() cannot be called with ({expected_arguments}): its arguments are ({takes})"
    return ""


def first_argument(function: Callable[..., object]) -> str:
    """Return the name of a function's first argument; empty if there is none, or none is told."""
    signature = signature_of(function)
    return next(iter(signature.parameters), "") if signature else ""


def signature_of(function: object) -> inspect.Signature | None:
    """Return the signature of a callable; None if it has none, or is written in C and tells none.

    Types in it that are not defined stay names.
    """
    # `inspect` drops the first argument of `__call__` even where it is a static method.
    call = inspect.getattr_static(type(function), "__call__", None)
    called: Any = call.__func__ if isinstance(call, staticmethod) else function
    with contextlib.suppress(TypeError, ValueError):
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            # Types are evaluated only here; those imported for type checkers alone do not exist.
            return inspect.signature(called, annotation_format=Format.FORWARDREF)
        return inspect.signature(called)
    return None


def taking(*arguments: str) -> Callable[[object, attrs.Attribute[Any], object], None]:
    """Return the validator of an optional function that is called with these arguments."""

    def validate(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if value is None:
            return
        if not callable(value):
            raise ConfigError(f"{field.name}: expected a function, found {shown(value)}")
        if fault := call_fault(value, *arguments):
            raise ConfigError(f"{field.name}: {fault}")

    return validate


_STARS: Mapping[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _spelled(signature: inspect.Signature) -> Iterator[str]:
    takes_more = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not takes_more:
            yield "*"  # those that follow are given by name
        takes_more |= parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
        yield _STARS.get(parameter.kind, "") + parameter.name


def function_identity(function: object) -> str:
    """Return the ``identity`` of a callable, or its name and the first 12 digits of its digest.

    A function of a library has only a name.
    """
    identity: object = getattr(function, "identity", None)
    if isinstance(identity, str):
        return identity
    return f"{function_name(function)} {code_digest(function)}".rstrip()


def described(value: object) -> str:
    """Return the ``repr`` of a value, with a digest of the user's code that it holds, if any."""
    return f"{without_address(repr(value))} {code_digest(value)}".rstrip()


def without_address(text: str) -> str:
    """Return a ``repr`` without memory addresses and modules, which differ from run to run."""
    return _ADDRESS.sub("", _OBJECT.sub(r"<\1 object>", text))


def raised_at(error: BaseException) -> str:
    """Return type and message of an exception, with file and line of the user's code if any."""
    place = place_of(error)
    return f"{raised(error)}{f' ({place})' if place else ''}"


def place_of(error: BaseException, *, innermost: bool = False) -> str:
    """Return file and line of the user's code that raised an exception; empty if there is none.

    With ``innermost``, also empty if that code had called promptgraft, which raised; packages that
    add to promptgraft count as the user's code then.
    """
    place, frames = "", error.__traceback__
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if is_own(file) and not file.startswith("<"):
            path = Path(file)
            here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            place = f"{here}:{frames.tb_lineno}"
        elif innermost and Path(file).is_relative_to(_LIBRARIES[1]):
            place = ""
        frames = frames.tb_next
    return place or (place_in_package(error) if innermost else "")


def code_digest(value: object) -> str:
    """Return a digest of 12 digits of the user's code in a value; empty if it has none."""
    texts = _Walk().follow(value)
    return digest(sorted(texts))[:_DIGITS] if texts else ""


def _home(value: object) -> str:
    """Return the source file of a function, or of the class of an object; empty if unknown."""
    if isinstance(value, MethodType):
        value = value.__func__
    if callable(value) and hasattr(value, "__wrapped__"):
        value = inspect.unwrap(value)
    if isinstance(value, FunctionType):
        return value.__code__.co_filename
    kind = value if isinstance(value, type) else type(value)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file or ("<main>" if kind.__module__ == "__main__" else "")


def is_own(file: str) -> bool:
    """Return whether a file is the user's own, not part of Python, promptgraft or a library."""
    # Compared as texts, for it is asked of each of the thousands of modules of a program.
    if not file or file.startswith(_NOT_OWN):
        return False
    return not any(f"{os.sep}{name}{os.sep}" in file for name in _PACKAGES)


@attrs.frozen(eq=False)
class _Use:
    """A use of a name, with attributes, that a file binds or the using function imports.

    ``holds`` is the namespace of the module at present.
    """

    file: str
    holds: Mapping[str, object]
    path: tuple[str, ...]
    imports: Mapping[str, Import] = attrs.field(factory=dict)


class _Walk:
    """Collects the texts that determine the result of a function, each once."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._sources: dict[str, CodeSource] = {}
        self._seen: dict[int, object] = {}  # keeps the objects alive, because ids are reused
        self._used: set[tuple[str, tuple[str, ...], int]] = set()
        # A worklist instead of recursion, which deeply nested values could exhaust.
        self._waiting: list[tuple[str, object]] = []

    def follow(self, value: object) -> set[str]:
        self._later("", value)
        while self._waiting:
            label, item = self._waiting.pop()
            if isinstance(item, _PLAIN):
                self._texts.add(f"{label} = {item!r}")
            elif self._is_new(item):
                self._look(label, item)
        return self._texts

    def _later(self, label: str, value: object) -> None:
        self._waiting.append((label, value))

    def _is_new(self, one: object) -> bool:
        is_known = id(one) in self._seen
        self._seen[id(one)] = one
        return not is_known

    def _look(self, label: str, value: object) -> None:
        match value:
            case _Use():
                self._use(value)
            case list() | tuple():
                for place, item in enumerate(value):
                    self._later(f"{label}[{place}]", item)
            case set() | frozenset():
                # The order of a set, and addresses in memory, differ from process to process.
                spelled = {item: without_address(repr(item)) for item in value}
                places = {text: place for place, text in enumerate(sorted({*spelled.values()}))}
                for item, text in spelled.items():
                    self._later(f"{label}[{places[text]}]", item)
            case Mapping():
                for key, item in value.items():
                    self._later(f"{label}[{without_address(repr(key))}]", item)
            case functools.partial():
                self._later(label, [value.func, value.args, value.keywords])
            case MethodType():
                self._later(label, [value.__func__, value.__self__])
            case FunctionType():
                self._function(value)
            case type():
                self._class(value)
            case _:
                self._object(label, value)

    def _function(self, function: FunctionType) -> None:
        nodes, is_our_own = self._nodes(function), is_own(function.__code__.co_filename)
        for node in nodes:
            self._part(function.__code__.co_filename, function.__globals__, node)
        if is_our_own:
            self._compiled(function)
        state = changed(nodes)
        for name, item in bound_to(function):
            # Plain values that a library binds may be its state; user's functions are not.
            if name not in state and (is_our_own or not isinstance(item, _PLAIN)):
                self._later(f"{function.__qualname__}.{name}", item)
        self._later("", getattr(function, "__wrapped__", ()))

    def _compiled(self, function: FunctionType) -> None:
        """Use the bytecode if the file does not contain the code, or no longer does."""
        code, file = function.__code__, function.__code__.co_filename
        if code not in self._source(file).codes.get(place_of_code(code), ()):
            self._texts.update(map(bytecode, codes_in(code)))
            for name in sorted(loaded(code)):
                self._later("", _Use(file, function.__globals__, (name,)))

    def _class(self, kind: type) -> set[str]:
        """Follow a class of the user's; return the names that its methods change."""
        state: set[str] = set()
        for base in kind.__mro__:
            home = _home(base)
            if not is_own(home):
                continue
            self._later("", _Use(home, vars(sys.modules[base.__module__]), (base.__name__,)))
            for name, item in vars(base).items():
                method = getattr(item, "__func__", getattr(item, "fget", item))
                if name in _ANNOTATE:  # since Python 3.14; the source says it too
                    continue
                # Methods that attrs and dataclasses generate have no file.
                if isinstance(method, FunctionType) and method.__code__.co_filename[:1] != "<":
                    self._later("", method)
                    state |= set() if name in _MAKERS else changed(self._nodes(method))
        return state

    def _object(self, label: str, value: object) -> None:
        kind = type(value)
        state, is_our_own = self._class(kind), is_own(_home(kind))
        names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else []
        if is_our_own and not names:
            names = [*getattr(value, "__dict__", getattr(kind, "__slots__", ()))]
        for name in names:
            item: object = getattr(value, name, None)
            if name not in state and (is_our_own or not isinstance(item, _PLAIN)):
                self._later(f"{label}.{name}", item)
        self._later(label, getattr(value, "__wrapped__", ()))

    def _part(self, file: str, holds: Mapping[str, object], node: ast.AST) -> None:
        """Add a part of a file, and follow the names that it uses."""
        if self._is_new(node):
            self._texts.add(text_of(node))
            imports = imports_in(node)
            # In one order: a value with several names is told under the one that is followed first.
            for path in sorted(used(node)):
                self._later("", _Use(file, holds, path, imports))

    def _use(self, use: _Use) -> None:
        file, holds, (name, *rest) = use.file, use.holds, use.path
        inner = use.imports.get(name)
        if (key := (file, use.path, id(inner))) in self._used:
            return
        self._used.add(key)
        statements = [inner] if inner else self._source(file).bound.get(name, [])
        for statement in statements:
            if isinstance(statement, Import):
                module, path = imported(statement)[name]
                package = str(holds.get("__package__") or "")
                with contextlib.suppress(ImportError):  # a relative import outside of a package
                    self._import(resolve_name(module, package), (*path, *rest), by=file)
            else:
                self._part(file, holds, statement)
        # Names such as `__file__` differ from machine to machine.
        namespace = () if name.startswith("__") else holds.get(name, ())
        if not statements:
            self._later(name, namespace)
        elif isinstance(namespace, FunctionType) and namespace.__code__.co_filename == file:
            self._compiled(namespace)

    def _import(self, module: str, path: tuple[str, ...], *, by: str) -> None:
        """Follow a name and its attributes into a module; for a library record the name only.

        If a package imports a part of itself (``by`` is its own file), the submodule is meant.
        """
        file, folders = found_module(module)
        is_our_own = is_own(file) if file else bool(folders)
        if not is_our_own:
            self._texts.add(f"from {module} import {path[:1]}")
            return
        bound = self._source(file).bound if file and file != by else {}
        inner = f"{module}.{path[0]}" if path and path[0] not in bound else ""
        if inner and found_module(inner) != (None, None):
            self._import(inner, path[1:], by=by)
        elif path and file:
            holds = vars(sys.modules[module]) if module in sys.modules else {}
            self._later("", _Use(file, holds, path))

    def _source(self, file: str) -> CodeSource:
        if file not in self._sources:
            self._sources[file] = source_of(file)
        return self._sources[file]

    def _nodes(self, function: FunctionType) -> list[ast.AST]:
        code = function.__code__
        nodes = self._source(code.co_filename).nodes if is_own(code.co_filename) else {}
        return nodes.get(place_of_code(code), [])
