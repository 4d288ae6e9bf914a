"""Texts of an agent that functions of the user read and write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from promptgraft.errors import ConfigError, user_errors
from promptgraft.ground.serde import is_unicode, shown
from promptgraft.ground.text import raised
from promptgraft.runtime.event_loop import awaited


@attrs.frozen
class CallbackSource:
    """One text that functions of the user read and write, plain or ``async``.

    Attributes:
        read: returns the text.
        write: replaces the text.

    Raises:
        ConfigError: one of them is not a function.
    """

    read: Callable[[], str | Awaitable[str]]
    write: Callable[[str], object]

    def __attrs_post_init__(self) -> None:
        for name in ("read", "write"):
            function: object = getattr(self, name)
            if not callable(function):
                raise ConfigError(f"{name}: expected a function, found {shown(function)}")

    def text(self) -> str:
        """Return the stored text.

        Raises:
            ConfigError: ``read`` raised an exception or did not return a text.
        """
        text_object: object = _called("read", self.read)
        if not isinstance(text_object, str) or not is_unicode(text_object):
            raise ConfigError(f"read: expected a text, found {shown(text_object)}")
        return text_object

    def put(self, text: str) -> None:
        """Store a text.

        Raises:
            ConfigError: ``write`` raised an exception.
        """
        _called("write", self.write, text)


def _called(name: str, function: Callable[..., object], *args: str) -> object:
    try:
        return awaited(function(*args))
    except user_errors() as error:
        raise ConfigError(f"{name} raised {' '.join(raised(error).split())}") from error
