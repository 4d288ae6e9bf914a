"""Packages that import what they export on first use.

Importing a module runs the ``__init__`` of its package. If that imported everything that the
package exports, using one module would cost the import of all of them.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType


def lazy_exports(
    package: str, names: Mapping[str, str], absent: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: the name of the package.
        names: by module, without ``promptgraft.``, the names that it exports, separated by
            spaces. ``new=old`` exports a name under another one. No name may be that of a module
            in the package, which Python would return instead.
        absent: by name, what to use instead of names that users may expect here.
    """
    homes = {
        name: (home, own_name or name)
        for home, names_text in names.items()
        for name, _, own_name in (entry.partition("=") for entry in names_text.split())
    }

    def get(name: str) -> object:
        if name in absent:
            # Of an AttributeError, `from package import name` would show no message.
            raise ImportError(f"{package} has no `{name}`: {absent[name]}", name=package)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, own_name = homes[name]
        value: object = getattr(importlib.import_module(f"promptgraft.{home}"), own_name)
        setattr(sys.modules[package], name, value)  # not looked up again
        return value

    return get, lambda: sorted(sys.modules[package].__all__)
