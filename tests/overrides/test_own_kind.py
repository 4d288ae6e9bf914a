"""A kind of part from outside: one class, what a search does with it, and a registration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from optimizers.worlds import target_of
from promptgraft.errors import HashMismatchError, InvalidOverrideError, UnknownPartError
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    PromptDescriptor,
    PromptLike,
    PromptOverride,
    SectionOverride,
    SectionPath,
    SkipReason,
    diff_override,
)
from promptgraft.overrides.parts import KINDS, plain_lists
from promptgraft.overrides.parts.entry import (
    UNBOUND,
    EffectiveParts,
    Entry,
    LabelledTexts,
    SourcePart,
)
from promptgraft.overrides.resolution import bound_entry
from promptgraft.overrides.types import read_entries
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.part import PromptModule, View
from promptgraft.targets.prompt_target import PromptTarget, merged_entries
from promptgraft.targets.types import Candidate, MetaPrompt, ModuleDescription


@attrs.frozen(kw_only=True)
class Signature(Entry):
    """Replaces what a section says by a name."""

    path: SectionPath
    expected_hash: HexDigest
    who: str

    kind = "signature"
    replaces = "section"
    listed = "signatures"

    @property
    def key(self) -> SectionPath:
        return self.path

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return SectionOverride.known(descriptor)

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        return descriptor.section(self.path)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[Signature]:
        for section in prompt.descriptor.sections:
            body = prompt.section_body(section.path)
            if body.startswith("Signed: "):
                who = body.removeprefix("Signed: ")
                yield cls(path=section.path, expected_hash=section.content_hash, who=who)

    def checked(self, descriptor: PromptDescriptor) -> Signature:
        if not self.who.istitle():
            raise InvalidOverrideError(f"{self.part}: expected a name, found {self.who!r}")
        return self

    def apply(self, parts: EffectiveParts) -> None:
        parts.bodies[self.path] = f"Signed: {self.who}"

    def labelled_texts(self) -> LabelledTexts:
        yield "who", self.who


@attrs.frozen
class SignatureModule(PromptModule):
    """A signature that a search may change."""

    path: SectionPath

    @property
    def blank(self) -> Signature:
        return Signature(path=self.path, expected_hash=UNBOUND, who="")

    def describe(self, view: View) -> ModuleDescription:
        who = view.body(self.path).removeprefix("Signed: ")
        return self.described(view, meta_prompt=MetaPrompt.SECTION, title="Who signs", text=who)

    def read(self, view: View, text: str) -> Signature:
        return attrs.evolve(self.blank, who=text.strip())


END = ("end",)
TASK = MarkdownSection(title="Task", key="task", template="Answer.")


def prompt_of(end: str = "Signed: Nobody", store: Any = None) -> Prompt[object]:
    section = MarkdownSection(title="End", key="end", template=end)
    template = PromptTemplate[object](ns="tests/own", key="letter", sections=(TASK, section))
    return Prompt(template, overrides_store=store)


PROMPT = prompt_of()
EMPTY = PromptOverride(ns="tests/own", prompt_key="letter", tag="latest")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, Signature.listed, Signature)


def signed(who: str, path: SectionPath = END) -> PromptOverride:
    blank = Signature(path=path, expected_hash=UNBOUND, who=who)
    return EMPTY.holding([bound_entry(PROMPT.descriptor, blank)])


def test_it_is_stored_and_rendered(tmp_path: Path) -> None:
    LocalPromptOverridesStore(tmp_path).upsert(PROMPT.descriptor, signed("Ada"))

    store = LocalPromptOverridesStore(tmp_path)
    assert store.resolve(PROMPT.descriptor) == signed("Ada")
    rendered = prompt_of(store=store).render()
    assert rendered.text == "## Task\n\nAnswer.\n\n## End\n\nSigned: Ada"
    assert [part.part for part in rendered.applied] == ["signature end"]


def test_its_plain_form_is_read_back() -> None:
    plain = plain_lists(signed("Ada").entries())
    assert list(plain) == ["signatures"]
    assert read_entries({**plain}, EMPTY, where="here") == signed("Ada")


def test_it_is_checked_like_the_others(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path)
    with pytest.raises(InvalidOverrideError, match="signature end: expected a name, found 'ada'"):
        store.upsert(PROMPT.descriptor, signed("ada"))
    with pytest.raises(UnknownPartError, match=r"has no section `edn`.*did you mean `end`"):
        signed("Ada", ("edn",))
    other = prompt_of("Signed: X")
    with pytest.raises(HashMismatchError, match="signature end: the override was written for"):
        store.upsert(other.descriptor, signed("Ada"))


def test_it_is_skipped_when_its_source_has_changed(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path)
    store.upsert(PROMPT.descriptor, signed("Ada"))

    rendered = prompt_of("Signed: X", store).render()
    assert rendered.text.endswith("Signed: X")
    [skipped] = rendered.skipped
    assert (skipped.part, skipped.reason) == ("signature end", SkipReason.STALE)


def test_a_diff_shows_it() -> None:
    [part] = diff_override(PROMPT, signed("Ada"))
    assert (part.kind, part.before, part.after) == ("signature", "who: Nobody", "who: Ada")


def target() -> PromptTarget:
    return attrs.evolve(target_of(PROMPT), modules=(SignatureModule(END),))


def graft(where: PromptTarget, parent: Candidate, text: str) -> Candidate:
    return where.graft(parent, SignatureModule(END), text, parents=(0,), examples=())


def test_it_is_shown_to_a_reflector_and_proposed_to() -> None:
    where = target()
    described = where.describe(SignatureModule(END), where.baseline())
    assert (described.name, described.text) == ("signature end", "Nobody")

    child = graft(where, where.baseline(), "Grace\n")
    assert child.override == signed("Grace")
    assert where.text(SignatureModule(END), child) == "Grace"
    assert child.digest != where.baseline().digest
    with pytest.raises(InvalidProposalError) as refused:
        graft(where, child, "grace")
    assert refused.value.reason is RejectionReason.DOES_NOT_FIT
    assert graft(where, child, "Nobody").override == EMPTY  # back where the run began


def test_changes_of_it_are_merged() -> None:
    task = SectionOverride(path=("task",), expected_hash=UNBOUND, body="Reply.")
    other = EMPTY.holding([bound_entry(PROMPT.descriptor, task)])

    merged = EMPTY.holding(merged_entries(EMPTY, signed("Ada"), other))
    assert merged == other.merged_with(signed("Ada"))
    assert merged.entries() == (*other.entries(), *signed("Ada").entries())
    assert signed("Ada").merged_with(signed("Grace")) == signed("Grace")
