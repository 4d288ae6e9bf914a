"""Options and arguments that several commands take, with their messages."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import click

from promptgraft.errors import InvalidIdentifierError

Command = Callable[..., int | None]
"""What a command does; returns its exit code, None for 0."""


class PromptName(NamedTuple):
    """A prompt as the command line names it: ``namespace/key``, or by its name in ``file``."""

    ns: str
    key: str
    in_project: bool = False
    file: str | None = None

    def __str__(self) -> str:
        return f"{self.ns}/{self.key}"


def examples(*commands: str) -> str:
    """Return command lines, without ``promptgraft``, as the end of a help text."""
    # click wraps every paragraph that does not begin with this character.
    return "\n  ".join(["\b\nExamples:", *(f"promptgraft {command}" for command in commands)])


def together(*given: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator that stands for several, the first of them on top."""
    return lambda command: functools.reduce(lambda done, one: one(done), reversed(given), command)


def command(name: str, *shown: str) -> Callable[[Command], click.Command]:
    """Return a decorator that makes a command whose help shows examples."""
    return click.command(name, epilog=examples(*shown))


# Types of options: click takes their names, in capitals, for those of the values.


def at_least(least: int) -> Callable[[str], int]:
    """Return a reader of integers that are not smaller than ``least``."""

    def n(text: str) -> int:
        # `int` also takes spaces, underscores and the digits of other scripts.
        digits = text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 18
        if digits and int(text) >= least:
            return int(text)
        raise click.BadParameter(f"expected an integer of at least {least}, found {text!r}")

    return n


def dollars(text: str) -> Decimal:
    """Read an amount of money that is not negative."""
    with suppress(InvalidOperation):
        amount = Decimal(text)
        if amount.is_finite() and amount >= 0:
            return amount
    raise click.BadParameter(f"expected US dollars such as 2.50, found {text!r}")


def seconds(text: str) -> float:
    """Read a time that is more than nothing."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise click.BadParameter(f"expected seconds such as 600, found {text!r}")


def share(text: str) -> float:
    """Read a number from 0 to 1."""
    with suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise click.BadParameter(f"expected a number from 0 to 1, found {text!r}")


def tag(text: str) -> str:
    """Read a tag that stores accept."""
    from promptgraft.parts.validation import check_tag

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
    help="The folder that holds `.promptgraft`; by default the project's, or the nearest one from "
    "here upwards.",
)

project_option = click.option(
    "--project",
    metavar="FILE",
    is_eager=True,  # names of prompts are looked up in it
    help="The project file; by default `promptgraft.yaml` here or in the nearest folder above.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document instead of text."
)

events_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object a line: each event as it happens, the result last.",
)

template_option = click.option(
    "--template",
    metavar="SOURCE",
    help="The prompt's source: `module:ATTRIBUTE` or `file.py:ATTRIBUTE`.",
)

run_argument = click.argument("run", metavar="[RUN]", default="latest")

workers_option = click.option(
    "--workers", type=at_least(1), help="Rollouts side by side; the result does not depend on it."
)

quiet_option = click.option(
    "--quiet", "-q", is_flag=True, help="Show no progress, only the summary."
)
