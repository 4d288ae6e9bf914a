"""What an adapter that a project names in Python must look like."""

from __future__ import annotations

from types import FunctionType
from typing import TypeGuard

from promptgraft.adapters.base import ProviderAdapter, lacking_in_adapter
from promptgraft.project.python_source import needed_by
from promptgraft.text import listed

_DESCRIBED = "`help(promptgraft.ProviderAdapter)` says what an adapter has"


def is_adapter(value: object) -> TypeGuard[ProviderAdapter]:
    """Tell whether a value has what adapters have; a class has not, its objects may."""
    return not isinstance(value, type) and not lacking_in_adapter(value)


def lacking(value: object) -> str:
    """Return what a value lacks that is no adapter and makes none, and where that is described."""
    if isinstance(value, type) and callable(getattr(value, "evaluate", None)):
        return "it is a class: name an object of it, or a function that returns one"
    if isinstance(value, type):
        return f"it is a class without {lacking_in_adapter(value)[0]}; {_DESCRIBED}"
    if isinstance(value, FunctionType) and (needed := needed_by(value)):
        return (
            f"it is a function that wants {listed(needed)}: wrap what answers in an adapter such "
            f"as `promptgraft.ScriptedAdapter`; {_DESCRIBED}"
        )
    return f"it has no {' and no '.join(lacking_in_adapter(value))}; {_DESCRIBED}"
