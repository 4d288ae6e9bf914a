"""``promptgraft compare``: two runs side by side."""

from __future__ import annotations

import attrs
import click

from promptgraft.cli.choosing import Runs, runs_options
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import examples, json_option
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.sentences import ESTIMATED
from promptgraft.runs import read_run
from promptgraft.runs.comparing import Incomparable, RunFigures, figures_of, incomparable
from promptgraft.serde import Json, unstructure
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
@runs_options
@json_option
def compare_command(first: str, second: str, *, runs: Runs, as_json: bool) -> ExitCode:
    """Show two runs side by side: quality, cost, why they ended, and the path to the best.

    A RUN is an id, the start of one, or `latest`; the second is `latest` by default. When the
    two have other data or metrics, it says that their scores cannot be compared.
    """
    one, other = (read_run(runs.find(name)) for name in (first, second))
    differing = incomparable(one, other)
    sides = figures_of(one), figures_of(other)
    if as_json:
        plain: list[Json] = [unstructure(attrs.asdict(side)) for side in sides]
        print_json({"runs": plain, "incomparable": unstructure(attrs.asdict(differing))})
    else:
        _print(Screen(), *sides, differing)
    return ExitCode.OK


def _print(screen: Screen, first: RunFigures, second: RunFigures, differing: Incomparable) -> None:
    for name, value in (("A", first), ("B", second)):
        screen.fields([(name, f"{value.run}, {value.prompt}, {value.state}")])
    for reason in differing.reasons:
        screen.line(f"scores cannot be compared: {reason}", color="yellow")
    screen.line()
    screen.table([("", "A", "B", "B - A"), *_rows(first, second, differing)])
    for name, side in (("A", first), ("B", second)):
        screen.line()
        ended = f"{side.stop_reason}: {side.stop_detail}" if side.stop_reason else "has not ended"
        screen.fields([(f"{name} stopped", ended)])
        screen.line(f"{name}, from the baseline to the best:", bold=True)
        for number, changed, mean, estimated in side.path:
            shown = score(mean, estimated=estimated)
            screen.line(f"  {shown:>6}  candidate {number}, {changed}")
    if any(estimated for side in (first, second) for *_, estimated in side.path):
        screen.line()
        screen.line(ESTIMATED)


def _rows(first: RunFigures, second: RunFigures, differing: Incomparable) -> list[tuple[str, ...]]:
    comparable = not differing.pareto
    rows: list[tuple[str, ...]] = [
        ("baseline", *_means(first, second, 0, comparable=comparable)),
        ("best", *_means(first, second, -1, comparable=comparable)),
    ]
    if first.held_out is not None or second.held_out is not None:
        one, other = first.held_out or (None, None), second.held_out or (None, None)
        for name, *means in zip(("baseline", "winner"), one, other, strict=True):
            gain = "" if differing.held_out else difference(*means)
            rows.append((f"held out, {name}", *map(score, means), gain))
    answers = {None: "not yet", True: "yes", False: "no"}
    rows.append(("improved", answers[first.improved], answers[second.improved], ""))
    for name in ("rollouts", "steps", "candidates", "rejected"):
        before, after = getattr(first, name), getattr(second, name)
        rows.append((name, str(before), str(after), f"{after - before:+d}"))
    rows.append(("dollars", first.cost or "unknown", second.cost or "unknown", ""))
    seeds = ("unknown" if side.seed is None else str(side.seed) for side in (first, second))
    rows.append(("seed", *seeds, ""))
    return rows


def _means(
    first: RunFigures, second: RunFigures, place: int, *, comparable: bool
) -> tuple[str, str, str]:
    (before, one), (after, other) = (
        side.path[place][2:] if side.path else (None, False) for side in (first, second)
    )
    marked = one or other
    gain = difference(before, after, estimated=(marked, marked)) if comparable else ""
    return score(before, estimated=one), score(after, estimated=other), gain
