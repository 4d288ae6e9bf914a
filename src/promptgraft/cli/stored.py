"""Finding tags and revisions in a store, and describing them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from promptgraft.cli.options import PromptName
from promptgraft.cli.output import relative
from promptgraft.errors import ConfigError, InvalidIdentifierError, RevisionNotFoundError
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.text import change, counted, listed, moment, shell_word
from promptgraft.overrides import OverrideAddress, Revision, RevisionedStore
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.adding import open_store

_REVISION = re.compile(r"[0-9a-f]{4,64}")


@attrs.frozen(kw_only=True)
class StoredTag:
    """A tag of a store.

    Attributes:
        address: its prompt and its name.
        current: the revision that it points at; None after its first revision was rolled back.
        history: every revision that it ever pointed at, the oldest first.
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
        """Prompt and tag, for headings."""
        return f"prompt `{self.prompt}`, tag `{self.address.tag}`"

    def revision(self, name: str) -> Revision:
        """Return a revision by its number, or by at least 4 leading digits of its id."""
        # Numbers first: a short one could also be the beginning of an id.
        matching = [revision for revision in self.history if f"{revision.number}" == name]
        if not matching and _REVISION.fullmatch(name):
            matching = [revision for revision in self.history if revision.id.startswith(name)]
        if len(matching) == 1:
            return matching[0]
        if not _REVISION.fullmatch(name) and not name.isdecimal():
            raise InvalidIdentifierError(
                "revision: expected its number, or 4 to 64 hexadecimal digits of its id, found "
                f"{name!r}"
            )
        names = ", ".join(
            f"{revision.number} (`{shown_hash(revision.id)}`)"
            for revision in matching or self.history
        )
        problem = "has several revisions" if matching else "has no revision"
        raise RevisionNotFoundError(
            f"tag `{self.address.tag}` of prompt `{self.prompt}` {problem} `{name}`; "
            f"{'they are' if matching else 'it has'} {names}"
        )

    def present(self) -> Revision:
        """Return the current revision; raise if there is none."""
        if self.current is not None:
            return self.current
        raise RevisionNotFoundError(
            f"tag `{self.address.tag}` of prompt `{self.prompt}` holds nothing now; "
            f"it has {counted(len(self.history), 'earlier revision')}, "
            "see `promptgraft history`"
        )


def override_file(store: RevisionedStore, address: OverrideAddress) -> str | None:
    """Return the file that holds an address; None for stores without files."""
    file = store.file_of(address)
    return None if file is None else str(file)


def tag_command(what: str, address: OverrideAddress, store: RevisionedStore) -> str:
    """Return a command line about a tag that works in the current folder."""
    named = f"promptgraft {what} {address.ns}/{address.prompt_key} --tag {address.tag}"
    # The store that is found by default needs no option.
    if store.place == open_store(None).place:
        return named
    place = store.place if "://" in store.place else str(relative(Path(store.place)))
    return f"{named} --store {shell_word(place)}"


def find_tag(
    store: RevisionedStore, name: PromptName, tag: str | None, *, option: str = "--tag"
) -> StoredTag:
    """Return the tag named by ``option``, else the only one of the prompt, else ``latest``."""
    addresses = store.addresses()
    of_prompt = [
        place.tag for place in addresses if (place.ns, place.prompt_key) == (name.ns, name.key)
    ]
    chosen = tag or _only_tag(name, of_prompt, option)
    stored_tag = _read_tag(store, OverrideAddress(name.ns, name.key, chosen))
    if stored_tag.history:
        return stored_tag
    if of_prompt:
        raise RevisionNotFoundError(
            f"prompt `{name}` has no tag `{chosen}`{did_you_mean(chosen, of_prompt)}; "
            f"it has {listed(of_prompt)}"
        )
    prompts = [f"{place.ns}/{place.prompt_key}" for place in addresses]
    raise RevisionNotFoundError(
        f"nothing is stored for prompt `{name}` under tag `{chosen}` in {store.place}"
        f"{did_you_mean(str(name), prompts)}; `promptgraft apply` stores the winner of a run, "
        "`promptgraft show` lists what is stored"
    )


def find_tags(store: RevisionedStore, tag: str | None) -> list[StoredTag]:
    """Return every tag with a current revision, or of all prompts only those named ``tag``."""
    addresses = [address for address in store.addresses() if tag in (None, address.tag)]
    tags = [_read_tag(store, address) for address in addresses]
    return [stored_tag for stored_tag in tags if stored_tag.current is not None]


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
    """Return a revision in words, its number and the beginning of its id; None is the source."""
    if revision is None:
        return "the source"
    return f"revision {revision.number} ({shown_hash(revision.id)})"


def fields_of(revision: Revision) -> list[tuple[str, str]]:
    """Return the names and values that describe a revision."""
    made_from = f", made from {shown_hash(revision.parent)}" if revision.parent else ""
    number_and_id = short(revision).removeprefix("revision ")
    rows = [("revision", f"{number_and_id} of {moment(revision.time)}{made_from}")]
    if origin := origin_of(revision):
        rows.append(("from", origin))
    if scores := scores_of(revision):
        rows.append(("scores", scores))
    return rows


def written_with(tag: StoredTag, revision: Revision | None) -> list[str]:
    """Return the other tags whose current revision was written in the same step."""
    if revision is None or revision.step is None:
        return []
    neighbours = [place for place in tag.store.addresses() if place != tag.address]
    tags = [_read_tag(tag.store, place) for place in neighbours]
    # `addresses` leaves out tags that point at nothing, so each of these has a revision.
    return [neighbour.title for neighbour in tags if neighbour.present().step == revision.step]


def origin_of(revision: Revision) -> str:
    """Return the run and the note of a revision; empty if it has neither."""
    provenance = revision.provenance
    run = f"run {provenance.run_id}" if provenance.run_id else ""
    return ": ".join(part for part in (run, provenance.note) if part)


def scores_of(revision: Revision) -> str:
    """Return the scores of a revision in one line."""
    return scores_in_words(revision.provenance.scores)


def scores_in_words(scores: Mapping[str, float]) -> str:
    """Return the scores of a winner, ``validation 0.500 -> 1.000 (+0.500), test …``, then others.

    Users may give a revision scores of any name.
    """
    sets = {"validation": ("baseline", "best"), "test": ("held_out_baseline", "held_out_best")}
    complete = {name: pair for name, pair in sets.items() if all(end in scores for end in pair)}
    pairs = [
        f"{name} {change(scores[before], scores[after])}"
        for name, (before, after) in complete.items()
    ]
    in_pairs = {end for pair in complete.values() for end in pair}
    unpaired = [f"{name} {value:.3f}" for name, value in scores.items() if name not in in_pairs]
    return ", ".join([*pairs, *unpaired])


def revision_json_or_none(revision: Revision | None) -> dict[str, Json] | None:
    """Return a revision as plain data; None for None."""
    return None if revision is None else revision_json(revision)


def revision_json(revision: Revision) -> dict[str, Json]:
    """Return a revision as plain data, without its overrides."""
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


def tag_json(tag: StoredTag) -> dict[str, Json]:
    """Return a tag as plain data: its store, its prompt and its file."""
    return {
        "store": tag.store.place,
        "prompt": tag.prompt,
        "tag": tag.address.tag,
        "file": override_file(tag.store, tag.address),
    }
