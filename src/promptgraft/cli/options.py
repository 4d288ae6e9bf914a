"""Options and arguments that several commands take, with their messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, TypeVar

import click

from promptgraft.errors import InvalidIdentifierError

F = TypeVar("F", bound=Callable[..., Any])

Callback = Callable[[click.Context, click.Parameter, str | None], int | None]


class PromptName(NamedTuple):
    """A prompt as the command line names it: ``namespace/key``, or a name of the project."""

    ns: str
    key: str
    in_project: bool = False

    def __str__(self) -> str:
        return f"{self.ns}/{self.key}"


def examples(*commands: str) -> str:
    """Return command lines as the end of a help text."""
    # click wraps every paragraph that does not begin with this character.
    return "\n  ".join(["\b\nExamples:", *commands])


def read_prompt_name(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> PromptName | None:
    """Return the prompt that an argument names."""
    if value is None:
        return None
    from promptgraft.parts.validation import check_key, check_ns

    ns, _, key = value.rpartition("/")
    try:
        return PromptName(check_ns(ns), check_key(key, "key"))
    except InvalidIdentifierError:
        raise click.BadParameter(
            "expected `namespace/key` in lower-case letters, digits, `_` and `-`, "
            f"found {value!r}; `promptgraft show` lists the prompts of a store",
            context,
            parameter,
            param_hint="PROMPT",
        ) from None


def at_least(least: int) -> Callback:
    """Return a callback that reads an integer which is not smaller than ``least``."""

    def read(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        from promptgraft.strict.checks import integer

        check = integer(least)
        digits = value.isascii() and value.removeprefix("-").isdigit() and len(value) <= 18
        number = check.fits(int(value) if digits else None)
        if number is None:
            raise click.BadParameter(check.fault(repr(value), None))
        return number

    return read


def read_dollars(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> Decimal | None:
    """Return an amount of money that is not negative."""
    try:
        dollars = None if value is None else Decimal(value)
    except InvalidOperation:
        dollars = Decimal("NaN")
    if dollars is None or (dollars.is_finite() and dollars >= 0):
        return dollars
    raise click.BadParameter(f"expected US dollars such as 2.50, found {value!r}")


def read_seconds(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> float | None:
    """Return a time that is more than nothing."""
    try:
        seconds = None if value is None else float(value)
    except ValueError:
        seconds = 0.0
    if seconds is None or (math.isfinite(seconds) and seconds > 0):
        return seconds
    raise click.BadParameter(f"expected seconds such as 600, found {value!r}")


def read_tag(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return a tag that stores accept."""
    if value is None:
        return None
    from promptgraft.parts.validation import check_tag

    try:
        return check_tag(value)
    except InvalidIdentifierError as error:
        raise click.BadParameter(str(error).removeprefix("tag: ")) from None


tag_option = click.option(
    "--tag",
    metavar="TAG",
    callback=read_tag,
    help="The tag; by default the only one of the prompt, or `latest`.",
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

journal_option = click.option(
    "--journal",
    metavar="FILE",
    help="Keep every answer, so that the same command resumes after an interruption.",
)

run_argument = click.argument("run", metavar="[RUN]", default="latest")

workers_option = click.option(
    "--workers",
    metavar="N",
    callback=at_least(1),
    help="Rollouts side by side; the result does not depend on it.",
)

quiet_option = click.option(
    "--quiet", "-q", is_flag=True, help="Show no progress, only the summary."
)
