"""``promptgraft eval``: evaluate a prompt on its cases, and let it pass or not."""

from __future__ import annotations

from typing import TypedDict, Unpack

import click

from promptgraft.cli import options
from promptgraft.cli.exits import ExitCode


class EvalOptions(TypedDict):
    """What the command line asks for."""

    split: str
    fail_under: float | None
    min_pass_rate: float | None
    baseline: str | None
    tolerance: float | None
    max_unscored: int
    save_baseline: str | None
    junit: str | None
    tag: str | None
    source: bool
    run: str | None
    candidate: int | None
    num_runs: int
    workers: int | None


@options.command(
    "eval",
    "eval --fail-under 0.8",
    "eval --baseline old.json --junit gate.xml",
    "eval --source --save-baseline old.json",
    "eval --run latest --num-runs 3",
)
@click.argument("prompt", required=False)
@options.project_option
@click.option(
    "--split",
    type=click.Choice(("test", "validation", "train", "all")),
    default="test",
    show_default=True,
    help="The cases.",
)
@click.option(
    "--fail-under", metavar="SCORE", type=options.share, help="The least mean score, 0 to 1."
)
@click.option(
    "--min-pass-rate",
    metavar="R",
    type=options.share,
    help="The least share of answers that pass, 0 to 1.",
)
@click.option(
    "--baseline", metavar="FILE", help="Scores that no critical case, and no mean, may be below."
)
@click.option(
    "--tolerance",
    metavar="T",
    type=options.share,
    help="How much the mean may be below that of the baseline.",
)
@click.option(
    "--max-unscored",
    type=options.at_least(0),
    default="0",
    help="How many answers may be without a score; those of critical cases never.",
)
@click.option(
    "--save-baseline", metavar="FILE", help="Keep the scores there if the gate is passed."
)
@click.option("--junit", metavar="FILE", help="Write the cases as JUnit XML.")
@click.option(
    "--tag", type=options.tag, help="Try what this tag holds; by default the project's tag."
)
@click.option("--source", is_flag=True, help="Try the source, without overrides.")
@click.option("--run", metavar="RUN", help="Try the winner of a run: an id, or `latest`.")
@click.option(
    "--candidate", type=options.at_least(0), help="Another candidate of the run; 0 is its baseline."
)
@click.option(
    "--num-runs", type=options.at_least(1), default="1", help="How often each case is answered."
)
@click.option(
    "--workers",
    type=options.at_least(1),
    help="Cases side by side; by default as the project says.",
)
@options.json_option
@options.quiet_option
def eval_command(
    prompt: str | None,
    *,
    project: str | None,
    as_json: bool,
    quiet: bool,
    **given: Unpack[EvalOptions],
) -> ExitCode:
    """Evaluate a prompt on its cases, and let it pass or not.

    PROMPT is its name in the project. Exits with 1 when the scores are not what was asked
    for, and with 4 when answers have no score. What is tried is what the project's tag
    holds, with the metrics, the model and the data that `promptgraft optimize` uses.
    """
    from promptgraft.cli.eval_run import carry_out

    if given["tolerance"] is not None and given["baseline"] is None:
        raise click.UsageError("--tolerance is for the scores of a baseline; give --baseline")
    return carry_out(prompt, given, project=project, as_json=as_json, quiet=quiet)
