"""Promoting moves a tag only while its source and its target are as they were seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from jobs.job_world import write_project
from promptgraft.errors import OverrideConflictError
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PromptOverride,
    Provenance,
)
from promptgraft.overrides.base_store import Change
from promptgraft.project import load_project
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.service.jobs.promoting import promoted
from promptgraft.testing.prompts import bodies

RULES = ("rules",)


@pytest.fixture
def triage(tmp_path: Path) -> ProjectPrompt:
    return load_project(write_project(tmp_path)).prompt("triage")


def test_a_tag_that_moves_meanwhile_stays_as_it_is(triage: ProjectPrompt, tmp_path: Path) -> None:
    class Busy(LocalPromptOverridesStore):
        def mutate_all(
            self,
            changes: Mapping[OverrideAddress, Change],
            *,
            provenance: Provenance | None = None,
        ) -> dict[OverrideAddress, PromptOverride]:
            there = LocalPromptOverridesStore(tmp_path)
            there.set_section_override(triage.prompt, tag="prod", path=RULES, body="Meanwhile.")
            return super().mutate_all(changes, provenance=provenance)

    store = LocalPromptOverridesStore(tmp_path)
    store.set_section_override(triage.prompt, tag="night", path=RULES, body="Above all, hurry.")
    with pytest.raises(OverrideConflictError, match="was changed meanwhile"):
        promoted(
            Busy(tmp_path), triage, "night", to="prod", expected={"support/triage": ""}, note=""
        )
    found = store.resolve(triage.prompt.descriptor, "prod")
    assert bodies(found) == {RULES: "Meanwhile."}


def test_what_no_longer_fits_its_source_is_not_promoted(
    triage: ProjectPrompt, tmp_path: Path
) -> None:
    rules = MarkdownSection(title="Rules", key="rules", template="Choose slowly.")
    before = Prompt(PromptTemplate[object](ns="support", key="triage", sections=[rules]))
    store = LocalPromptOverridesStore(tmp_path)
    store.set_section_override(before, tag="night", path=RULES, body="Above all, hurry.")
    with pytest.raises(OverrideConflictError, match="changed since: section rules would not apply"):
        promoted(store, triage, "night", to="prod", note="")
    assert store.resolve(triage.prompt.descriptor, "prod") is None
