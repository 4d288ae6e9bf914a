"""Finding what a command line names in a local store, and showing where it comes from."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import attrs

from promptgraft.cli.options import PromptName
from promptgraft.cli.output import relative
from promptgraft.errors import ConfigError, InvalidIdentifierError, RevisionNotFoundError
from promptgraft.overrides import OverrideAddress, Revision, RevisionedStore
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.parts.validation import shown_hash
from promptgraft.project.services import open_store
from promptgraft.serde import Json, did_you_mean
from promptgraft.text import counted, listed, moment

_REVISION = re.compile(r"[0-9a-f]{4,64}")


@attrs.frozen(kw_only=True)
class StoredTag:
    """A tag of a local store with every revision that it ever pointed at, the oldest first.

    ``current`` is None after a rollback of its first revision.
    """

    store: RevisionedStore
    address: OverrideAddress
    current: Revision | None
    history: tuple[Revision, ...]

    @property
    def prompt(self) -> str:
        """The prompt as the command line names it."""
        return f"{self.address.ns}/{self.address.prompt_key}"

    @property
    def title(self) -> str:
        """Prompt and tag in words."""
        return f"prompt `{self.prompt}`, tag `{self.address.tag}`"

    def revision(self, wanted: str) -> Revision:
        """Return the one revision of this number, or whose id begins so: 4 digits at least."""
        found = [one for one in self.history if f"{one.number}" == wanted]
        if not found and _REVISION.fullmatch(wanted):
            found = [one for one in self.history if one.id.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        if not _REVISION.fullmatch(wanted) and not wanted.isdecimal():
            raise InvalidIdentifierError(
                "revision: expected its number, or 4 to 64 hexadecimal digits of its id, found "
                f"{wanted!r}"
            )
        known = ", ".join(f"{one.number} (`{shown_hash(one.id)}`)" for one in found or self.history)
        problem = "has several revisions" if found else "has no revision"
        raise RevisionNotFoundError(
            f"tag `{self.address.tag}` of prompt `{self.prompt}` {problem} `{wanted}`; "
            f"{'they are' if found else 'it has'} {known}"
        )

    def present(self) -> Revision:
        """Return what the tag points at, which must be something."""
        if self.current is not None:
            return self.current
        raise RevisionNotFoundError(
            f"tag `{self.address.tag}` of prompt `{self.prompt}` holds nothing now; "
            f"it has {counted(len(self.history), 'earlier revision')}, "
            "see `promptgraft history`"
        )


def override_file(store: RevisionedStore, address: OverrideAddress) -> str | None:
    """Return the file that ``store`` keeps an address in; None where it has no files."""
    file = store.file_of(address)
    return None if file is None else str(file)


def tag_command(what: str, address: OverrideAddress, store: RevisionedStore) -> str:
    """Return a command line about a tag, as it can be copied into the current folder."""
    named = f"promptgraft {what} {address.ns}/{address.prompt_key} --tag {address.tag}"
    if store.place == open_store(None).place:
        return named
    place = store.place if "://" in store.place else str(relative(Path(store.place)))
    return f"{named} --store {shlex.quote(place)}"


def find_tag(
    store: RevisionedStore, name: PromptName, tag: str | None, *, option: str = "--tag"
) -> StoredTag:
    """Return the tag that is meant: ``tag`` (of ``option``), or the only one, or ``latest``."""
    known = store.addresses()
    of_prompt = [
        place.tag for place in known if (place.ns, place.prompt_key) == (name.ns, name.key)
    ]
    chosen = tag or _only_tag(name, of_prompt, option)
    found = _read_tag(store, OverrideAddress(name.ns, name.key, chosen))
    if found.history:
        return found
    if of_prompt:
        raise RevisionNotFoundError(
            f"prompt `{name}` has no tag `{chosen}`{did_you_mean(chosen, of_prompt)}; "
            f"it has {listed(of_prompt)}"
        )
    prompts = [f"{place.ns}/{place.prompt_key}" for place in known]
    raise RevisionNotFoundError(
        f"{store.place} holds nothing for prompt `{name}`, tag `{chosen}`"
        f"{did_you_mean(str(name), prompts)}; `promptgraft show` lists what a store holds"
    )


def find_tags(store: RevisionedStore, tag: str | None) -> list[StoredTag]:
    """Return every tag that points at something, or of all prompts the one that is named."""
    wanted = [address for address in store.addresses() if tag in (None, address.tag)]
    tags = [_read_tag(store, address) for address in wanted]
    return [found for found in tags if found.current is not None]


def _read_tag(store: RevisionedStore, address: OverrideAddress) -> StoredTag:
    history = store.history(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)
    return StoredTag(
        store=store, address=address, current=store.current_at(address), history=history
    )


def _only_tag(name: PromptName, tags: Sequence[str], option: str) -> str:
    if len(tags) == 1:
        return tags[0]
    if not tags or DEFAULT_TAG in tags:
        return DEFAULT_TAG
    raise ConfigError(f"prompt `{name}` has the tags {listed(tags)}; choose one with {option}")


def short(revision: Revision | None) -> str:
    """Return a revision as people name it: its number and the start of its id."""
    if revision is None:
        return "nothing"
    return f"revision {revision.number} ({shown_hash(revision.id)})"


def fields_of(revision: Revision) -> list[tuple[str, str]]:
    """Return what is known of a revision, as names and values for people."""
    made_from = f", made from {shown_hash(revision.parent)}" if revision.parent else ""
    number_and_id = short(revision).removeprefix("revision ")
    rows = [("revision", f"{number_and_id} of {moment(revision.time)}{made_from}")]
    if origin := origin_of(revision):
        rows.append(("from", origin))
    if scores := scores_of(revision):
        rows.append(("scores", scores))
    return rows


def written_with(found: StoredTag, revision: Revision | None) -> list[str]:
    """Return the other tags whose current revision was written in one step with ``revision``."""
    if revision is None or revision.step is None:
        return []
    others = [place for place in found.store.addresses() if place != found.address]
    tags = [_read_tag(found.store, place) for place in others]
    return [other.title for other in tags if other.present().step == revision.step]


def origin_of(revision: Revision) -> str:
    """Return run and note of a revision; empty when neither is known."""
    provenance = revision.provenance
    run = f"run {provenance.run_id}" if provenance.run_id else ""
    return ": ".join(part for part in (run, provenance.note) if part)


def scores_of(revision: Revision) -> str:
    """Return the scores of a revision in one line."""
    scores = revision.provenance.scores.items()
    return ", ".join(f"{name} {value:.3f}" for name, value in scores)


def revision_json_or_none(revision: Revision | None) -> dict[str, Json] | None:
    """Return a revision for machines; None for none."""
    return None if revision is None else revision_json(revision)


def revision_json(revision: Revision) -> dict[str, Json]:
    """Return a revision for machines, without its overrides."""
    return {
        "id": revision.id,
        "number": revision.number,
        "parent": revision.parent,
        "step": revision.step,
        "time": revision.time.isoformat(),
        "run_id": revision.provenance.run_id,
        "note": revision.provenance.note,
        "scores": dict(revision.provenance.scores.items()),
    }


def tag_json(found: StoredTag) -> dict[str, Json]:
    """Return a tag for machines: its store, its prompt and its file."""
    return {
        "store": found.store.place,
        "prompt": found.prompt,
        "tag": found.address.tag,
        "file": override_file(found.store, found.address),
    }
