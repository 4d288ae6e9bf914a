"""``promptgraft compare``: two runs side by side."""

from __future__ import annotations

import attrs
import click

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import examples, json_option, project_option, runs_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.run_choice import chosen_runs
from promptgraft.runs import read_run
from promptgraft.runs.comparing import RunFigures, figures_of
from promptgraft.serde import unstructure
from promptgraft.text import difference, score


@click.command(
    "compare",
    epilog=examples(
        "promptgraft compare 20260131-1204 latest",
        "promptgraft compare 20260131 20260201 --json",
    ),
)
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="[RUN]", default="latest")
@project_option
@runs_option
@json_option
def command(
    first: str, second: str, *, project: str | None, runs: str | None, as_json: bool
) -> ExitCode:
    """Show two runs side by side: quality, cost, why they ended, and the path to the best.

    A RUN is an id, the start of one, or `latest`; the second is `latest` by default.
    """
    chosen = chosen_runs(runs, project)
    sides = [figures_of(read_run(chosen.find(name))) for name in (first, second)]
    if as_json:
        print_json({"runs": [unstructure(attrs.asdict(side)) for side in sides]})
    else:
        _print(Screen(), *sides)
    return ExitCode.OK


def _print(screen: Screen, first: RunFigures, second: RunFigures) -> None:
    for name, value in (("A", first), ("B", second)):
        screen.fields([(name, f"{value.run}, {value.prompt}, {value.state}")])
    screen.line()
    screen.table([("", "A", "B", "B - A"), *_rows(first, second)])
    for name, side in (("A", first), ("B", second)):
        screen.line()
        ended = f"{side.stop_reason}: {side.stop_detail}" if side.stop_reason else "has not ended"
        screen.fields([(f"{name} stopped", ended)])
        screen.line(f"{name}, from the baseline to the best:", bold=True)
        for number, changed, mean in side.path:
            screen.line(f"  {score(mean)}  candidate {number}, {changed}")


def _rows(first: RunFigures, second: RunFigures) -> list[tuple[str, ...]]:
    rows = [
        _scores("baseline", first.baseline, second.baseline),
        _scores("best", first.best, second.best),
    ]
    if first.held_out is not None or second.held_out is not None:
        one, other = first.held_out or (None, None), second.held_out or (None, None)
        rows.append(_scores("held out, baseline", one[0], other[0]))
        rows.append(_scores("held out, winner", one[1], other[1]))
    rows.append(("improved", _yes(first.improved), _yes(second.improved), ""))
    for name in ("rollouts", "steps", "candidates", "rejected"):
        before, after = getattr(first, name), getattr(second, name)
        rows.append((name, str(before), str(after), f"{after - before:+d}"))
    rows.append(("dollars", first.cost or "unknown", second.cost or "unknown", ""))
    rows.append(("seed", _known(first.seed), _known(second.seed), ""))
    return rows


def _scores(name: str, before: float | None, after: float | None) -> tuple[str, ...]:
    return name, score(before), score(after), difference(before, after)


def _yes(value: bool | None) -> str:
    return "not yet" if value is None else "yes" if value else "no"


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)
