"""Identities of functions: a name, and a digest of the source that determines their results.

The digest covers a function and everything it uses from the user's own modules: functions, classes
and constants, through imports, closures, partials and decorators. It ignores comments, layout and
module names. For libraries only the imported names count.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, FunctionType, MethodType, NoneType
from typing import Any

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground import python_code
from promptgraft.ground.entry_points import place_in_package
from promptgraft.ground.python_code import CodeSource, Import
from promptgraft.ground.serde import digest, shown
from promptgraft.ground.text import raised

_DIGITS = 12
_OBJECT = re.compile(r"<(?:[\w.]|<locals>)*?(\w+) object at 0x[0-9a-f]+>")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LIBRARIES = (Path(os.__file__).parent, Path(__file__).parents[1])
_PACKAGES = {"site-packages", "dist-packages"}
_NUMBERS = (int, float, complex, Decimal)
_PLAIN = (str, bytes, *_NUMBERS, NoneType, date, time, timedelta, Enum, re.Pattern)
# Attributes that only these assign are settings, which determine results, and not state.
_MAKERS = {"__init__", "__post_init__", "__attrs_post_init__"}


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
    if not callable(function):
        return ""
    try:
        signature = _signature(function)
    except (TypeError, ValueError):  # written in C
        return ""
    try:
        signature.bind(*given, **dict.fromkeys(named))
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        expected_arguments = ", ".join([*given, *(f"{name}=..." for name in named)])
        # Without defaults and annotations, which may be long, or secret.
        takes = ", ".join(_spelled(parameter) for parameter in signature.parameters.values())
        return f"{name}() cannot be called with ({expected_arguments}): its arguments are ({takes})"
    return ""


def _signature(function: Callable[..., object]) -> inspect.Signature:
    # Of an object, `inspect` drops the first argument also where `__call__` is a static method.
    call = inspect.getattr_static(type(function), "__call__", None)
    return inspect.signature(call.__func__ if isinstance(call, staticmethod) else function)


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


def _spelled(parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name


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


def texts_in_code(function: object) -> tuple[str, ...]:
    """Return the texts that a function holds, and those of the module's constants that it uses.

    Its docstring is left out. Empty for what is not a plain function.
    """
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType):
        return ()
    texts: list[str] = []
    pending: list[CodeType] = [function.__code__]
    while pending:
        code = pending.pop()
        used = (function.__globals__.get(name) for name in code.co_names)
        for value in (*code.co_consts, *used):
            if isinstance(value, CodeType):
                pending.append(value)
            elif isinstance(value, (tuple, list, set, frozenset)):
                texts += [item for item in value if isinstance(item, str)]
            elif isinstance(value, str):
                texts.append(value)
    return tuple(dict.fromkeys(text for text in texts if text != function.__doc__))


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


@functools.lru_cache(maxsize=256)
def is_own(file: str) -> bool:
    """Return whether a file is the user's own, not part of Python, promptgraft or a library."""
    path = Path(file)
    is_library = any(path.is_relative_to(library) for library in _LIBRARIES)
    return not (not file or file.startswith("<frozen ") or is_library or _PACKAGES & {*path.parts})


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
            case list() | tuple() | set() | frozenset():
                # The order of a set differs from process to process.
                items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
                for place, item in enumerate(items):
                    self._later(f"{label}[{place}]", item)
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
        state = python_code.changed(nodes)
        for name, item in python_code.bound_to(function):
            # Plain values that a library binds may be its state; user's functions are not.
            if name not in state and (is_our_own or not isinstance(item, _PLAIN)):
                self._later(f"{function.__qualname__}.{name}", item)
        self._later("", getattr(function, "__wrapped__", ()))

    def _compiled(self, function: FunctionType) -> None:
        """Use the bytecode if the file does not contain the code, or no longer does."""
        code, file = function.__code__, function.__code__.co_filename
        if code not in self._source(file).codes.get(python_code.place_of(code), ()):
            self._texts.update(map(python_code.bytecode, python_code.codes_in(code)))
            for name in python_code.loaded(code):
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
                # Methods that attrs and dataclasses generate have no file.
                if isinstance(method, FunctionType) and method.__code__.co_filename[:1] != "<":
                    self._later("", method)
                    state |= set() if name in _MAKERS else python_code.changed(self._nodes(method))
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
            self._texts.add(python_code.text_of(node))
            imports = python_code.imports_in(node)
            for path in python_code.used(node):
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
                module, path = python_code.imported(statement)[name]
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
        file, folders = python_code.found_module(module)
        is_our_own = is_own(file) if file else bool(folders)
        if not is_our_own:
            self._texts.add(f"from {module} import {path[:1]}")
            return
        bound = self._source(file).bound if file and file != by else {}
        inner = f"{module}.{path[0]}" if path and path[0] not in bound else ""
        if inner and python_code.found_module(inner) != (None, None):
            self._import(inner, path[1:], by=by)
        elif path and file:
            holds = vars(sys.modules[module]) if module in sys.modules else {}
            self._later("", _Use(file, holds, path))

    def _source(self, file: str) -> CodeSource:
        if file not in self._sources:
            self._sources[file] = python_code.source_of(file)
        return self._sources[file]

    def _nodes(self, function: FunctionType) -> list[ast.AST]:
        code = function.__code__
        is_our_own = is_own(code.co_filename)
        return (
            self._source(code.co_filename).nodes.get(python_code.place_of(code), [])
            if is_our_own
            else []
        )
