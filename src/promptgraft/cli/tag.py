"""``promptgraft tag``: give a name to what another tag holds."""

from __future__ import annotations

import attrs
import click

from promptgraft.cli.diff import print_parts
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.named import chosen_store, read_prompt
from promptgraft.cli.options import (
    PromptName,
    examples,
    json_option,
    project_option,
    read_tag,
    store_option,
)
from promptgraft.cli.output import Screen, print_json
from promptgraft.cli.stored import (
    StoredTag,
    find_tag,
    revision_json,
    revision_json_or_none,
    short,
    tag_json,
)
from promptgraft.overrides import OverrideAddress, PartDiff, Revision, diff_revisions
from promptgraft.overrides.diff import parts_json


@click.command(
    "tag",
    epilog=examples(
        "promptgraft tag support/triage stable",
        "promptgraft tag support/triage stable --of canary",
        "promptgraft tag support/triage stable --revision 3f9c",
    ),
)
@click.argument("prompt", callback=read_prompt)
@click.argument("name", callback=read_tag)
@click.option(
    "--of",
    "of",
    metavar="TAG",
    callback=read_tag,
    help="The tag to copy; by default the only one of the prompt, or `latest`.",
)
@click.option(
    "--revision",
    metavar="REV",
    help="A revision of that tag, by the first digits of its id; by default the current.",
)
@project_option
@store_option
@json_option
def command(
    prompt: PromptName,
    name: str,
    *,
    of: str | None,
    revision: str | None,
    project: str | None,
    store: str | None,
    as_json: bool,
) -> ExitCode:
    """Let the tag NAME hold what another tag holds.

    The label moves and the revisions stay: what NAME held before is a revision of it, and
    `promptgraft rollback PROMPT --tag NAME` goes back there. PROMPT is `namespace/key`, or
    a name in `promptgraft.yaml`.
    """
    found = find_tag(chosen_store(store, project, prompt), prompt, of, option="--of")
    source = found.present() if revision is None else found.revision(revision)
    moved = _moved(found, source, name)
    if as_json:
        print_json(_document(moved))
    else:
        _print(moved)
    return ExitCode.OK


@attrs.frozen(kw_only=True)
class _Moved:
    """A tag that holds something else now."""

    found: StoredTag
    source: Revision
    target: OverrideAddress
    before: Revision | None
    after: Revision | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def _moved(found: StoredTag, source: Revision, name: str) -> _Moved:
    target = attrs.evolve(found.address, tag=name)
    before = _current(found, target)
    wanted = attrs.evolve(source.override, tag=name)
    provenance = attrs.evolve(source.provenance, note=f"{short(source)} of tag {found.address.tag}")
    found.store.mutate(target, lambda _: wanted, provenance=provenance)
    after = _current(found, target)
    return _Moved(found=found, source=source, target=target, before=before, after=after)


def _current(found: StoredTag, target: OverrideAddress) -> Revision | None:
    return found.store.current(ns=target.ns, prompt_key=target.prompt_key, tag=target.tag)


def _parts(moved: _Moved) -> tuple[PartDiff, ...]:
    before, after = (
        revision.override if revision else moved.target.empty()
        for revision in (moved.before, moved.after)
    )
    return diff_revisions(before, after)


def _document(moved: _Moved) -> dict[str, object]:
    found = moved.found
    return {
        **tag_json(attrs.evolve(found, address=moved.target)),
        "of": {"tag": found.address.tag, "revision": revision_json(moved.source)},
        "from": revision_json_or_none(moved.before),
        "to": revision_json_or_none(moved.after),
        "parts": parts_json(_parts(moved), checked=False),
    }


def _print(moved: _Moved) -> None:
    screen = Screen()
    found = moved.found
    screen.line(f"prompt `{found.prompt}`, tag `{moved.target.tag}`", bold=True)
    screen.fields(
        [
            ("of", f"tag `{found.address.tag}`, {short(moved.source)}"),
            ("from", short(moved.before)),
            ("to", short(moved.after)),
        ]
    )
    print_parts(screen, _parts(moved))
    if not moved.changed:
        screen.line("the tag holds that already: nothing was written")
