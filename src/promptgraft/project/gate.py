"""The subject of a project's gate: a version of a prompt and the cases of a split."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.causes import compares_expected, contradictions
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.gate.report import Subject
from promptgraft.evals.splits import NAMES
from promptgraft.evals.types import Case
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.overrides import OverrideAddress
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.resolution import resolve_override
from promptgraft.project import Project, ProjectPrompt
from promptgraft.project.applying import check_source, choose, winners_of
from promptgraft.project.checking import try_metrics
from promptgraft.prompt.template import Prompt
from promptgraft.runs import RunRecord, find_run, read_run

ALL = "all"
SPLITS = ("test", "validation", "train", ALL)
"""What ``split`` may be."""
_SHOWN_PARTS = 5


@attrs.frozen(kw_only=True)
class Choice:
    """The version of a prompt to evaluate, and the cases.

    Attributes:
        prompt: its name in the project; None for the only one.
        split: ``test``, ``validation``, ``train``, or ``all`` of them.
        tag: the tag whose overrides are evaluated; None for that of the project.
        source: whether to evaluate the source, without overrides.
        run: the run whose candidate is evaluated: its id, the beginning of one, or ``latest``.
        candidate: the number of the candidate, 0 for the baseline; None for the winner.
    """

    prompt: str | None = None
    split: str = "test"
    tag: str | None = None
    source: bool = False
    run: str | None = None
    candidate: int | None = None

    def __attrs_post_init__(self) -> None:
        if sum((self.tag is not None, self.source, self.run is not None)) > 1:
            raise ConfigError("expected one of a tag, the source and a run; leave the others out")
        if self.candidate is not None and self.run is None:
            raise ConfigError("candidate: expected a run with it; name one, or `latest`")
        if self.split not in SPLITS:
            near = did_you_mean(str(self.split), list(SPLITS))
            raise ConfigError(
                f"split: expected one of {', '.join(SPLITS)}, found {shown(self.split)}{near}"
            )


def chosen_cases(parts: Mapping[str, Dataset], split: str) -> tuple[Case, ...]:
    """Return the cases of a split.

    Raises:
        ConfigError: the project has no such cases.
    """
    if split == ALL:
        return tuple(case for name in NAMES for case in parts.get(name, ()))
    if split not in parts:
        raise ConfigError(
            f"the project has no {split} cases; add a share, a file or a value for them under "
            "`splits`, or choose another split: validation, train or all"
        )
    return parts[split].cases


@attrs.frozen(kw_only=True)
class TriedVersion:
    """A version of a prompt: the prompt with its overrides, its name, and notes on it."""

    prompt: Prompt[object]
    name: str
    notes: tuple[str, ...] = ()


def tried_prompt(project: Project, choice: Choice) -> TriedVersion:
    """Return the chosen version of a prompt; a tag is read only once, here.

    Raises:
        ConfigError: there is no such prompt, run or candidate, the chosen tag is empty, or the
            source has changed since the run.
        DataFormatError, StoreError, JournalError: a file of the project cannot be read.
    """
    if choice.run is not None:
        return _of_run(project, choice.prompt, choice.run, choice.candidate)
    prompt = project.prompt(choice.prompt)
    return (
        TriedVersion(prompt=prompt.prompt, name="the source")
        if choice.source
        else _tagged(project, prompt, choice.tag)
    )


def subject_of(project: Project, choice: Choice) -> Subject:
    """Return the subject of a choice. The project's task adapter is created but not called.

    Raises:
        ConfigError, DataFormatError, StoreError, JournalError: see :func:`tried_prompt`; also
            if there is no such split, or a secret is not set.
    """
    tried = tried_prompt(project, choice)
    cases = chosen_cases(project.parts, choice.split)
    contradiction = contradictions(cases) if compares_expected(project.metrics) else ""
    try_metrics(project)
    return Subject(
        prompt=tried.prompt,
        tried=tried.name,
        split=choice.split,
        cases=cases,
        metrics=project.metrics,
        adapter=project.prompt(choice.prompt).answered_by(project.adapter("task")),
        aggregation=project.aggregation,
        params=project.params,
        notes=(
            *tried.notes,
            *filter(None, [contradiction]),
            *(project.baml.warnings if project.baml else ()),
        ),
    )


def _tagged(project: Project, prompt: ProjectPrompt, chosen: str | None) -> TriedVersion:
    """Return the prompt with the overrides of a tag, and a note on those that do not apply."""
    store, tag = project.store(), chosen or project.tag
    overrides = [
        (prompt_of_tag.descriptor, store.resolve(prompt_of_tag.descriptor, tag))
        for prompt_of_tag in prompt.prompts
    ]
    present = [(of, override) for of, override in overrides if override and override.entries()]
    if not present:
        if chosen is not None:
            raise ConfigError(
                f"tag `{tag}` holds nothing for `{prompt.address}` in {store.place}; "
                "`promptgraft show` lists what there is, `promptgraft apply --tag` writes it, and "
                "the source is tried with `--source` (`source=True` in tests)"
            )
        return TriedVersion(
            prompt=prompt.prompt, name=f"your source (nothing is applied under tag `{tag}`)"
        )
    numbers = []
    for of, _ in present:
        revision = store.current(ns=of.ns, prompt_key=of.key, tag=tag)
        numbers += [] if revision is None else [shown_hash(revision.id)]
    number = f", revision {' '.join(dict.fromkeys(numbers))}" if numbers else ""
    skipped = [
        part.part for of, override in present for part in resolve_override(of, override).skipped
    ]
    more = f" and {len(skipped) - _SHOWN_PARTS} more" if len(skipped) > _SHOWN_PARTS else ""
    note = (
        f"tag `{tag}` holds overrides that do not apply to today's source: "
        f"{', '.join(skipped[:_SHOWN_PARTS])}{more}; `promptgraft diff` says why"
    )
    return TriedVersion(
        prompt=prompt.with_overrides([override for _, override in present]),
        name=f"tag `{tag}`{number}",
        notes=(note,) if skipped else (),
    )


def _of_run(project: Project, name: str | None, run: str, candidate: int | None) -> TriedVersion:
    record = read_run(find_run(project.runs_folder, run))
    number = _number(record, candidate)
    prompt = project.prompt(name or _name_of(project, record))
    described = [prompt_of_run.descriptor for prompt_of_run in prompt.prompts]
    addresses = [OverrideAddress(prompt.ns, prompt.key, project.tag) for prompt in described]
    wholes = [winner.whole for winner in winners_of(record, number, addresses)]
    for prompt_of_run, whole in zip(prompt.prompts, wholes, strict=True):
        # The base too: without one of its entries, this would not be the prompt that the run
        # evaluated.
        if stale := check_source(prompt_of_run, whole).stale:
            raise ConfigError(f"run {record.id}: the source has changed since: {'; '.join(stale)}")
    return TriedVersion(
        prompt=prompt.with_overrides(wholes), name=f"run {record.id}, candidate {number}"
    )


def _number(record: RunRecord, candidate: int | None) -> int:
    if candidate is None:
        # An unconfirmed winner may be evaluated, only not written without being asked for.
        chosen = choose(record, None, keep_anyway=True)
        if chosen.candidate is None:
            raise ConfigError(
                f"run {record.id}: {chosen.why_not}; name a candidate with `--candidate`, 0 is "
                "your prompt"
            )
        return chosen.candidate
    if candidate >= len(record.candidates):
        last = len(record.candidates) - 1
        there = f"0 to {last}" if last >= 0 else "none yet"
        raise ConfigError(f"run {record.id} has no candidate {candidate}; it has {there}")
    return candidate


def _name_of(project: Project, record: RunRecord) -> str | None:
    named = (name for name in project.names if project.prompt(name).address == record.prompt)
    return next(named, None)
