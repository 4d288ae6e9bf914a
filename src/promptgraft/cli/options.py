"""Options and arguments that several commands share, and the types of their values."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import NamedTuple, TypedDict

import click

from promptgraft.errors import InvalidIdentifierError

Command = Callable[..., int | None]
"""The function behind a command; returns its exit code, or None for 0."""


class PromptName(NamedTuple):
    """A prompt that the command line names: by ``namespace/key``, or by its name in a project.

    Attributes:
        ns: its namespace.
        in_project: whether it was named as in the project file.
        file: the value of ``--project``.
    """

    ns: str
    key: str
    in_project: bool = False
    file: str | None = None

    def __str__(self) -> str:
        return f"{self.ns}/{self.key}"


class DemoOptions(TypedDict):
    """The options of the demo."""

    seed: int
    budget: int | None
    workers: int | None
    store: str | None
    tag: str
    journal: str | None


def examples(*commands: str) -> str:
    """Return the epilog of a help text: command lines, given without ``promptgraft``."""
    # click rewraps every paragraph that does not begin with `\b`.
    return "\n  ".join(["\b\nExamples:", *(f"promptgraft {command}" for command in commands)])


def together(*given: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Combine several decorators into one, the first of them outermost."""
    return lambda command: functools.reduce(lambda done, one: one(done), reversed(given), command)


def command(name: str, *shown: str) -> Callable[[Command], click.Command]:
    """Return a decorator that makes a command; its help ends with examples."""
    return click.command(name, epilog=examples(*shown))


# Types of options. click shows the name of the function, in capitals, as the name of the value.


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a type for integers of at least ``least``, and at most ``most``."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"

    def n(text: str) -> int:
        # `int` also takes spaces, underscores and the digits of other scripts.
        digits = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 18
        if digits and least <= int(text) and (most is None or int(text) <= most):
            return int(text)
        raise click.BadParameter(f"expected an integer {bounds}, found {text!r}")

    return n


def dollars(text: str) -> Decimal:
    """Parse a non-negative amount of money."""
    with suppress(InvalidOperation):
        amount = Decimal(text)
        if amount.is_finite() and amount >= 0:
            return amount
    raise click.BadParameter(f"expected US dollars such as 2.50, found {text!r}")


def seconds(text: str) -> float:
    """Parse a positive, finite number of seconds."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise click.BadParameter(f"expected seconds such as 600, found {text!r}")


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    number = math.nan
    with suppress(ValueError):
        number = float(text.removesuffix("%"))
    if 0 <= number <= 1 and not text.endswith("%"):
        return number
    percent = f"; {number:g} % is {number / 100:g}" if 0 <= number <= 100 else ""
    raise click.BadParameter(f"expected a number from 0 to 1, found {text!r}{percent}")


def tag(text: str) -> str:
    """Parse a valid tag."""
    from promptgraft.overrides.parts.validation import check_tag

    try:
        return check_tag(text)
    except InvalidIdentifierError as error:
        raise click.BadParameter(str(error).removeprefix("tag: ")) from None


tag_option = click.option(
    "--tag", type=tag, help="The tag; by default the only one of the prompt, or `latest`."
)

runs_option = click.option(
    "--runs",
    metavar="DIR",
    help="The folder of run directories; by default the project's, or `runs` here.",
)

store_option = click.option(
    "--store",
    metavar="DIR",
    help="The folder that contains `.promptgraft`; by default the project's, or the nearest one "
    "here or above.",
)

project_option = click.option(
    "--project",
    metavar="FILE",
    is_eager=True,  # parsed first, because the names of prompts are looked up in it
    help="The project file; by default `promptgraft.yaml` here or in the nearest folder above.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
)

events_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per line: each event as it happens, and the result last.",
)

template_option = click.option(
    "--template",
    metavar="SOURCE",
    help="The source of the prompt in Python: `module:ATTRIBUTE` or `file.py:ATTRIBUTE`.",
)

run_argument = click.argument("run", metavar="[RUN]", default="latest")

workers_option = click.option(
    "--workers", type=at_least(1), help="Parallel test calls; they do not change the result."
)

part_option = click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="ID",
    help="A part that may change, by the id that `promptgraft describe` prints; may be repeated. "
    "By default those of the project.",
)

quiet_option = click.option(
    "--quiet", "-q", is_flag=True, help="Show only the summary, no progress."
)
