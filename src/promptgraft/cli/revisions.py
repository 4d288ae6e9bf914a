"""``promptgraft diff``, ``history``, ``rollback`` and ``tag``: the revisions of a tag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import click

from promptgraft.cli import choosing, stored
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.options import PromptName, command, tag, tag_option, template_option
from promptgraft.cli.output import Screen, echo, print_json
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json
from promptgraft.ground.text import counted, listed, moment
from promptgraft.overrides import PartDiff, Revision, RevisionedStore, diff_override, diff_revisions
from promptgraft.overrides.differences import parts_json
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.prompt import PromptTemplate


@command(
    "diff",
    "diff support/triage",
    "diff support/triage --from 1 --to 77b0",
    "diff triage --source",
    "diff support/triage --template app.py:TRIAGE",
)
@choosing.prompts_argument
@tag_option
@click.option(
    "--from",
    "before",
    metavar="REV",
    help="The older revision; by default the parent of the newer one, or else the source.",
)
@click.option(
    "--to", "after", metavar="REV", help="The newer revision; by default the current one."
)
@click.option("--source", is_flag=True, help="Compare with the project's source of the prompt.")
@template_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 if there are differences.")
@choosing.store_options
def diff_command(
    prompt: Sequence[PromptName],
    *,
    tag: str | None,
    before: str | None,
    after: str | None,
    source: bool,
    template: str | None,
    exit_code: bool,
    store: RevisionedStore,
    as_json: bool,
) -> ExitCode:
    """Show what overrides change, as a unified diff.

    Compares two revisions, or a revision with its source in the project or in Python. A REV is
    the number of a revision, or at least four leading digits of its id. PROMPT is
    `namespace/key`, or a name in `promptgraft.yaml`; of a graph all prompts are compared.
    """
    if sum((template is not None, source, before is not None)) > 1:
        raise click.UsageError("--from, --source and --template exclude each other; leave one")
    if len(prompt) > 1 and (template or before or after):
        raise click.UsageError(
            "--template, --from and --to are for one prompt of the graph; name one of "
            f"{listed(map(str, prompt))}"
        )
    compared = [
        _compared(stored_tag, named, before, after, source=source, template=template)
        for named, stored_tag in _stored_tags(store, prompt, tag)
    ]
    if as_json:
        _print_documents([comparison.as_json() for comparison in compared], prompt)
    else:
        for at, comparison in enumerate(compared):
            if at:
                echo("")
            comparison.print()
    differ = any(comparison.parts for comparison in compared)
    return ExitCode.NOT_IMPROVED if exit_code and differ else ExitCode.OK


def _stored_tags(
    store: RevisionedStore, prompts: Sequence[PromptName], tag: str | None
) -> list[tuple[PromptName, stored.StoredTag]]:
    """Return the tag of each prompt, without those of a graph for which nothing is stored."""
    addresses = {(address.ns, address.prompt_key) for address in store.addresses()}
    named = [prompt for prompt in prompts if (prompt.ns, prompt.key) in addresses] or prompts[:1]
    return [(prompt, stored.find_tag(store, prompt, tag)) for prompt in named]


def _print_documents(documents: Sequence[Mapping[str, Json]], prompts: Sequence[object]) -> None:
    """Print the document of a prompt, or those of a graph."""
    print_json(documents[0] if len(prompts) == 1 else {"prompts": documents})


@attrs.frozen(kw_only=True)
class _RevisionDiff:
    """What a revision changes against an older one or a source.

    Attributes:
        tag: the tag of both revisions.
        older: the older revision; None if it is the source.
        newer: the newer revision.
        template: the source in Python; None for another.
        of_source: whether the older side is a source that was read.
        parts: the differences.
    """

    tag: stored.StoredTag
    older: Revision | None
    newer: Revision
    template: str | None
    of_source: bool
    parts: Sequence[PartDiff]

    def as_json(self) -> dict[str, Json]:
        """Return the document of the comparison."""
        differing = parts_json(self.parts, checked=self.of_source)
        origin = {"template": self.template, "source": self.of_source and self.template is None}
        return {**origin, **_moved(self.tag, self.older, self.newer), "parts": differing}

    def print(self) -> None:
        """Print the comparison as text."""
        screen = Screen()
        screen.line(self.tag.title, bold=True)
        begin = self.template or ("the source" if self.of_source else stored.short(self.older))
        screen.fields([("from", begin), ("to", stored.short(self.newer))])
        screen.parts(self.parts)
        if not self.parts:
            screen.line("no differences")


def _compared(
    stored_tag: stored.StoredTag,
    prompt: PromptName,
    before: str | None,
    after: str | None,
    *,
    source: bool,
    template: str | None,
) -> _RevisionDiff:
    newer = stored_tag.present() if after is None else stored_tag.revision(after)
    base_revision = None if template or source else before or newer.parent
    older = None if base_revision is None else stored_tag.revision(base_revision)
    origin = choosing.load_template(template) if template else _source_of(prompt, needed=source)
    against = origin if older is None else None
    parts: Sequence[PartDiff]
    if against is not None:
        # Against a source, overrides that change nothing are listed too; they are no difference.
        parts = [part for part in diff_override(against, newer.override) if part.text or part.state]
    else:
        empty = stored_tag.address.empty()
        parts = diff_revisions(older.override if older else empty, newer.override, origin)
    return _RevisionDiff(
        tag=stored_tag,
        older=older,
        newer=newer,
        template=template,
        of_source=against is not None,
        parts=parts,
    )


def _source_of(prompt: PromptName, *, needed: bool) -> PromptTemplate[object] | None:
    """Return the project's source of a prompt; if not ``needed``, None for any fault."""
    try:
        template_found = choosing.project_source(prompt)
    # Revisions can be compared without a project, and so beside a broken one.
    except DataFormatError:
        if needed:
            raise
        return None
    if template_found is None and needed:
        raise ConfigError(
            f"--source: no project here has the prompt `{prompt}`; name its file with --project, "
            "or a source in Python with --template"
        )
    return template_found


def _moved(
    tag: stored.StoredTag, before: Revision | None, after: Revision | None
) -> dict[str, Json]:
    """Return a tag and two of its revisions as plain data."""
    ends = {"from": stored.revision_json_or_none(before), "to": stored.revision_json_or_none(after)}
    return {**stored.tag_json(tag), **ends}


@command("history", "history support/triage", "history support/triage --tag canary --json")
@choosing.prompts_argument
@tag_option
@choosing.store_options
def history_command(
    prompt: Sequence[PromptName], *, tag: str | None, store: RevisionedStore, as_json: bool
) -> None:
    """List every revision of a tag, the newest first.

    Each change of an override creates a revision, which is never deleted; `*` marks the current
    one. Below each are the parts whose override was added (`+`), changed (`~`) or removed (`-`).
    PROMPT is `namespace/key`, or a name in `promptgraft.yaml`; of a graph all prompts are listed.
    """
    named = _stored_tags(store, prompt, tag)
    if as_json:
        documents: list[dict[str, Json]] = []
        for name, stored_tag in named:
            source = _source_of(name, needed=False)
            documents.append(
                {
                    **stored.tag_json(stored_tag),
                    "revisions": [_revision_row(stored_tag, r, source) for r in stored_tag.history],
                }
            )
        _print_documents(documents, prompt)
    else:
        for at, (_, stored_tag) in enumerate(named):
            if at:
                echo("")
            _print_history(stored_tag)


def _revision_row(
    tag: stored.StoredTag, revision: Revision, source: PromptTemplate[object] | None
) -> dict[str, Json]:
    changes = _changes(tag, revision, source)
    return {
        **stored.revision_json(revision),
        "current": revision == tag.current,
        "overrides": len(revision.override.entries()),
        "parts": None if changes is None else parts_json(changes, checked=False),
    }


def _changes(
    tag: stored.StoredTag, revision: Revision, source: PromptTemplate[object] | None = None
) -> tuple[PartDiff, ...] | None:
    """Return what a revision changed; None if its parent is no longer kept."""
    older = {revision.id: revision.override for revision in tag.history}
    before = tag.address.empty() if revision.parent is None else older.get(revision.parent)
    return None if before is None else diff_revisions(before, revision.override, source)


def _print_history(tag: stored.StoredTag) -> None:
    screen = Screen()
    screen.line(tag.title, bold=True)
    for revision in reversed(tag.history):
        current = revision == tag.current
        made_from = f"  from {shown_hash(revision.parent)}" if revision.parent else ""
        screen.line(
            f"{'*' if current else ' '} {revision.number}  {shown_hash(revision.id)}  "
            f"{moment(revision.time)}{made_from}",
            bold=current,
        )
        notes = (counted(len(revision.override.entries()), "override"), stored.scores_of(revision))
        screen.line(f"    {'; '.join(note for note in notes if note)}")
        if origin := stored.origin_of(revision):
            screen.line(f"    {origin}")
        if revision.step:
            screen.line(f"    written with other tags, step {shown_hash(revision.step)}")
        for part in _changes(tag, revision) or ():
            mark = "+" if part.before is None else "-" if part.after is None else "~"
            screen.line(f"    {mark} {part.part}")
    if tag.current is None:
        screen.line("no revision is in force: the first one was rolled back")


@command("rollback", "rollback support/triage", "rollback support/triage --to 1")
@choosing.prompt_argument
@tag_option
@click.option(
    "--to",
    "revision",
    metavar="REV",
    help="The revision, by its number or the first digits of its id; by default the parent of "
    "the current one.",
)
@choosing.store_options
def rollback_command(
    prompt: PromptName,
    *,
    tag: str | None,
    revision: str | None,
    store: RevisionedStore,
    as_json: bool,
) -> None:
    """Point a tag at an earlier revision.

    Nothing is deleted: `--to` can also move the tag forward again. Rolling back the first
    revision leaves the plain source. PROMPT is `namespace/key`, or a name in
    `promptgraft.yaml`.
    """
    stored_tag = stored.find_tag(store, prompt, tag)
    revision_id = None if revision is None else stored_tag.revision(revision).id
    ns, key, tag_ = stored_tag.address.ns, stored_tag.address.prompt_key, stored_tag.address.tag
    reached = store.rollback(ns=ns, prompt_key=key, tag=tag_, revision=revision_id)
    elsewhere = (
        stored.written_with(stored_tag, stored_tag.current) if reached != stored_tag.current else []
    )
    if as_json:
        print_json({**_moved(stored_tag, stored_tag.current, reached), "written_with": elsewhere})
        return
    screen = Screen()
    screen.line(stored_tag.title, bold=True)
    screen.fields([("from", stored.short(stored_tag.current)), ("to", stored.short(reached))])
    if reached is None:
        screen.line("no override is in force now: the plain source is rendered")
    if elsewhere:
        screen.line(f"written in one step with it and still in force: {'; '.join(elsewhere)}")


@command(
    "tag",
    "tag support/triage stable",
    "tag support/triage stable --of canary",
    "tag support/triage stable --revision 3f9c",
)
@click.argument("prompt", callback=choosing.read_prompt)
@click.argument("name", type=tag)
@click.option(
    "--of",
    "of",
    type=tag,
    help="The tag to copy; by default the only one of the prompt, or `latest`.",
)
@click.option(
    "--revision",
    metavar="REV",
    help="A revision of that tag, by its number or the first digits of its id; by default the "
    "current one.",
)
@choosing.store_options
def tag_command(
    prompt: PromptName,
    name: str,
    *,
    of: str | None,
    revision: str | None,
    store: RevisionedStore,
    as_json: bool,
) -> None:
    """Point the tag NAME at a revision of another tag.

    The previous revision of NAME is kept: `promptgraft rollback PROMPT --tag NAME` returns to it.
    PROMPT is `namespace/key`, or a name in `promptgraft.yaml`.
    """
    stored_tag = stored.find_tag(store, prompt, of, option="--of")
    source = stored_tag.present() if revision is None else stored_tag.revision(revision)
    target = attrs.evolve(stored_tag.address, tag=name)
    override = attrs.evolve(source.override, tag=name)
    provenance = attrs.evolve(
        source.provenance, note=f"{stored.short(source)} of tag {stored_tag.address.tag}"
    )
    before = store.current_at(target)
    store.mutate(target, lambda _: override, provenance=provenance)
    after = store.current_at(target)
    parts = diff_revisions(
        before.override if before else target.empty(),
        after.override if after else target.empty(),
        _source_of(prompt, needed=False),
    )
    target_tag = attrs.evolve(stored_tag, address=target)
    if as_json:
        of_json: dict[str, Json] = {
            "tag": stored_tag.address.tag,
            "revision": stored.revision_json(source),
        }
        differing = parts_json(parts, checked=False)
        print_json({**_moved(target_tag, before, after), "of": of_json, "parts": differing})
        return
    screen = Screen()
    screen.line(target_tag.title, bold=True)
    of_tag = f"tag `{stored_tag.address.tag}`, {stored.short(source)}"
    screen.fields([("of", of_tag), ("from", stored.short(before)), ("to", stored.short(after))])
    screen.parts(parts)
    if before == after:
        screen.line("the tag points there already: nothing was written")
