"""What the reflection model is shown, and what becomes of its replies."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import attrs
import pytest

from optimizers.worlds import (
    PROMPT,
    QUESTION,
    RULES,
    Question,
    Run,
    answer,
    asked,
    bound,
    config,
    current_text,
    examples,
    instruction,
    judge,
    numbered,
    optimize,
    propose,
    section,
    unfenced,
    with_output,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gepa import (
    GepaExample,
    GepaMutationProposed,
    GepaOptimizer,
    RolloutFeedback,
)
from promptgraft.errors import JournalMismatchError, TransientProviderError
from promptgraft.ground.serde import Json
from promptgraft.journal import MemoryJournal
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.runtime import Deadline, Session, SessionProtocol
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.targets.part_questions import REFLECT_ON_SECTION

OutputT = TypeVar("OutputT")

META = ("promptgraft/gepa", "reflect-section")


def test_the_reflector_sees_the_parents_own_text_and_answers() -> None:
    """Each answer carries the rules that it was given, so a reader knows whose answer it is."""

    def quote(rendered: RenderedPrompt[object]) -> str:
        return f"{answer(rendered)} by <{section(rendered, RULES).text}>"

    def judge_quote(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return judge(example, attrs.evolve(response, text=response.text[:2]), session)

    session = Session()
    settings = config(feedback_fn=judge_quote, target_section_paths=(RULES,))
    run = Run(settings, task=quote, session=session)
    result = run.start()
    proposed = session.select_all(GepaMutationProposed)
    assert len(proposed) == run.reflection.calls > 4
    assert any(event.parent > 0 for event in proposed)
    for event, question in zip(proposed, run.reflection.requests, strict=True):
        parent = result.candidates[event.parent].section_bodies.get(RULES, "Known words:")
        assert current_text(question) == event.before == parent
        assert bound(question, "examples").count(f"by <{parent}>") == 3
        assert bound(question, "examples").count("by <") == 3


def test_the_reflector_sees_input_answer_score_and_feedback_of_the_minibatch() -> None:
    run = Run(config(target_section_paths=(RULES,), rollout_budget=18))
    run.start()
    minibatch = [asked(request) for request in run.task.requests[6:9]]
    shown = bound(run.reflection.requests[0], "examples")
    for word in minibatch:
        assert f"### Example e{word[1:]}-again\n\n**Score:** 0\n" in shown
        assert f'**Input:**\n\n```\n{{\n  "word": "{word}",\n' in shown
        assert f"**Feedback:**\n\n```\nmissing {word}\n```" in shown
    assert shown.count("**Output:**\n\n```\nno\n```") == 3
    assert shown.count("### Example ") == 3


def test_the_reflector_sees_the_evaluation_log_and_the_trace() -> None:
    def log(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=0.0, feedback="no", eval_trace=f"3 of 4 for {example.id}")

    def trace(session: SessionProtocol) -> str:
        return f"{len(session.select_all(object))} events of {session.tags['example']}"

    run = Run(config(feedback_fn=log, trace_formatter=trace))
    run.start()
    shown = bound(run.reflection.requests[0], "examples")
    assert shown.count("**Trace:**\n\n```\n4 events of e") == 3
    assert shown.count("**Evaluation log:**\n\n```\n3 of 4 for e") == 3
    run = Run(config(feedback_fn=log, trace_formatter=lambda s: f"3 of 4 for {s.tags['example']}"))
    run.start()
    shown = bound(run.reflection.requests[0], "examples")
    assert shown.count("3 of 4 for e") == shown.count("**Evaluation log:** the same as the") == 3


def test_the_reflector_sees_every_call_of_a_long_trace() -> None:
    def trace(session: SessionProtocol) -> str:
        calls = (f"[look_{n}]\n  params: {n}\n  result: {'x' * 2000} of {n}" for n in range(20))
        return "\n".join([*calls, "[close]\n  result: refused"])

    run = Run(config(trace_formatter=trace))
    run.start()
    shown = bound(run.reflection.requests[0], "examples").split("**Trace:**\n\n")[1]
    [block] = re.findall(r"\A```\n(.*?)\n```", shown, re.DOTALL)
    assert 5_900 < len(block) <= 6_000
    for number in range(20):
        assert f"[look_{number}]\n  params: {number}\n  result: xxx" in block
        assert f"xxx of {number}\n" in block
    assert block.endswith("[close]\n  result: refused")


def test_the_reflector_sees_the_other_sections_as_the_candidate_has_them() -> None:
    session = Session()
    run = Run(session=session)
    result = run.start()
    steps = [
        (event, question)
        for event, question in zip(
            session.select_all(GepaMutationProposed), run.reflection.requests, strict=True
        )
        if event.module == "section notes" and event.parent > 0
    ]
    assert steps
    for event, question in steps:
        rules = result.candidates[event.parent].section_bodies[RULES]
        assert bound(question, "neighbours") == (
            f"section rules:\n\n```\n{rules}\n```\n\n"
            "section question:\n\n```\nDo you know $word?\n```"
        )


def test_the_reflector_is_told_the_limits_of_the_text() -> None:
    run = Run(
        config(target_section_paths=(QUESTION,), max_part_chars=321),
        reflection=[instruction("You know $word, don't you?")] * 50,
    )
    run.start()
    limits = bound(run.reflection.requests[0], "limits")
    assert "at most 321 characters" in limits
    assert "$word" in limits
    run = Run(config(target_section_paths=(RULES,), max_part_chars=321))
    run.start()
    assert "placeholder" not in bound(run.reflection.requests[0], "limits")


def test_the_reflector_is_told_what_opaque_markers_stand_for() -> None:
    template = PromptTemplate[object](
        ns="toy",
        key="words",
        sections=(
            MarkdownSection(
                title="Rules",
                key="rules",
                syntax="jinja",
                template="{{ word }} {% for x in word %}{{ x }}{% endfor %}",
            ),
        ),
    )
    run = Run(
        config(target_section_paths=(RULES,)),
        prompt=Prompt[object](template),
        task=lambda _: "no",
        reflection=[""] * 99,
    )
    run.start()
    limits = bound(run.reflection.requests[0], "limits")
    assert "{{ word }}, {{ for_1 }}" in limits
    assert "- {{ for_1 }} stands for `{% for x in word %}{{ x }}{% endfor %}`." in limits


def test_the_reflector_is_told_what_answers_must_look_like() -> None:
    @attrs.frozen
    class Verdict:
        known: bool

    def answering(text: str) -> Callable[[object], str]:
        return lambda _: text

    verdict = 'no, {"known": false}'
    for kind, told in (
        (None, None),
        (str, None),
        (Literal["ok", "no"], "One of: ok, no"),
        (Verdict, "A JSON object of type Verdict, with this schema: {"),
        (bool, "true or false"),
        (list[str], 'JSON with this schema: {"type": "array", "items": {"type": "string"}}'),
    ):
        task = answering('["no"]' if kind == list[str] else "false" if kind is bool else verdict)
        run = Run(
            prompt=with_output(kind),
            task=task,
            reflection=[""] * 99,
        )
        run.start()
        question = run.reflection.requests[0]
        assert ("Expected answers" in question.text) is (told is not None)
        if told is not None:
            assert unfenced(bound(question, "output")).startswith(told)


def test_the_reflector_never_sees_examples_that_candidates_are_compared_on() -> None:
    hidden = tuple(
        GepaExample(id=f"hidden-id-{n}", params=(Question(f"hiddenword{n}"),), label="hiddenlabel")
        for n in range(6)
    )
    run = Run(config(training_examples=(*hidden, *examples(6)), rollout_budget=400))
    result = run.start()
    assert result.accepted_mutations > 2
    assert any("hidden" in request.text for request in run.task.requests)
    assert run.reflection.calls > 5
    assert not any("hidden" in question.text for question in run.reflection.requests)


def test_an_answer_that_does_not_fit_is_shown_with_the_reason() -> None:
    numbers = itertools.count()
    run = Run(
        prompt=with_output(Literal["ok", "no"]),
        # A run in which no answer fits ends before its first question.
        task=lambda _: "Perhaps, who knows?" if next(numbers) else "no",
        reflection=[""] * 99,
    )
    result = run.start()
    assert result.scores_matrix[0] == (0.0,) * 6
    assert result.unscored_rollouts == 0
    shown = bound(run.reflection.requests[0], "examples")
    assert "**Output:**\n\n```\nPerhaps, who knows?\n```" in shown
    assert "**Feedback:**\n\n```\nThe answer could not be used: answer: expected one of" in shown
    assert "**Score:** 0\n" in shown


def test_a_refused_reply_is_sent_back_once_with_the_reason() -> None:
    def reply(number: int, rendered: RenderedPrompt[object]) -> str:
        return "no block at all" if number == 0 else propose(rendered)

    run = Run(reflection=numbered(reply))
    result = run.start()
    first, second, third = run.reflection.requests[:3]
    paths = [[found.path for found in question.sections] for question in (first, second, third)]
    assert ("problem",) not in paths[0]
    assert ("problem",) in paths[1]
    assert ("problem",) not in paths[2]
    assert bound(second, "problem").startswith("the reply has no fenced block")
    assert bound(second, "previous") == "```\nno block at all\n```"
    assert bound(second, "examples") == bound(first, "examples")
    assert result.found_better


def test_a_reply_that_was_cut_off_is_refused_and_a_shorter_one_asked_for() -> None:
    class CutOff(ScriptedAdapter):
        def evaluate(
            self,
            prompt: Prompt[OutputT],
            *,
            session: SessionProtocol,
            deadline: Deadline | None = None,
        ) -> PromptResponse[OutputT]:
            response = super().evaluate(prompt, session=session, deadline=deadline)
            return attrs.evolve(response, finish_reason="length")

    journal = MemoryJournal()
    reflection = CutOff(propose)
    for _ in range(2):
        context = OptimizationContext(
            ScriptedAdapter(answer), reflection_adapter=reflection, journal=journal
        )
        result = GepaOptimizer(context, config()).optimize(PROMPT)
        assert result.stop_reason is StopReason.REFLECTION_FAILED
        assert {refused.reason.value for refused in result.rejections} == {"unparsable reply"}
    assert reflection.calls == 10  # the second time all is in the journal
    assert "write a shorter text" in bound(reflection.requests[1], "problem")


def test_a_text_that_was_tried_before_is_refused() -> None:
    texts = ["Known words: w7", "Known words: w7", "Known words: w8"]

    def reply(number: int, rendered: RenderedPrompt[object]) -> str:
        return instruction(texts[number]) if number < 3 else propose(rendered)

    run = Run(config(target_section_paths=(RULES,)), reflection=numbered(reply))
    result = run.start()
    assert [(r.step, r.reason.value, r.final) for r in result.rejections[:3]] == [
        (1, "not better", True),
        (2, "already seen", False),
        (2, "not better", True),
    ]
    assert "tried before" in bound(run.reflection.requests[2], "problem")


def test_the_way_back_to_the_baseline_is_refused_as_already_seen() -> None:
    better, back = "Known words: w0 w1 w2 w3 w4", "Known words:"

    def reply(number: int, rendered: RenderedPrompt[object]) -> str:
        return instruction((better, back)[number]) if number < 2 else propose(rendered)

    result = optimize(
        config(target_section_paths=(RULES,), minibatch_size=6), reflection=numbered(reply)
    )
    assert result.ancestry[:2] == (None, 0)
    [refused] = result.rejections
    assert (refused.step, refused.parent, refused.reason.value) == (2, 1, "already seen")


def test_a_users_own_meta_prompt_reaches_the_reflection_model() -> None:
    store = InMemoryPromptOverridesStore()
    run = Run(overrides_store=store)
    run.start()
    question = run.reflection.requests[0]
    assert (question.ns, question.key) == META
    assert "Find what the failures have in common" in section(question, ("task",)).text

    own = "Rewrite the part as a pirate would.\n\n$limits\n\nUse an ```instruction block."
    store.set_section_override(Prompt(REFLECT_ON_SECTION), path=("task",), body=own)
    run = Run(overrides_store=store, overrides_tag="elsewhere")
    result = run.start()
    for question in run.reflection.requests:
        task = section(question, ("task",))
        assert task.overridden
        assert task.text.startswith("Rewrite the part as a pirate would.\n\n- Use at most")
    assert result.found_better


def test_a_meta_prompt_that_changes_during_a_run_changes_the_next_run_only() -> None:
    store = InMemoryPromptOverridesStore()
    body = "Hurry.\n\n$limits\n\nUse an ```instruction block."

    def meddle(number: int, rendered: RenderedPrompt[object]) -> str:
        if number == 0:
            store.set_section_override(Prompt(REFLECT_ON_SECTION), path=("task",), body=body)
        return propose(rendered)

    run = Run(overrides_store=store, reflection=numbered(meddle))
    first = run.start()
    assert not any("Hurry" in question.text for question in run.reflection.requests)
    next_run = Run(overrides_store=store)
    second = next_run.start()
    assert all("Hurry" in question.text for question in next_run.reflection.requests)
    assert first.run_id != second.run_id


def test_unscored_rollouts_are_not_shown() -> None:
    def sometimes(rendered: RenderedPrompt[object]) -> str:
        if asked(rendered) == "w2":
            raise TransientProviderError("overloaded")
        return answer(rendered)

    settings = config(minibatch_size=6, target_section_paths=(RULES,))
    run = Run(settings, task=sometimes)
    result = run.start()
    assert result.stop_reason is not StopReason.PROVIDER_FAILED
    for question in run.reflection.requests:
        shown = bound(question, "examples")
        assert shown.count("### Example ") == 5
        assert "w2" not in shown
        assert "overloaded" not in shown


def test_what_the_reflector_is_shown_stays_within_the_limits() -> None:
    def long(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=0.0, feedback="no", eval_trace="e" * 999)

    run = Run(
        config(
            feedback_fn=long,
            example_formatter=lambda example, response: ("i" * 999, "o" * 999),
            trace_formatter=lambda _: "t" * 999,
            max_example_chars=150,
            max_trace_chars=120,
        ),
    )
    run.start()
    lines = bound(run.reflection.requests[0], "examples").split("\n")
    assert max(len(line) for line in lines) < 150
    shown = "\n".join(lines)
    assert shown.count("of 999 characters left out …]") == 12


def test_the_prompts_own_answers_are_shown_when_a_response_is_an_object() -> None:
    @attrs.frozen
    class Verdict:
        known: bool

    run = Run(prompt=with_output(Verdict), task=lambda _: '{"known": false}')
    run.start()
    assert '{"known": false}' in bound(run.reflection.requests[0], "examples")


class _Forged(MemoryJournal):
    """A journal of which somebody has changed an answer."""

    def __init__(self, journal: MemoryJournal, key: str, changes: Mapping[str, Json]) -> None:
        super().__init__()
        self._whole, self._forged, self._forgery = journal, key, changes

    def begin(self, fingerprint: Mapping[str, Json], **how: Any) -> Mapping[str, Json]:
        recorded = super().begin(fingerprint, **how)
        for record in self._whole.records():
            found = record.answer
            if record.key == self._forged and isinstance(found, dict):
                found = {**found, **self._forgery}
            self.append(record.key, record.digest, record.kind, found)
        return recorded


@pytest.mark.parametrize(
    ("key", "changes", "question"),
    [
        ("step/1/parent/0", {"inputs_repr": "another input"}, "step/1/reflect/0"),
        ("step/1/parent/0", {"output_repr": "another answer"}, "step/1/reflect/0"),
        ("step/1/parent/2", {"tool_trace_repr": "another trace"}, "step/1/reflect/0"),
        ("step/1/reflect/0", {"text": "I would rather not, thank you."}, "step/1/reflect/1"),
    ],
)
def test_a_reply_is_not_taken_for_one_to_another_question(
    key: str, changes: Mapping[str, Json], question: str
) -> None:
    journal = MemoryJournal()
    replies = numbered(lambda n, question: propose(question) if n % 2 else "I would rather not.")
    whole = optimize(journal=journal, reflection=replies)
    assert "step/1/reflect/1" in journal
    same = _Forged(journal, key, {})
    assert optimize(journal=same, reflection=replies) == whole
    with pytest.raises(
        JournalMismatchError, match=f"another question under `{re.escape(question)}`"
    ):
        optimize(journal=_Forged(journal, key, changes), reflection=replies)
