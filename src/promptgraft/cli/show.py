"""``promptgraft show``: the contents of a run directory or of a store."""

from __future__ import annotations

import contextlib
import re
from itertools import groupby

import attrs
import click

from promptgraft.cli import choosing, options, stored
from promptgraft.cli.output import Screen, print_json
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json
from promptgraft.ground.text import counted, moment
from promptgraft.overrides import PromptOverride, RevisionedStore, SkippedOverride
from promptgraft.overrides.differences import part_json
from promptgraft.overrides.parts import in_order
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.resolution import resolve_override
from promptgraft.prompt import PromptTemplate

RUN_NAME = re.compile(r"\d|latest$")
"""Matches the beginning of run ids, and no name of a prompt."""


@options.command(
    "show",
    "show",
    "show support/triage",
    "show support/triage --template app.py:TRIAGE",
    "show latest",
    "show 20260131-1204 --candidate 3",
    "show latest --case t-17 --candidate 3",
    "show latest --step 2",
)
@click.argument("what", metavar="[PROMPT|RUN]", required=False)
@options.tag_option
@options.template_option
@options.store_option
@click.option(
    "--candidate",
    type=options.at_least(0),
    help="For a run: the texts of a candidate, and what it changes.",
)
@click.option("--rejected", is_flag=True, help="For a run: every rejected proposal and the reason.")
@click.option("--case", metavar="ID", help="For a run: the answers to a case, with their feedback.")
@click.option(
    "--step",
    type=options.at_least(1),
    help="For a run: the exact questions to the reflection model in a step.",
)
@options.project_option
@options.runs_option
@options.json_option
@click.pass_context
def show_command(
    context: click.Context,
    *,
    what: str | None,
    tag: str | None,
    template: str | None,
    store: str | None,
    candidate: int | None,
    rejected: bool,
    case: str | None,
    step: int | None,
    project: str | None,
    runs: str | None,
    as_json: bool,
) -> None:
    """Show a run, or the overrides in a store.

    Without an argument, lists the prompts and tags of the store. With PROMPT, `namespace/key` or
    a name in `promptgraft.yaml`, prints the text of each override; in a project, or with
    `--template`, also which of them are stale, and why. With RUN, the id of a run, the beginning
    of one, or `latest`, prints the state of the run and its candidates.
    """
    # Ids of runs begin with a digit; in a project, any other word is the name of a prompt.
    if what is None or "/" in what or (not RUN_NAME.match(what) and choosing.in_project(project)):
        _refuse(context, of="a run", names=("candidate", "rejected", "case", "step", "runs"))
        prompt_found = (
            None if what is None else choosing.read_prompt(context, context.command.params[0], what)
        )
        opened = choosing.chosen_store(store, project, prompt_found)
        if prompt_found is not None:
            stored_tag = stored.find_tag(opened, prompt_found, tag)
            _show_prompt(stored_tag, _source(stored_tag, prompt_found, template), as_json=as_json)
        elif template is not None:
            raise click.UsageError("--template needs PROMPT; name the prompt as `namespace/key`")
        else:
            _show_store(opened, tag, as_json=as_json)
    elif not RUN_NAME.match(what):
        raise click.BadParameter(
            f"expected a prompt, `namespace/key`, or a run, its id or `latest`, found {what!r}",
            context,
            context.command.params[0],
        )
    else:
        from promptgraft.cli import show_run

        _refuse(context, of="a store", names=("tag", "template", "store"))
        numbers = {"--candidate": candidate, "--case": case, "--step": step}
        names = [name for name, value in numbers.items() if value is not None]
        for alone, is_given in (("--rejected", rejected), ("--step", step is not None)):
            beside = [name for name in names if name != alone]
            if is_given and beside:
                raise click.UsageError(f"{alone} does not go with {beside[0]}; choose one")
        found_in = choosing.chosen_runs(runs, project)
        selection = show_run.ShownRun(candidate=candidate, rejected=rejected, case=case, step=step)
        show_run.show_run(found_in, what, selection, as_json=as_json)


def _refuse(context: click.Context, *, of: str, names: tuple[str, ...]) -> None:
    for name in names:
        if context.params[name]:
            what_else = "RUN, an id or `latest`" if of == "a run" else "no RUN"
            raise click.UsageError(f"--{name} is for what {of} holds; give {what_else}")


@attrs.frozen(kw_only=True)
class ShownEntry:
    """An override for display.

    Attributes:
        entry: the override.
        source: what it was compared with; None if it was not.
        skipped: why the source skips it; None if it applies or was not checked.
    """

    entry: Entry
    source: PromptTemplate[object] | None
    skipped: SkippedOverride | None

    @property
    def text(self) -> str:
        """Its text as the author of the source would write it; without one, as it is stored."""
        return (self.entry.as_written(self.source) if self.source else self.entry).show()


def shown_entries(
    override: PromptOverride, source: PromptTemplate[object] | None
) -> tuple[ShownEntry, ...]:
    """Return every override, ordered by kind, checked against ``source`` if there is one."""
    resolution = resolve_override(source.descriptor, override) if source else None
    skipped = (
        {skipped_part.part: skipped_part for skipped_part in resolution.skipped}
        if resolution
        else {}
    )
    return tuple(
        ShownEntry(entry=entry, source=source, skipped=skipped.get(entry.part))
        for entry in in_order(override.entries())
    )


def entry_json(shown_entry: ShownEntry) -> dict[str, Json]:
    """Return an override as plain data."""
    entry, skipped = shown_entry.entry, shown_entry.skipped
    return {
        **part_json(
            entry.kind,
            entry.part,
            checked=shown_entry.source is not None,
            reason=skipped.reason if skipped else None,
        ),
        "expected_hash": entry.expected_hash,
        "found_hash": skipped.found_hash if skipped else None,
        "content": {
            name: value for name, value in entry.plain().items() if name != "expected_hash"
        },
    }


def _print_entry(screen: Screen, shown_entry: ShownEntry) -> None:
    entry = shown_entry.entry
    state = f": {_state(shown_entry.skipped)}" if shown_entry.source is not None else ""
    screen.line(f"{entry.part}{state}", bold=True)
    if entry.texts():
        screen.body(shown_entry.text, wrapped=not entry.is_text)
    else:
        screen.body("The example of the source is not shown.")


def _state(skipped: SkippedOverride | None) -> str:
    if skipped is None:
        return "applied"
    # The text of the source is gone or unchanged, so two hashes would explain nothing.
    if skipped.found_hash is None or skipped.found_hash == skipped.expected_hash:
        return f"not applied, {skipped.reason}"
    return (
        f"not applied, {skipped.reason}: written for source "
        f"{shown_hash(skipped.expected_hash)}, the source is now {shown_hash(skipped.found_hash)}"
    )


def _show_store(store: RevisionedStore, tag: str | None, *, as_json: bool) -> None:
    tags = stored.find_tags(store, tag)
    if as_json:
        counts = [
            {"overrides": len(stored_tag.present().override.entries())} for stored_tag in tags
        ]
        rows = [
            {**_held_json(stored_tag), **count}
            for stored_tag, count in zip(tags, counts, strict=True)
        ]
        print_json({"store": store.place, "tags": rows})
        return
    screen = Screen()
    if not tags:
        where = f" under tag `{tag}`" if tag else ""
        screen.line(
            f"nothing is stored{where} in {store.place}; "
            "`promptgraft apply` stores the winner of a run"
        )
        return
    screen.line(f"store {store.place}", bold=True)
    for prompt, group in groupby(tags, key=lambda found: found.prompt):
        screen.line()
        screen.line(prompt, bold=True)
        for stored_tag in group:
            screen.line(f"  {stored_tag.address.tag}")
            overrides = counted(len(stored_tag.present().override.entries()), "override")
            when = moment(stored_tag.present().time)
            position = f"{stored.short(stored_tag.current)} of {len(stored_tag.history)}"
            screen.line(f"    {position}, {overrides}, {when}")


def _held_json(tag: stored.StoredTag) -> dict[str, Json]:
    current = stored.revision_json(tag.present())
    return {**stored.tag_json(tag), "revisions": len(tag.history), "current": current}


def _source(
    tag: stored.StoredTag, name: options.PromptName, template: str | None
) -> PromptTemplate[object] | None:
    """Return the source in ``template``, else that of the project if the project is valid."""
    if template is None:
        with contextlib.suppress(DataFormatError):
            return choosing.project_source(name)
        return None
    source = choosing.load_template(template)
    descriptor = source.descriptor
    if (descriptor.ns, descriptor.key) != (tag.address.ns, tag.address.prompt_key):
        raise ConfigError(
            f"--template: {template} is prompt `{descriptor.ns}/{descriptor.key}`, "
            f"not `{tag.prompt}`; name the source of that prompt"
        )
    return source


def _show_prompt(
    tag: stored.StoredTag, source: PromptTemplate[object] | None, *, as_json: bool
) -> None:
    entries = shown_entries(tag.present().override, source)
    if as_json:
        print_json({**_held_json(tag), "parts": [entry_json(entry) for entry in entries]})
        return
    rows = [
        ("prompt", tag.prompt),
        ("tag", tag.address.tag),
        *stored.fields_of(tag.present()),
        ("file", stored.override_file(tag.store, tag.address) or "none"),
    ]
    if source is not None:
        applied = sum(entry.skipped is None for entry in entries)
        rows.append(("applied", f"{applied} of {counted(len(entries), 'override')}"))
    screen = Screen()
    screen.fields(rows)
    for entry in entries:
        screen.line()
        _print_entry(screen, entry)
