"""Python that a user points at, and the files that a project file names."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dis import get_instructions
from itertools import islice
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Generic, TypeVar

import attrs

from promptgraft.errors import CallerError, ConfigError, DataFormatError, user_errors
from promptgraft.ground.files import is_file
from promptgraft.ground.functions import signature_of
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.strict.checks import Reach, check
from promptgraft.ground.strict.kinds import without_name
from promptgraft.ground.strict.nodes import Node, Source, spelled
from promptgraft.ground.text import raised
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.runtime.event_loop import awaited

T = TypeVar("T")

HERE = Path()
"""The current folder."""

REFERENCE = check(
    "`file.py:NAME` or `module:NAME`",
    lambda value: value if isinstance(value, str) and all(value.rpartition(":")[::2]) else None,
    {"type": "string", "minLength": 1, "pattern": ".:."},
).reaching(Reach.CODE)
"""Something in Python, as files name it."""

NOT_RUN = "is Python, which was not run"
"""How messages end that say what :func:`without_code` has left out."""

_code_run: set[Path] = set()
"""The folders of code that was run."""
_WITHOUT_CODE: ContextVar[bool] = ContextVar("without_code", default=False)
_STAND_INS: ContextVar[bool] = ContextVar("stand_ins", default=False)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@attrs.frozen(kw_only=True)
class ObjectKind(Generic[T]):
    """A kind of object that a user may name in Python code.

    Attributes:
        expected: what the object must be, for messages.
        plural: what messages call several of them.
        read: returns the object, or what it leads to; None for a value of another kind.
        lacking: says what a value of another kind lacks; may be empty.
    """

    expected: str
    plural: str
    read: Callable[[object], T | None]
    lacking: Callable[[object], str] = lambda _: ""


@attrs.frozen
class PythonPlace:
    """A name in a module or a file; ``where`` is relative to the folder ``base``."""

    where: str
    attribute: str
    base: Path

    @property
    def file(self) -> Path | None:
        """The file; None for a module."""
        is_file = self.where.endswith(".py") or os.sep in self.where
        return self.base / self.where if is_file else None

    @property
    def folder(self) -> Path:
        """The folder from which its code imports its neighbours."""
        return self.base.absolute() if self.file is None else self.file.resolve().parent


def place_of(spec: str, what: str, *, base: Path = HERE) -> PythonPlace:
    """Return the place that ``module:NAME`` or ``file.py:NAME`` names."""
    where, _, attribute = spec.rpartition(":")
    if not where or not attribute:
        raise ConfigError(
            f"{what}: expected `module:ATTRIBUTE` or `file.py:ATTRIBUTE`, found {spec!r}"
        )
    return PythonPlace(where, attribute, base)


class NotRunError(ConfigError):
    """Python code was named inside :func:`without_code`."""


def has_run_code() -> bool:
    """Return whether this process has run Python that a user points at."""
    return bool(_code_run)


@contextlib.contextmanager
def without_code() -> Iterator[None]:
    """Import and run nothing that a user points at: loading it raises ``NotRunError`` instead."""
    token = _WITHOUT_CODE.set(True)
    try:
        yield
    finally:
        _WITHOUT_CODE.reset(token)


@contextlib.contextmanager
def with_stand_ins() -> Iterator[None]:
    """Run no code, as :func:`without_code`, but load functions, which must not be called."""
    token = _STAND_INS.set(True)
    try:
        with without_code():
            yield
    finally:
        _STAND_INS.reset(token)


def _stand_in(spec: str, name: str) -> Callable[..., object]:
    def function(*values: object, call: object = None, **named: object) -> object:
        del values, call, named
        raise NotRunError(f"`{spec}` {NOT_RUN}")

    # Metrics are called by the names of their functions.
    function.__name__ = function.__qualname__ = name
    return function


def _check_syntax(place: PythonPlace, what: str) -> None:
    """Raise a ``ConfigError`` for a file that is missing or not Python, without running it."""
    if place.file is None:
        return
    if not is_file(place.file):
        raise ConfigError(
            f"{what}: expected a Python file, found {str(place.file)!r}; name one that exists"
        )
    try:
        compile(place.file.read_bytes(), str(place.file), "exec", dont_inherit=True)
    # ValueError: a NUL character; the others: an expression that is nested too deeply.
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{what}: {place.file} is not valid Python: {raised(error)}") from error


class PythonSource:
    """Loads objects from Python code below a folder; each file is run only once."""

    def __init__(self, folder: Path = HERE) -> None:
        self.folder = folder
        self._modules: dict[Path, ModuleType] = {}

    def load(self, spec: str, kind: ObjectKind[T], what: str) -> T:
        """Return the object that ``module:NAME`` or ``file.py:NAME`` names.

        Raises:
            ConfigError: it cannot be loaded, is of another kind, or is a function that is not
                written yet; the message begins with ``what``, an option or a place in a file.
        """
        place = place_of(spec, what, base=self.folder)
        if _STAND_INS.get() and kind is FUNCTION:
            function = kind.read(_stand_in(spec, place.attribute))
            assert function is not None  # noqa: S101 - any function is one
            return function
        if _WITHOUT_CODE.get():
            _check_syntax(place, what)
            raise NotRunError(f"{what}: `{spec}` {NOT_RUN}")
        value = _found_in(self._module_at(place, what), place, kind, what)
        if (line := _unwritten_at(value)) is not None:
            raise ConfigError(
                f"{what}: `{spec}` is not written yet: {place.where}:{line} only raises "
                "NotImplementedError; write it there"
            )
        return value

    def read(self, node: Node, kind: ObjectKind[T]) -> T | None:
        """Return the object that ``node`` names; None, with the fault noted, if there is none."""
        what = str(node.path[-1])
        try:
            return self.load(str(node.value), kind, what)
        except ConfigError as error:
            node.fault(without_name(str(error), what))
            return None

    def _module_at(self, place: PythonPlace, what: str) -> ModuleType:
        if place.file is None:
            with _imported_from(place.folder, f"{what}: module `{place.where}`"):
                return importlib.import_module(place.where)
        path = place.file.resolve()
        if path not in self._modules:
            # Two files of one name must not replace each other in `sys.modules`.
            twins = sum(module.stem == path.stem for module in self._modules)
            name = f"_source_{path.stem}" + (f"_{twins + 1}" if twins else "")
            self._modules[path] = load_file(place.file, name=name, what=what)
        return self._modules[path]


def load_file(path: Path, *, name: str, what: str) -> ModuleType:
    """Import a file, which may import modules beside it, as the module ``name``.

    ``what`` names it in messages. The identities of its functions and classes depend on ``name``.
    """
    if not is_file(path):
        raise ConfigError(
            f"{what}: expected a Python file, found {str(path)!r}; name one that exists"
        )
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{what}: {path} is not a Python file; its name should end in `.py`")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and pickle look up the module of a class by its name.
    sys.modules[name] = module
    with _imported_from(path.resolve().parent, f"{what}: {path}"):
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Let code import its neighbours in ``folder``; what it prints goes to standard error."""
    sys.path.insert(0, str(folder))
    try:
        # Standard output belongs to the command: others may parse it.
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        # Code of the user may have changed the path.
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _not_a_class(value: object) -> str:
    name = getattr(value, "__name__", "it")
    return f"write a function that returns a {name}" if isinstance(value, type) else ""


FUNCTION = ObjectKind[Callable[..., Any]](
    expected="a function",
    plural="functions",
    read=lambda value: value if callable(value) and not isinstance(value, type) else None,
    lacking=_not_a_class,
)
"""Any callable but a class."""


def as_maker(value: object) -> FunctionType | None:
    """Return ``value`` if it is a function that needs no arguments, else None."""
    return value if isinstance(value, FunctionType) and not needed_by(value) else None


def needed_by(function: FunctionType) -> list[str]:
    """Return the names of the required arguments of a function."""
    return [
        name
        for name, parameter in (signature_of(function) or inspect.Signature()).parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in _MANY
    ]


def call_maker(make: FunctionType, spec: str) -> object:
    """Call a plain or ``async`` factory and return the result; ``spec`` names it in messages.

    Raises:
        CallerError: the function raised it.
        ConfigError: it raised something else.
    """
    try:
        value: object = awaited(make())
    except CallerError as error:
        raise type(error)(f"{spec}: {error}") from error
    except user_errors() as error:
        raise ConfigError(f"{spec} raised {raised(error)}") from error
    return value


@contextlib.contextmanager
def _imported_from(folder: Path, what: str) -> Iterator[None]:
    _code_run.add(folder)
    try:
        with beside(folder):
            yield
    # A module that calls `sys.exit` must not decide the exit code of this command.
    except user_errors() as error:
        raise ConfigError(f"{what} cannot be imported: {raised(error)}") from error


def _unwritten_at(value: object) -> int | None:
    """Return the line of a function that does nothing but raise ``NotImplementedError``."""
    code = getattr(value, "__code__", None)
    if code is None or code.co_names != ("NotImplementedError",):
        return None
    # One that may return is written, even if it refuses some of its arguments.
    returns = any(
        "RETURN" in step.opname or "YIELD" in step.opname for step in get_instructions(code)
    )
    return None if returns else int(code.co_firstlineno)


def class_shown(value: object) -> str:
    """Describe an object of the user's code for a message, without its content."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, FunctionType | ModuleType):
        return f"the {'module' if isinstance(value, ModuleType) else 'function'} {value.__name__}"
    return f"an object of the class {type(value).__qualname__}"


def _found_in(module: ModuleType, place: PythonPlace, kind: ObjectKind[T], what: str) -> T:
    value: object = module
    for name in place.attribute.split("."):
        if not hasattr(value, name):
            names = sorted(key for key, value in vars(module).items() if kind.read(value))
            raise ConfigError(
                f"{what}: `{place.where}` has no `{place.attribute}`"
                f"{did_you_mean(place.attribute, names)}; "
                f"{kind.plural} in it: {', '.join(names) or 'none'}"
            )
        value = getattr(value, name)
    read = kind.read(value)
    if read is None:
        lacking = kind.lacking(value)
        raise ConfigError(
            f"{what}: expected `{place.where}:{place.attribute}` to be {kind.expected}, "
            # Only its class: the value may be a secret, as those of `os:environ` are.
            f"found {class_shown(value)}{lacking and f'; {lacking}'}"
        )
    return read


@attrs.frozen
class Surroundings:
    """Resolves names in a project file: against the file, its folder and its Python code."""

    file: Source
    folder: Path
    python: PythonSource

    def refusal(self, path: YamlPath, why: str | CallerError) -> DataFormatError:
        """Return an error that names ``path`` and its line in the project file."""
        line = self.file.line(path, str(why).removeprefix(f"{spelled(path)}: "))
        return DataFormatError(line, (line,))

    @contextlib.contextmanager
    def placed(self, path: YamlPath) -> Iterator[None]:
        """Raise the caller errors of a block as faults at ``path``.

        A ``DataFormatError`` passes: it says itself where the fault is.
        """
        try:
            yield
        except DataFormatError:
            raise
        except CallerError as error:
            raise self.refusal(path, error) from error

    def existing(self, path: YamlPath, name: str) -> Path:
        """Return the existing file that ``path`` names."""
        place = self.folder / name
        # `os.path.exists` is False for a name that is too long; `Path.exists` would raise.
        if os.path.exists(place) and not is_file(place):  # noqa: PTH110
            kind = "a folder" if place.is_dir() else "a pipe or a device"
            raise self.refusal(path, f"expected a file, found {kind} at {place}; name a file")
        if "://" in name and not is_file(place):
            # Not shown: an address may hold a password.
            raise self.refusal(path, "expected a file, found an address; download it")
        if not is_file(place):
            raise self.refusal(
                path,
                f"expected a file, found none at {place}{_near_file(place)}; paths are relative to "
                "the project file",
            )
        return place

    def loaded(self, path: YamlPath, spec: str, kind: ObjectKind[T]) -> T:
        """Return the object that ``file.py:NAME`` or ``module:NAME`` at ``path`` names."""
        with self.placed(path):
            return self.python.load(spec, kind, spelled(path))

    def function(self, path: YamlPath, spec: str) -> Callable[..., object]:
        """Return the function that ``spec`` at ``path`` names; see :meth:`loaded`."""
        return self.loaded(path, spec, FUNCTION)


def _near_file(place: Path) -> str:
    """Return the file in the same folder that is probably meant, in words; empty for none."""
    try:
        files = [
            path for path in islice(place.parent.iterdir(), 500) if path.suffix == place.suffix
        ]
    except OSError:  # there is no folder
        return ""
    # Without the endings, which make all names alike.
    near = difflib.get_close_matches(place.stem, [path.stem for path in files], n=1)
    return f" (did you mean `{near[0]}{place.suffix}`?)" if near else ""
