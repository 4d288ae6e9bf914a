"""Python that the command line is pointed at, and the shipped examples."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Generic, NamedTuple, TypeVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.prompt import Prompt, PromptTemplate
from promptgraft.serde import did_you_mean, shown

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Wanted(Generic[T]):
    """What a command takes from Python code.

    Attributes:
        what: what the command line calls it.
        expected: what it must be.
        plural: several of it.
        read: returns it if a value is one, or leads to one; else None.
    """

    what: str
    expected: str
    plural: str
    read: Callable[[object], T | None]


def load_template(spec: str) -> PromptTemplate[object]:
    """Return the template that ``module:ATTRIBUTE`` or ``file.py:ATTRIBUTE`` names.

    Raises:
        ConfigError: nothing like that can be imported, or it is no template.
    """
    return load(place_of(spec, _TEMPLATE.what), _TEMPLATE)


def load(place: Place, wanted: Wanted[T]) -> T:
    """Return what stands at ``place``.

    Raises:
        ConfigError: nothing like that can be imported, or it is not what is wanted.
    """
    return _found_in(_module_at(place, wanted.what), place, wanted)


class Place(NamedTuple):
    """Where something stands in Python code."""

    where: str
    attribute: str

    @property
    def is_file(self) -> bool:
        """Whether a file is named, and not a module."""
        return self.where.endswith(".py") or os.sep in self.where

    @property
    def folder(self) -> Path:
        """The folder that its code imports its neighbours from."""
        return Path(self.where).resolve().parent if self.is_file else Path.cwd()


def place_of(spec: str, what: str) -> Place:
    """Return the place that ``module:ATTRIBUTE`` or ``file.py:ATTRIBUTE`` names.

    Raises:
        ConfigError: it names none.
    """
    where, _, attribute = spec.rpartition(":")
    if not where or not attribute:
        raise ConfigError(
            f"{what}: expected `module:ATTRIBUTE` or `file.py:ATTRIBUTE`, found {spec!r}"
        )
    return Place(where, attribute)


def _module_at(place: Place, what: str) -> ModuleType:
    if place.is_file:
        path = Path(place.where)
        return load_file(path, name=f"_source_{path.stem}", what=what)
    with _imported_from(Path.cwd(), f"{what}: module `{place.where}`"):
        return importlib.import_module(place.where)


def load_file(path: Path, *, name: str, what: str) -> ModuleType:
    """Import a file; modules beside it can be imported by it.

    Args:
        path: the file.
        name: the name of the module; names that ``feedback_fn`` and classes get depend on it.
        what: what the file was named as, for messages.

    Raises:
        ConfigError: there is no such file, or running it failed.
    """
    if not path.is_file():
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


def example_folder(name: str) -> Path:
    """Return the folder of an example: in an installed package, or else in the checkout.

    Raises:
        ConfigError: there is neither.
    """
    package = Path(__file__).resolve().parents[1]
    places = [package / "examples" / name]
    if package.parent.name == "src":
        places.append(package.parents[1] / "examples" / name)
    for place in places:
        if place.is_dir():
            return place
    looked = " and ".join(str(place) for place in places)
    raise ConfigError(f"the example `{name}` is not in {looked}; install promptgraft again")


@contextlib.contextmanager
def _imported_from(folder: Path, what: str) -> Iterator[None]:
    try:
        with beside(folder):
            yield
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what} cannot be imported: {type(error).__name__}: {error}") from error


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
        raise ConfigError(
            f"{wanted.what}: expected `{place.where}:{place.attribute}` to be {wanted.expected}, "
            f"found {shown(found)}"
        )
    return read


def _as_template(value: object) -> PromptTemplate[object] | None:
    if isinstance(value, Prompt):
        return value.template
    return value if isinstance(value, PromptTemplate) else None


_TEMPLATE = Wanted(
    what="--template",
    expected="a PromptTemplate or a Prompt",
    plural="templates",
    read=_as_template,
)
