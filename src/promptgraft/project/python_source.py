"""Python that a user points at: ``module:NAME`` and ``file.py:NAME``."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Generic, TypeVar

import attrs

from promptgraft.errors import CallerError, ConfigError
from promptgraft.files import is_file
from promptgraft.runtime.event_loop import awaited
from promptgraft.serde import did_you_mean, shown
from promptgraft.strict.checks import check
from promptgraft.strict.kinds import without_name
from promptgraft.strict.nodes import Node

T = TypeVar("T")

HERE = Path()
"""The current folder."""

REFERENCE = check(
    "`file.py:NAME` or `module:NAME`",
    lambda value: value if isinstance(value, str) and all(value.rpartition(":")[::2]) else None,
    {"type": "string", "minLength": 1, "pattern": ".:."},
)
"""Something in Python, as files name it."""

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@attrs.frozen(kw_only=True)
class Wanted(Generic[T]):
    """What is taken from Python code.

    Attributes:
        what: what messages call it: an option, or a place in a file.
        expected: what it must be; ``plural`` names several.
        read: returns it if a value is one, or leads to one; else None.
        lacking: says what a value lacks that is none; empty when there is nothing to say.
    """

    what: str
    expected: str
    plural: str
    read: Callable[[object], T | None]
    lacking: Callable[[object], str] = lambda _: ""


@attrs.frozen
class Place:
    """A name in a module or a file, which is looked up from the folder ``base``."""

    where: str
    attribute: str
    base: Path

    @property
    def file(self) -> Path | None:
        """The file that is named; None for a module."""
        is_file = self.where.endswith(".py") or os.sep in self.where
        return self.base / self.where if is_file else None

    @property
    def folder(self) -> Path:
        """The folder that its code imports its neighbours from."""
        return self.base.absolute() if self.file is None else self.file.resolve().parent


def place_of(spec: str, what: str, *, base: Path = HERE) -> Place:
    """Return the place that ``module:NAME`` or ``file.py:NAME`` names."""
    where, _, attribute = spec.rpartition(":")
    if not where or not attribute:
        raise ConfigError(
            f"{what}: expected `module:ATTRIBUTE` or `file.py:ATTRIBUTE`, found {spec!r}"
        )
    return Place(where, attribute, base)


class PythonSource:
    """Loads things from Python code; each file is run once, however much is taken from it."""

    def __init__(self, folder: Path = HERE) -> None:
        self.folder = folder
        self._modules: dict[Path, ModuleType] = {}

    def load(self, place: Place, wanted: Wanted[T]) -> T:
        """Return what stands at ``place``; a ConfigError when it is not of the wanted kind."""
        return _found_in(self._module_at(place, wanted.what), place, wanted)

    def read(self, node: Node, wanted: Wanted[T]) -> T | None:
        """Return what a file names at ``node``; a fault is noted there, and None returned."""
        try:
            return self.load(place_of(str(node.value), wanted.what, base=self.folder), wanted)
        except ConfigError as error:
            node.fault(without_name(str(error), wanted.what))
            return None

    def _module_at(self, place: Place, what: str) -> ModuleType:
        if place.file is None:
            with _imported_from(place.folder, f"{what}: module `{place.where}`"):
                return importlib.import_module(place.where)
        path = place.file.resolve()
        if path not in self._modules:
            twins = sum(known.stem == path.stem for known in self._modules)
            name = f"_source_{path.stem}" + (f"_{twins + 1}" if twins else "")
            self._modules[path] = load_file(place.file, name=name, what=what)
        return self._modules[path]


def load_file(path: Path, *, name: str, what: str) -> ModuleType:
    """Import a file, which can import modules beside it; ``what`` names it in messages.

    Names that ``feedback_fn`` and classes get depend on ``name``, that of the module.
    """
    if not is_file(path):
        raise ConfigError(
            f"{what}: expected a Python file, found {str(path)!r}; name one that exists"
        )
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what}: {path} is no Python file; its name should end in `.py`")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _imported_from(path.resolve().parent, f"{what}: {path}"):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Let code import its neighbours in ``folder``; what it prints goes to standard error."""
    sys.path.insert(0, str(folder))
    try:
        # What it prints is not what the command prints.
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def a_function(what: str) -> Wanted[Callable[..., Any]]:
    """Return what is taken from Python code as a function: anything to call but a class."""
    return Wanted(
        what=what,
        expected="a function",
        plural="functions",
        read=lambda value: value if callable(value) and not isinstance(value, type) else None,
    )


def as_maker(value: object) -> FunctionType | None:
    """Return a function that can be called without arguments, or None."""
    return value if isinstance(value, FunctionType) and not needed_by(value) else None


def needed_by(function: FunctionType) -> list[str]:
    """Return the names of the arguments that a function cannot be called without."""
    return [
        name
        for name, given in inspect.signature(function).parameters.items()
        if given.default is given.empty and given.kind not in _MANY
    ]


def call_maker(make: FunctionType, spec: str) -> object:
    """Return what a plain or ``async`` function makes; ``spec`` names it in messages.

    Raises:
        CallerError: the function raised it.
        ConfigError: it raised something else.
    """
    try:
        made: object = awaited(make())
    except CallerError as error:
        raise type(error)(f"{spec}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{spec} raised {type(error).__name__}: {error}") from error
    return made


@contextlib.contextmanager
def _imported_from(folder: Path, what: str) -> Iterator[None]:
    try:
        with beside(folder):
            yield
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what} cannot be imported: {type(error).__name__}: {error}") from error


def _found_in(module: ModuleType, place: Place, wanted: Wanted[T]) -> T:
    found: object = module
    for name in place.attribute.split("."):
        if not hasattr(found, name):
            known = sorted(key for key, value in vars(module).items() if wanted.read(value))
            raise ConfigError(
                f"{wanted.what}: `{place.where}` has no `{place.attribute}`"
                f"{did_you_mean(place.attribute, known)}; "
                f"{wanted.plural} in it: {', '.join(known) or 'none'}"
            )
        found = getattr(found, name)
    read = wanted.read(found)
    if read is None:
        lacking = wanted.lacking(found)
        raise ConfigError(
            f"{wanted.what}: expected `{place.where}:{place.attribute}` to be {wanted.expected}, "
            f"found {shown(found)}{lacking and f'; {lacking}'}"
        )
    return read
