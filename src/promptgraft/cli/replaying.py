"""``promptgraft replay``; packing runs into files and unpacking them."""

from __future__ import annotations

from pathlib import Path

import attrs
import click

from promptgraft.cli import options
from promptgraft.cli.choosing import chosen_runs
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.output import Screen, make_room, print_json, relative
from promptgraft.errors import ConfigError
from promptgraft.ground.folders import temporary_folder
from promptgraft.ground.serde import Json
from promptgraft.ground.text import counted, listed, shell_word
from promptgraft.project.exporting import export_run, is_export, unpack_run
from promptgraft.project.replaying import Replay, replayed
from promptgraft.runs import RunFolder

_WITHOUT_INPUTS = (
    "it was exported without inputs: unpacked, it can be shown and compared; to replay or resume "
    "it, ask for an export with inputs"
)


@options.command(
    "replay",
    "replay",
    "replay 20260131-1204",
    "replay runs/20260131-120415-triage",
    "replay run.zip --json",
)
@options.run_argument
@options.project_option
@options.runs_option
@options.json_option
def replay_command(run: str, *, project: str | None, runs: str | None, as_json: bool) -> ExitCode:
    """Run a run again from its journal, without a call, and compare the results.

    RUN is an id, the beginning of one, `latest`, a run folder, or an exported run. No network, key
    or model is used, and nothing is written. Code of the project runs only if a prompt or a graph
    is made by it, and never that of an exported run; --project names a project whose code may.
    The exit code is 0 if the result is the same, and 1 if it differs.
    """
    path = Path(run)
    is_folder = RunFolder(path).config.is_file()
    if runs is not None and (is_folder or is_export(path)):
        raise click.UsageError("--runs: RUN is a path already; leave it out")
    if is_export(path):
        replay = _of_export(path, project)
    else:
        folder = path if is_folder else chosen_runs(runs, project, runs_again=True).find(run).path
        replay = replayed(RunFolder(folder.absolute()), project=project)
    if as_json:
        print_json(_plain(replay))
    else:
        _print(replay)
    return ExitCode.OK if replay.difference is None else ExitCode.NOT_IMPROVED


def _of_export(path: Path, project: str | None) -> Replay:
    with temporary_folder() as work:
        unpacked = unpack_run(path, work / "unpacked")
        if not unpacked.has_inputs:
            raise ConfigError(f"{path}: {_WITHOUT_INPUTS}")
        return replayed(unpacked.folder, project=project, may_run_code=False)


def _plain(replay: Replay) -> dict[str, Json]:
    difference = replay.difference
    return {
        "run": replay.folder.id,
        "same": difference is None,
        "difference": None if difference is None else attrs.asdict(difference),
        "verdict": str(replay.ended.verdict),
        "rollouts": replay.ended.rollouts,
        "reflections": replay.ended.reflections,
        "used_code": replay.used_code,
        "seconds": round(replay.seconds, 3),
    }


def _print(replay: Replay) -> None:
    ended, name = replay.ended, replay.folder.id
    reflections = counted(ended.reflections, "reflection call")
    calls = f"{counted(ended.rollouts, 'test call')} and {reflections}"
    if replay.difference is None:
        Screen().line(
            f"{name}: the same result, {ended.verdict}, from {calls} of its journal in "
            f"{replay.seconds:.1f} s, without a call"
        )
    else:
        Screen().line(f"{name} differs at {replay.difference}", color="yellow")


def pack(run: str, path: Path, *, project: str | None, inputs: bool, as_json: bool) -> None:
    """Pack a run into a file, and say what somebody else can do with it."""
    is_folder = RunFolder(Path(run)).config.is_file()
    if is_folder and project is not None:
        raise click.UsageError("--project: the run is named by its path already; leave it out")
    folder = RunFolder(Path(run)) if is_folder else chosen_runs(None, project).find(run)
    make_room(path)
    exported = export_run(RunFolder(folder.path.absolute()), path, inputs=inputs)
    if as_json:
        plain = attrs.asdict(exported)
        print_json({**plain, "path": str(path.absolute()), "code": list(exported.code)})
        return
    screen = Screen()
    screen.line(f"wrote {relative(path)}, {exported.bytes:,} bytes: run {exported.run}")
    if not exported.has_inputs:
        screen.line(_WITHOUT_INPUTS)
    elif exported.lacking:
        screen.line(
            f"without the files of its project: {exported.lacking}; it can be replayed and resumed "
            "beside them"
        )
    if exported.code:
        screen.line(f"with the code of {listed(exported.code)}, which a replay does not run")


def unpack(path: Path, *, as_json: bool) -> None:
    """Unpack an exported run into a folder beside it, and say what to do next."""
    unpacked = unpack_run(path, path.with_suffix(""))
    if as_json:
        print_json(
            {
                "folder": str(unpacked.project.absolute()),
                "run": unpacked.folder.id,
                "inputs": unpacked.has_inputs,
                "code": list(unpacked.code),
            }
        )
        return
    screen = Screen()
    screen.line(f"unpacked {relative(unpacked.project)}: run {unpacked.folder.id}")
    if unpacked.code:
        screen.line(
            f"{listed(unpacked.code)} is code of the sender, which `resume` runs: read it first"
        )
    screen.line("next:")
    next_command = "replay" if unpacked.has_inputs else "show"
    steps = [f"cd {shell_word(str(relative(unpacked.project)))}", f"promptgraft {next_command}"]
    screen.body(
        "\n".join(steps if next_command == "replay" else [*steps[:1], "promptgraft show latest"])
    )
