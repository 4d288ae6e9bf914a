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
    ``new=old`` hands on a name under another one. A name must not be that of a module in the
    package, which Python would return in its place.
    """
    homes = {
        name: (home, own or name)
        for home, given in names.items()
        for name, _, own in (one.partition("=") for one in given.split())
    }

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, own = homes[name]
        value: object = getattr(importlib.import_module(f"promptgraft.{home}"), own)
        setattr(sys.modules[package], name, value)  # so that this is not asked for it again
        return value

    return get, lambda: sorted(sys.modules[package].__all__)
