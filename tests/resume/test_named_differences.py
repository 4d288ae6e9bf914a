"""A resume that is refused names what differs: examples, sections, tools, metrics, meta-prompts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from optimizers.worlds import (
    PROMPT,
    TEMPLATE,
    Question,
    Run,
    config,
    judge,
    twins,
    with_output,
)
from promptgraft import Case, FileJournal, MarkdownSection, Prompt, Tool, examples_from
from promptgraft.algorithms.gepa import GepaConfig
from promptgraft.errors import JournalMismatchError
from promptgraft.evals import metrics
from promptgraft.journal.records import decode_header, encode_header
from promptgraft.targets.judging import feedback_from


def with_sections(*sections: MarkdownSection) -> Prompt[object]:
    return Prompt(attrs.evolve(TEMPLATE, sections=sections))


def with_tool(description: str) -> Prompt[object]:
    tool = Tool(name="look", description=description, params_type=Question, result_type=str)
    notes = attrs.evolve(TEMPLATE.sections[2], tools=(tool,))
    return with_sections(*TEMPLATE.sections[:2], notes)


def judged_by(**options: Any) -> GepaConfig:
    cases = [Case(id=f"c{n}", input=f"w{n}", expected="ok") for n in range(12)]
    asked = examples_from(PROMPT, cases, params=lambda case: Question(str(case.input)))
    judging = feedback_from([metrics.exact(name="right", **options)])
    return config(training_examples=asked, feedback_fn=judging)


RULES, QUESTION, NOTES = TEMPLATE.sections
EXAMPLES = twins(6)
CHANGED = attrs.evolve(EXAMPLES[4], label="another")
NEW_RULES = attrs.evolve(RULES, template="Known words of mine:")
# What differs: settings and prompt before and after, and the phrase.
DIFFERENT: Mapping[str, tuple[Any, Any, Any, Any, str]] = {
    "example": (
        config(),
        PROMPT,
        config(training_examples=(*EXAMPLES[:4], CHANGED, *EXAMPLES[5:])),
        PROMPT,
        "(example `e4` has changed)",
    ),
    "order": (
        config(),
        PROMPT,
        config(training_examples=(*EXAMPLES[1:], EXAMPLES[0])),
        PROMPT,
        "(example `e1` is in another place)",
    ),
    "section": (
        config(),
        PROMPT,
        config(),
        with_sections(NEW_RULES, QUESTION, NOTES),
        "(section `rules` has changed)",
    ),
    "new section": (
        config(),
        PROMPT,
        config(),
        with_sections(*TEMPLATE.sections, attrs.evolve(NOTES, key="more")),
        "(section `more` is not in the journal)",
    ),
    "tool": (
        config(),
        with_tool("Look."),
        config(),
        with_tool("Look it up."),
        "(tool `look` has changed)",
    ),
    "output": (
        config(),
        PROMPT,
        config(),
        with_output(bool),
        "(the output type has changed)",
    ),
    "bound value": (
        config(training_examples=tuple(attrs.evolve(one, params=()) for one in EXAMPLES)),
        PROMPT.bind(Question("w1")),
        config(training_examples=tuple(attrs.evolve(one, params=()) for one in EXAMPLES)),
        PROMPT.bind(Question("w2")),
        "(the value of `word` has changed)",
    ),
    "metric": (
        judged_by(),
        PROMPT,
        judged_by(ignore_case=True),
        PROMPT,
        "(metric `right` has changed)",
    ),
    "setting": (config(), PROMPT, config(seed=7), PROMPT, "`seed` is 1 in the journal, 7 here"),
    "targets": (
        config(),
        PROMPT,
        config(target_section_paths=(("rules",),)),
        PROMPT,
        "`targets` is ",
    ),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_the_first_difference_is_named(what: str, tmp_path: Path) -> None:
    before, prompt, after, changed, phrase = DIFFERENT[what]
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        Run(before, prompt=prompt, journal=journal).start()
    kept = path.read_bytes()
    again = Run(after, prompt=changed, journal=FileJournal(path))
    with pytest.raises(JournalMismatchError) as refused:
        again.start()
    assert phrase in str(refused.value)
    assert "\n" not in str(refused.value)
    assert again.task.calls == 0
    assert path.read_bytes() == kept


def test_a_journal_of_an_earlier_version_is_continued_and_refused_as_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        found = Run(config(), journal=journal).start()
    header, *lines = path.read_bytes().splitlines(keepends=True)
    assert b'"contents":' in header
    path.write_bytes(b"".join((encode_header(decode_header(header)), *lines)))
    kept = path.read_bytes()

    with FileJournal(path) as journal:
        assert Run(config(), journal=journal).start() == found
    changed = config(training_examples=(CHANGED, *EXAMPLES[:4], *EXAMPLES[5:]))
    with FileJournal(path) as journal, pytest.raises(JournalMismatchError) as refused:
        Run(changed, journal=journal).start()
    assert path.read_bytes() == kept
    assert "`dataset` is " in str(refused.value)
    assert " here; start a new run" in str(refused.value)


def test_a_header_holds_no_text_of_examples_and_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    secret = "do-not-write-this-down"
    cases = tuple(attrs.evolve(one, label=secret) for one in EXAMPLES)
    with FileJournal(path) as journal:
        Run(config(training_examples=cases, feedback_fn=judge), journal=journal).start()
    header = path.read_bytes().splitlines()[0]
    assert secret.encode() not in header
    assert len(json.dumps(json.loads(header)["contents"])) < 2_000
