"""Packages that import the names they hand on when these are first used.

Importing any module runs the ``__init__`` of its package. If that imported everything that the
package offers, nobody could use one module without paying for all of them.
"""

import importlib
import sys
from collections.abc import Callable, Mapping


def handed_on(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    ``names`` lists what each module gives, separated by spaces; modules without ``promptgraft.``.
    A name must not be that of a module in the package, which Python would return in its place.
    """
    homes = {name: f"promptgraft.{home}" for home, given in names.items() for name in given.split()}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # so that this is not asked for it again
        return value

    return get, lambda: sorted(sys.modules[package].__all__)
