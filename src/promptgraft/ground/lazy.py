"""Packages that import what they export on first use.

Importing a module runs the ``__init__`` of its package. If that imported everything that the
package exports, using one module would cost the import of all of them.

A package writes its imports once, under ``if TYPE_CHECKING:``, where type checkers read them;
those that a program uses are made when it first asks for the name. ``name = Other`` there exports
the same under another name.
"""

import builtins
import importlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType


def lazy_exports(
    package: str, absent: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: the name of the package. No name that it exports may be that of a module in it,
            which Python would return instead.
        absent: by name, what to use instead of names that users may expect here.
    """

    def get(name: str) -> object:
        if name in absent:
            # `from package import name` would not show the message of an AttributeError.
            raise ImportError(f"{package} has no `{name}`: {absent[name]}", name=package)
        homes = homes_of(package)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, own_name = homes[name]
        value: object = getattr(importlib.import_module(home), own_name)
        setattr(sys.modules[package], name, value)  # not looked up again
        return value

    return get, lambda: sorted(sys.modules[package].__all__)


@cache
def homes_of(package: str) -> Mapping[str, tuple[str, str]]:
    """Return the module of each name that a package imports for types, and its name there."""
    module = sys.modules[package]
    # Every loader of Python code has it.
    code = module.__spec__.loader.get_code(package)  # type: ignore[union-attr]
    # The code runs again, and its imports only note where a name comes from. Its source is not
    # read, because some installations have none.
    names = _Names(TYPE_CHECKING=True)
    noting = {**vars(builtins), "__import__": lambda home, *_: _Noted(home)}
    exec(code, {"__name__": package, "__builtins__": noting}, names)  # noqa: S102 - imported code
    return {
        name: (value.home, value.name)
        for name, value in names.items()
        if isinstance(value, _Origin) and name not in vars(module)
    }


class _Names(dict[str, object]):
    """The names of a package as type checkers see them."""

    def __setitem__(self, name: str, value: object) -> None:
        if name != "TYPE_CHECKING":
            super().__setitem__(name, value)


class _Origin:
    """The module of a name, and its name there."""

    def __init__(self, home: str, name: str) -> None:
        self.home = home
        self.name = name


class _Noted:
    """Stands for a module that is not imported."""

    def __init__(self, home: str) -> None:
        self._home = home

    def __getattr__(self, name: str) -> _Origin:
        return _Origin(self._home, name)
