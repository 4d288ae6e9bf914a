"""What an adapter that a project names in Python must look like."""

from __future__ import annotations

from types import FunctionType
from typing import TypeGuard

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.project.python_source import needed_by
from promptgraft.text import listed

_EVALUATE = "method `evaluate(prompt, *, session, deadline=None)`"
_DESCRIBED = "`help(promptgraft.ProviderAdapter)` says what an adapter has"


def is_adapter(value: object) -> TypeGuard[ProviderAdapter]:
    """Tell whether a value has what adapters have; a class has not, its objects may."""
    return not isinstance(value, type) and not _missing(value)


def lacking(value: object) -> str:
    """Return what a value lacks that is no adapter and makes none, and where that is described."""
    if isinstance(value, type) and _answers(value):
        return "it is a class: name an object of it, or a function that returns one"
    if isinstance(value, type):
        return f"it is a class without {_EVALUATE}; {_DESCRIBED}"
    if isinstance(value, FunctionType) and (needed := needed_by(value)):
        return (
            f"it is a function that wants {listed(needed)}: wrap what answers in an adapter such "
            f"as `promptgraft.ScriptedAdapter`; {_DESCRIBED}"
        )
    return f"it has no {' and no '.join(_missing(value))}; {_DESCRIBED}"


def _missing(value: object) -> list[str]:
    # Whether there is an identity is found out without asking for it: that may make something.
    named = hasattr(type(value), "identity") or "identity" in getattr(value, "__dict__", {})
    return [*([] if _answers(value) else [_EVALUATE]), *([] if named else ["`identity`"])]


def _answers(value: object) -> bool:
    return callable(getattr(value, "evaluate", None))
