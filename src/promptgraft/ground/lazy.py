"""Packages that import what they export on first use.

Importing a module runs the ``__init__`` of its package. If that imported everything that the
package exports, using one module would cost the import of all of them.

A package writes its imports once, under ``if TYPE_CHECKING:``, where type checkers read them;
those that a program uses are made when it first asks for the name. ``name = Other`` there exports
the same under another name.
"""

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
            # Of an AttributeError, `from package import name` would show no message.
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
    # Not for those who import a module of the package by its name.
    import ast
    import pkgutil

    source = ast.parse(pkgutil.get_data(package, "__init__.py") or b"")
    homes: dict[str, tuple[str, str]] = {}
    for block in source.body:
        if not isinstance(block, ast.If) or ast.unparse(block.test) != "TYPE_CHECKING":
            continue
        for statement in block.body:
            match statement:
                case ast.ImportFrom(module=str(home), names=aliases):
                    homes |= {alias.asname or alias.name: (home, alias.name) for alias in aliases}
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)):
                    homes[name] = homes[other]
    return homes
