"""``promptgraft apply`` and ``restore``: writing a winner where it is used, and undoing a write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs
import click

from promptgraft.agents.writing import RECORD, CallbackSource, SourceWriter, settle_left_over
from promptgraft.cli import options, stored
from promptgraft.cli.choosing import chosen_runs, in_project, opened_project
from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.output import Screen, echo, print_json
from promptgraft.ground.files import nearest_folder
from promptgraft.ground.text import listed, visible
from promptgraft.overrides.differences import parts_json
from promptgraft.project import Project, applying
from promptgraft.project.agents import callbacks_of
from promptgraft.project.files import FileChange
from promptgraft.project.format_agents import TextsConfig
from promptgraft.project.origins import RunTarget, files_folder, found_target, project_of
from promptgraft.project.python_source import beside
from promptgraft.runs import RunFolder, RunRecord, read_run
from promptgraft.search.verdict import RunVerdict


@options.command(
    "apply",
    "apply",
    "apply --dry-run",
    "apply 20260101-120000-triage --candidate 4",
    "apply --to-source",
    "apply --patch | git apply",
)
@options.run_argument
@click.option(
    "--candidate",
    type=options.at_least(0),
    help="The number of a candidate; by default the winner of the run.",
)
@click.option(
    "--tag",
    type=options.tag,
    help="The tag to write to; by default the one that the run started from.",
)
@click.option(
    "--keep-anyway",
    is_flag=True,
    help="Apply the winner even if the test cases do not show that it is better.",
)
@click.option("--to-source", is_flag=True, help="Write to the prompt's files instead of the store.")
@click.option("--patch", is_flag=True, help="Print a patch of the files, and write nothing.")
@click.option("--dry-run", is_flag=True, help="Check everything and write nothing.")
@options.project_option
@options.runs_option
@options.store_option
@options.json_option
def apply_command(
    run: str,
    *,
    candidate: int | None,
    tag: str | None,
    keep_anyway: bool,
    to_source: bool,
    patch: bool,
    dry_run: bool,
    project: str | None,
    runs: str | None,
    store: str | None,
    as_json: bool,
) -> ExitCode:
    """Apply the winner of a run to the store or the source.

    RUN is the id of a run, or the beginning of one; by default the latest. The store gets one new
    revision. Refuses with exit code 2 if the source or the tag has changed since the run in a part
    that the winner changes. Exits with 1 if nothing was shown to be better.
    """
    if to_source and patch:
        raise click.UsageError("--to-source and --patch exclude each other; leave one out")
    if tag is not None and (to_source or patch):
        raise click.UsageError("--tag names a tag of the store; leave it or the files out")
    if patch and (dry_run or store is not None):
        option = "--store" if store is not None else "--dry-run"
        raise click.UsageError(
            f"{option}: --patch touches no store and writes nothing; leave one out"
        )
    record = read_run(chosen_runs(runs, project, runs_again=True).find(run))
    choice = applying.choose(record, candidate, keep_anyway=keep_anyway)
    if choice.candidate is None:
        _report_no_improvement(record, choice.why_not, as_json=as_json)
        return ExitCode.NOT_IMPROVED
    request = _ApplyRequest(
        run=record, candidate=choice.candidate, tag=tag, dry=dry_run, as_json=as_json
    )
    way = _write_to_source if to_source else _make_patch if patch else _apply_to_store
    try:
        answer = _carry_out(request, way, project_of(record, project), store=store)
    except applying.StaleWinnerError as error:
        for fault in error.faults:
            complain(fault)
        return ExitCode.WRONG_USE
    answer()
    return ExitCode.OK


def _carry_out(
    request: _ApplyRequest, way: _Way, project: Project | None, *, store: str | None
) -> Answer:
    folder = files_folder(request.run, project)
    # Before the prompt is read: its files are inconsistent while a write is half done.
    if folder is not None and (settled := settle_left_over(folder.resolve(), None)):
        complain(settled)
    to_files = way is not _apply_to_store
    with found_target(request.run, project, store, to_files=to_files) as target:
        return way(request, target)


def _report_no_improvement(run: RunRecord, why: str, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(run, None, None, "not improved", dry_run=False, reason=why))
        return
    screen = Screen()
    screen.line(f"run `{run.id}`: {why}; nothing was written", bold=True)
    if len(run.candidates) > 1:
        screen.line(
            f"--candidate N applies one of its candidates; `promptgraft show {run.id}` lists them"
        )


def _document(
    run: RunRecord, candidate: int | None, where: str | None, outcome: str, **more: object
) -> dict[str, object]:
    """Return the answer as plain data: the keys that all outcomes have, and ``more``."""
    return {
        "run": run.id,
        "candidate": candidate,
        "prompt": run.prompt,
        "where": where,
        "outcome": outcome,
        **more,
    }


Answer = Callable[[], None]
"""Prints the result. Call it outside :func:`found_target`, which redirects standard output."""

_APPLIED = {True: "applied", False: "already applied"}
_ALREADY_APPLIED = "already applied: the source has this text"


@attrs.frozen(kw_only=True)
class _ApplyRequest:
    """The arguments of the command that every way of applying needs."""

    run: RunRecord
    candidate: int
    tag: str | None
    dry: bool
    as_json: bool

    def answer(
        self,
        where: str,
        outcome: str,
        show: Callable[[Screen], None],
        *,
        winner: applying.Winner | None = None,
        **more: object,
    ) -> Answer:
        """Return a printer of ``more`` as JSON, or of a heading and ``show`` as text."""
        scores = dict(winner.provenance.scores) if winner else {}

        def answer() -> None:
            if self.as_json:
                fields: dict[str, object] = {"scores": scores} if winner else {}
                plain = _document(self.run, self.candidate, where, outcome, dry_run=self.dry)
                print_json({**plain, **fields, **more})
                return
            screen = Screen()
            heading = f"run `{self.run.id}`, candidate {self.candidate}"
            screen.line(
                ": ".join(filter(None, (heading, stored.scores_in_words(scores)))), bold=True
            )
            show(screen)

        return answer


_Way = Callable[[_ApplyRequest, RunTarget], Answer]


def _apply_to_store(request: _ApplyRequest, target: RunTarget) -> Answer:
    """Write the candidate to ``--tag``, or to the tag that the run started from."""
    winners, store = (
        applying.winners_of(request.run, request.candidate, target.addresses),
        target.store,
    )
    sourced = list(zip(winners, target.prompts, strict=True))
    written = applying.store_winners(store, sourced, request.tag or target.tag, dry=request.dry)
    tag, applied = written[0].address.tag, any(prompt_written.parts for prompt_written in written)
    rows = [
        {
            "prompt": f"{prompt_written.address.ns}/{prompt_written.address.prompt_key}",
            "file": stored.override_file(store, prompt_written.address),
            "from": stored.revision_json_or_none(prompt_written.before),
            "to": stored.revision_json_or_none(prompt_written.after),
            "parts": parts_json(prompt_written.parts, checked=False),
        }
        for prompt_written in written
    ]

    def show(screen: Screen) -> None:
        screen.fields([("prompt", f"{request.run.prompt}, tag `{tag}`")])
        if not applied:
            screen.line(f"already applied: tag `{tag}`, or the source, has this text")
            return
        for prompt_written, row in zip(written, rows, strict=True):
            if len(rows) > 1:
                screen.line(str(row["prompt"]), bold=True)
            to = (
                "a new revision"
                if request.dry and prompt_written.parts
                else stored.short(prompt_written.after)
            )
            moved = [
                ("from", stored.short(prompt_written.before)),
                ("to", to),
                ("file", str(row["file"])),
            ]
            screen.fields(moved, width=6)
            screen.parts(prompt_written.parts)
        screen.line()
        if request.dry:
            screen.line("a dry run: nothing was written")
            return
        screen.line("Take it back:", bold=True)
        for prompt_written in written:
            if prompt_written.parts:
                screen.body(stored.tag_command("rollback", prompt_written.address, store))

    # The document of one prompt has its keys at the top; several prompts are listed.
    keys: dict[str, object] = {**rows[0]} if len(rows) == 1 else {"prompts": rows}
    keys.pop("prompt", None)
    root = store.place
    # The first winner stands for all: the scores are those of the run.
    return request.answer(
        "store", _APPLIED[applied], show, winner=winners[0], store=root, tag=tag, **keys
    )


def _write_to_source(request: _ApplyRequest, target: RunTarget) -> Answer:
    """Write the candidate to the files of its prompts, all or none."""
    rewritten = applying.Rewritten.of(request.run, request.candidate, target)
    parts, stale = rewritten.parts, rewritten.left_behind(target)
    paths = rewritten.write(request.run, request.candidate, target, dry=request.dry)

    def show(screen: Screen) -> None:
        if not paths:
            screen.line(_ALREADY_APPLIED)
            return
        screen.parts(parts)
        screen.line()
        _print_files(screen, request, paths)
        if stale:
            screen.line(
                f"tag `{target.tag}` holds overrides of {', '.join(stale)}: they were written "
                "for the old text and are not applied to the new one",
                color="yellow",
            )

    return request.answer(
        "source",
        _APPLIED[bool(paths)],
        show,
        winner=rewritten.winner,
        files=paths,
        parts=parts_json(parts, checked=True),
        stale_overrides={"tag": target.tag, "parts": stale},
    )


def _print_files(screen: Screen, request: _ApplyRequest, paths: Sequence[str]) -> None:
    if request.dry:
        screen.line("a dry run: nothing was written")
    verb = "would be written" if request.dry else "written"
    screen.fields([(verb, path) for path in paths])


def _make_patch(request: _ApplyRequest, target: RunTarget) -> Answer:
    """Make a patch of the files that turns them into the candidate; write nothing."""
    rewritten = applying.Rewritten.of(request.run, request.candidate, target)
    winner, root = rewritten.winner, applying.patch_root(target.folder)
    applying.planned(root, rewritten.changes)  # refuses files outside of ``root``
    if stored := [text.name for text in rewritten.texts if not text.path]:
        complain(f"not in the patch, as no file holds them: {listed(stored)}")
    in_files = [
        FileChange(target.folder / text.path, text.old, text.new[-1])
        for text in rewritten.texts
        if text.path
    ]
    patch = applying.patch_of([*rewritten.changes, *in_files], root=root)
    if request.as_json:
        outcome, show = _APPLIED[bool(patch)], lambda _: None
        return request.answer("patch", outcome, show, winner=winner, root=str(root), patch=patch)
    return partial(_print_patch, patch)


def _print_patch(patch: str) -> None:
    if not patch:
        complain(f"{_ALREADY_APPLIED}; the patch is empty")
    elif sys.stdout is not None and sys.stdout.isatty():
        # Not piped into git, so control characters are spelled out.
        echo(visible(patch).removesuffix("\n"))
    else:
        # Written as bytes: in another encoding the patch would not match the files.
        click.echo(patch.encode(), nl=False)


def apply_unattended(folder: RunFolder) -> ExitCode:
    """Write the winner of a run to its source, if it was shown to be better.

    Called for projects with ``apply: to-source``. Reports on standard error what was written, or
    why nothing was.
    """
    run = read_run(folder)
    if run.ended is None or run.ended.verdict is not RunVerdict.IMPROVED:
        verdict = "the run has not ended" if run.ended is None else f"it is {run.ended.verdict}"
        complain(f"apply: to-source: nothing was written: {verdict}")
        return ExitCode.OK
    best = run.ended.best
    try:
        with found_target(run, project_of(run, None), None, to_files=True) as target:
            paths = applying.Rewritten.of(run, best, target).write(run, best, target, dry=False)
    except applying.StaleWinnerError as error:
        for fault in error.faults:
            complain(f"apply: to-source: nothing was written: {fault}")
        return ExitCode.WRONG_USE
    complain(f"apply: to-source: written: {', '.join(paths) or 'nothing, the source has it'}")
    return ExitCode.OK


@options.command("restore", "restore", "restore --overwrite", "restore --keep")
@click.option("--overwrite", is_flag=True, help="Also replace texts that were edited since.")
@click.option("--keep", is_flag=True, help="Keep every text as it is now, and restore none.")
@options.project_option
def restore_command(*, overwrite: bool, keep: bool, project: str | None) -> ExitCode:
    """Restore the texts that an interrupted run has replaced in files and callbacks.

    After a run with `delivery: live`, or the write of a winner, was killed, the next command that
    writes texts (`optimize`, `resume`, `eval`, `apply`) undoes or completes the write. This
    command does so explicitly. Texts that were edited since are left alone, with exit code 2,
    unless you choose `--overwrite` or `--keep`.
    """
    if overwrite and keep:
        raise click.UsageError("--overwrite and --keep exclude each other; leave one out")
    with _writer(project) as writer:
        record = writer.recorded()
        if record is not None:
            with writer.locked():
                if keep:
                    writer.end()
                else:
                    writer.settle(overwrite=overwrite)
    screen = Screen()
    if record is None:
        screen.line("there is nothing to restore")
        return ExitCode.OK
    state_word = "kept" if keep else "put back" if record.goal == "old" else "written"
    screen.fields([(state_word, text.where) for text in record.texts])
    return ExitCode.OK


@contextlib.contextmanager
def _writer(project: str | None) -> Iterator[SourceWriter]:
    """Yield the writer for the sources of the project, or for the nearest folder with a record."""
    if not in_project(project):
        folder = nearest_folder(RECORD) or Path()
        yield SourceWriter(folder.resolve(), None)
        return
    opened = opened_project(project)
    stored: dict[str, CallbackSource] = {}
    with beside(opened.folder):
        for name, spec in opened.config.prompts.items():
            if isinstance(spec, TextsConfig):
                path = ("prompts", name, "callbacks")
                stored.update(callbacks_of(spec, path, opened.surroundings))
        yield SourceWriter(opened.folder.resolve(), stored)
