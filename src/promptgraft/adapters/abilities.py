"""What adapters may be able to do or tell beside answering, and questions about it.

It is looked for in an adapter by its attributes; nothing has to be declared. An interface stands
for methods that are called; what an adapter only tells is an attribute with a default here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Protocol, runtime_checkable

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.ground.content import File, Image
from promptgraft.prompt.rendered import RenderedPrompt

_TOKENS_OF_PDF = 3_000  # two pages, as text and as images
TOKENS_OF_IMAGE = 1_000
"""Expected tokens of an image if its size or the rule of the model is not known."""
NEAR = 60
"""Days before the end of a model from which a plan warns of it."""


CHARS_PER_TOKEN = 4
"""A common estimate for English."""


@runtime_checkable
class MeteredAdapter(Protocol):
    """An adapter that can estimate the cost of calls before they are made.

    ``longest_answer`` is in tokens, None if the model decides; ``price_of`` returns US dollars,
    None if the price of the model is unknown.
    """

    @property
    def longest_answer(self) -> int | None: ...

    def price_of(self, usage: Usage) -> Decimal | None: ...


@runtime_checkable
class ChoosyAdapter(Protocol):
    """An adapter that can tell before a call whether it answers a prompt."""

    def check_prompt(self, rendered: RenderedPrompt[object]) -> None:
        """Raise a ``ConfigError`` if the adapter cannot answer a prompt."""
        ...


def check_serves(adapter: object, rendered: RenderedPrompt[object]) -> None:
    """Raise a ``ConfigError`` if an adapter says that it cannot answer a prompt."""
    if isinstance(adapter, ChoosyAdapter):
        adapter.check_prompt(rendered)


def needs_choices(adapter: object) -> bool:
    """Return whether an adapter answers a plain text only with one of several choices."""
    return getattr(adapter, "needs_choices", False) is True


PRICES_LINE = "prices: {input: IN, output: OUT}"
"""The line of a project file that gives a model its prices, in US dollars for a million tokens."""


GIVE_PRICES = (
    f"give the model the line `{PRICES_LINE}` in the project file, or the adapter `prices=` in "
    "Python, in US dollars for a million tokens; or leave max_cost out"
)
"""Advice for a run with ``max_cost`` and a model without a known price."""


_A_CALL = Usage(input_tokens=1, output_tokens=1)


def missing_price(adapter: object) -> str:
    """Return what to add so that the cost of an adapter's calls is known; empty if nothing.

    An adapter of calls that have no price says so by its ``missing_cost``.
    """
    missing_cost: str | None = getattr(adapter, "missing_cost", None)
    if missing_cost is not None:
        return missing_cost
    if isinstance(adapter, MeteredAdapter) and adapter.price_of(_A_CALL) is None:
        return GIVE_PRICES
    return ""


def longest_answer(adapter: object) -> int | None:
    """Return the tokens of the longest answer of an adapter's model; None if not known."""
    return adapter.longest_answer if isinstance(adapter, MeteredAdapter) else None


def thinking_of(adapter: object) -> int:
    """Return the tokens that an adapter's model is expected to think before it answers."""
    tokens: int = getattr(adapter, "thinking", 0)
    return tokens


def is_thinking_assumed(adapter: object) -> bool:
    """Return whether it is not known that an adapter's model thinks, but assumed."""
    return getattr(adapter, "is_thinking_assumed", False) is True


def cached_from(adapter: object) -> int:
    """Return the tokens of the shortest beginning of a prompt that is cached; 0 for none."""
    tokens: int = getattr(adapter, "cached_from", 0)
    return tokens


@attrs.frozen(kw_only=True)
class ModelEnd:
    """The announced end of a model.

    Attributes:
        model: the model that ends.
        day: its last day.
        current: a model of its line that does not end.
        page: the provider's page of deprecations.
    """

    model: str
    day: date
    current: str
    page: str

    def is_near(self, today: date) -> bool:
        """Return whether the model has ended, or ends within :data:`NEAR` days."""
        return (self.day - today).days <= NEAR

    def line(self, today: date) -> str:
        """Return a warning in one line."""
        when = f"{self.day.day} {self.day:%B %Y}"
        days = (self.day - today).days
        ends = f"ends on {when}" if days >= 0 else f"has ended on {when}"
        return (
            f"model `{self.model}` {ends}; move to a current one such as `{self.current}` (see "
            f"{self.page})"
        )


def end_of_model(adapter: object) -> ModelEnd | None:
    """Return the announced end of an adapter's model; None without one."""
    end: ModelEnd | None = getattr(adapter, "end", None)
    return end


@runtime_checkable
class SeeingAdapter(Protocol):
    """An adapter that knows whether its model sees images, and how many tokens one is.

    ``sees`` is None if that is not known.
    """

    @property
    def sees(self) -> bool | None: ...

    def tokens_of_image(self, image: Image) -> int: ...


def tokens_of_image(adapter: object, image: Image) -> int:
    """Return the tokens that an image is expected to cost with an adapter's model."""
    return adapter.tokens_of_image(image) if isinstance(adapter, SeeingAdapter) else TOKENS_OF_IMAGE


def tokens_of_file(adapter: object, file: File) -> int:
    """Return the tokens that a file is expected to cost with an adapter's model."""
    if isinstance(file, Image):
        return tokens_of_image(adapter, file)
    return _TOKENS_OF_PDF if file.text is None else len(file.text) // CHARS_PER_TOKEN


def sees_images(adapter: object) -> bool:
    """Return whether the model of an adapter is known to see images."""
    return isinstance(adapter, SeeingAdapter) and adapter.sees is True


@runtime_checkable
class OpenedAdapter(Protocol):
    """An adapter that acquires something for the duration of a run, such as files."""

    def opened(self, folder: Path) -> AbstractContextManager[None]:
        """Return a context for one run; the adapter keeps its files below ``folder``."""
        ...


@runtime_checkable
class ChecksOpening(Protocol):
    """Something that can tell, without a change, whether it could be opened now."""

    def check_opening(self) -> None:
        """Raise a ``ConfigError`` if it could not."""
        ...


def check_opening(adapter: object) -> None:
    """Raise a ``ConfigError`` if an adapter says that it cannot be opened for a run now."""
    if isinstance(adapter, ChecksOpening):
        adapter.check_opening()


@contextlib.contextmanager
def opened(adapter: object, folder: Path | None = None) -> Iterator[None]:
    """Open an adapter for a run if it is an :class:`OpenedAdapter`; may be nested.

    Args:
        adapter: any adapter, or None.
        folder: the folder of the run; None for a temporary one.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(adapter, OpenedAdapter):
            if folder is None:
                # Imported here, because agents alone need a folder.
                from promptgraft.ground.folders import temporary_folder

                folder = stack.enter_context(temporary_folder())
            stack.enter_context(adapter.opened(folder))
        yield


def is_in_batches(adapter: object) -> bool:
    """Return whether an adapter is set to have its calls answered in batches."""
    return getattr(adapter, "in_batches", False) is True
