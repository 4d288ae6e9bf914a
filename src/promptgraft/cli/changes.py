"""What ``optimize`` and ``resume`` change of a job: limits, tag, weights."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal

import attrs
import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import at_least, read_dollars, read_seconds
from promptgraft.search.job import OptimizationJob
from promptgraft.serde import Json, structure

Command = Callable[..., ExitCode]


@attrs.frozen(kw_only=True)
class Changes:
    """What the command line changes of a job; None leaves it as it is.

    Attributes:
        tag: the tag of the store.
        pick: weights of objectives that decide which candidate wins.
        budget: rollouts that may be used.
        max_cost: US dollars that may be used.
        max_tokens: tokens that may be used.
        timeout: seconds that the command may take.
    """

    tag: str | None = None
    pick: str | None = None
    budget: int | None = None
    max_cost: Decimal | None = None
    max_tokens: int | None = None
    timeout: float | None = None

    def applied(self, job: OptimizationJob) -> OptimizationJob:
        """Return the job with the changes.

        Raises:
            ConfigError: the job cannot have them.
        """
        context, config = job.context, job.config
        if self.tag is not None:
            context = attrs.evolve(context, overrides_tag=self.tag)
        if self.pick is not None:
            config = attrs.evolve(config, pick=self.pick)
        if self.budget is not None:
            config = attrs.evolve(config, auto=None, rollout_budget=self.budget)
        limits = {
            name: value
            for name in ("max_cost", "max_tokens", "timeout")
            if (value := getattr(self, name)) is not None
        }
        return OptimizationJob(job.prompt, context, attrs.evolve(config, **limits))

    def over(self, older: Changes) -> Changes:
        """Return both, these before ``older``."""
        given = {
            name: value
            for name, value in attrs.asdict(self, recurse=False).items()
            if value is not None
        }
        return attrs.evolve(older, **given)

    def plain(self) -> dict[str, Json]:
        """Return what is kept of them: all but the time, which is that of one command."""
        return {
            name: str(value) if isinstance(value, Decimal) else value
            for name, value in attrs.asdict(self, recurse=False).items()
            if value is not None and name != "timeout"
        }


@attrs.frozen(kw_only=True)
class _KeptChanges:
    tag: str | None = None
    pick: str | None = None
    budget: int | None = None
    max_cost: str | None = None
    max_tokens: int | None = None


def read_changes(plain: Json, where: str) -> Changes:
    """Return the changes that ``config.json`` keeps.

    Raises:
        DataFormatError: it keeps something else.
    """
    kept = structure(plain, _KeptChanges, where=where)
    cost = None if kept.max_cost is None else Decimal(kept.max_cost)
    return Changes(**{**attrs.asdict(kept, recurse=False), "max_cost": cost})


def limit_options(command: Command) -> Command:
    """Give a command the options of a run's limits, which it gets as ``limits``: ``Changes``."""

    @functools.wraps(command)
    def wrapped(
        *,
        budget: int | None,
        max_cost: Decimal | None,
        max_tokens: int | None,
        timeout: float | None,
        **others: object,
    ) -> ExitCode:
        limits = Changes(budget=budget, max_cost=max_cost, max_tokens=max_tokens, timeout=timeout)
        return command(limits=limits, **others)

    for option in reversed(_LIMITS):
        wrapped = option(wrapped)
    return wrapped


_LIMITS = (
    click.option(
        "--budget", metavar="N", callback=at_least(1), help="Rollouts that the run may use in all."
    ),
    click.option(
        "--max-cost",
        metavar="DOLLARS",
        callback=read_dollars,
        help="US dollars that the run may use in all; for models whose price is known.",
    ),
    click.option(
        "--max-tokens",
        metavar="N",
        callback=at_least(1),
        help="Tokens that the run may use in all, sent and received.",
    ),
    click.option(
        "--timeout",
        metavar="SECONDS",
        callback=read_seconds,
        help="How long this command may run; `promptgraft resume` goes on.",
    ),
)
