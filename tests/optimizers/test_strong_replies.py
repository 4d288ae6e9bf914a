"""A search with replies in the forms of strong models: what it asks, what it makes of them.

The replies were written for this test, in forms that such models use: reasons before each
block, whole definition lists, SEARCH/REPLACE inside a block, the older form in one object, prose
without a text, longer fences, and a summary that looks like definitions. Their order is that of
the questions.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from optimizers.worlds import Question, Run, asked, bound, config
from promptgraft import EventBus, GepaExample, GepaResult, RolloutFeedback
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaCandidateAdded, GepaMutationProposed
from promptgraft.algorithms.gepa.prompts import WHOLE
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.runtime import SessionProtocol

REPLIES = [
    path.read_text("utf-8")
    for path in sorted((Path(__file__).parent / "strong_replies").glob("*.md"))
]
PROSE = next(reply for reply in REPLIES if "```" not in reply)
SLOT = re.compile(r"^- (\w+): (.*)$", re.MULTILINE)
WORDS = {
    "billing": ("invoice", "charge", "refund", "receipt", "bill", "price"),
    "account": ("password", "login", "locked", "username", "profile", "email"),
    "shipping": ("parcel", "courier", "delivery", "tracking", "address", "pickup"),
}
LABELS = {word: label for label, words in WORDS.items() for word in words}
QUEUES = "section queues"
PROMPT = Prompt[object](
    PromptTemplate[object](
        ns="toy",
        key="tickets",
        sections=(
            MarkdownSection(
                title="Queues",
                key="queues",
                template="Choose one queue:\n- billing: invoice\n- account: password\n"
                "- shipping: parcel",
            ),
            MarkdownSection(
                title="Conventions",
                key="conventions",
                template="Answer with the name of the queue only.",
            ),
            MarkdownSection(title="Question", key="question", template="A message on $word."),
        ),
    )
)


def sort(rendered: RenderedPrompt[object]) -> str:
    """Answer with the label whose definition has the word of the question."""
    queues = next(part.text for part in rendered.sections if part.path == ("queues",))
    word = asked(rendered)
    named = [label for label, words in SLOT.findall(queues) if word in words.split(", ")]
    return named[0] if named else list(WORDS)[len(word) % len(WORDS)]


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    del session
    is_right = response.text == example.label
    said = f"expected {example.label}, answered {response.text}"
    return RolloutFeedback(score=float(is_right), feedback="right" if is_right else said)


def examples() -> tuple[GepaExample, ...]:
    rounds = ("validation", "training")
    return tuple(
        GepaExample(id=f"{word}-{name}", params=(Question(word, again=name),), label=LABELS[word])
        for name in rounds
        for word in sorted(LABELS)
    )


class Prepared:
    """A reflection model that gives the prepared replies in their order, again and again.

    They answer questions on all parts; it changes nothing when asked about one.
    """

    def __init__(self) -> None:
        self.questions: list[RenderedPrompt[object]] = []
        self._replies = itertools.cycle(REPLIES)

    def __call__(self, rendered: RenderedPrompt[object]) -> str:
        self.questions.append(rendered)
        return next(self._replies) if rendered.key == WHOLE.key else PROSE


@pytest.fixture(scope="module")
def made() -> tuple[
    list[RenderedPrompt[object]],
    list[GepaCandidateAdded],
    list[GepaMutationProposed],
    GepaResult,
]:
    """Return the questions on all parts, the candidates, the proposals and the result."""
    model, bus = Prepared(), EventBus()
    added, proposed = list[GepaCandidateAdded](), list[GepaMutationProposed]()
    bus.subscribe(GepaCandidateAdded, added.append)
    bus.subscribe(GepaMutationProposed, proposed.append)
    settings: Any = config(
        preset="lean",
        rollout_budget=300,
        minibatch_size=6,
        pareto_set_size=len(LABELS),
        training_examples=examples(),
        feedback_fn=judge,
        target_section_paths=(("queues",), ("conventions",)),
        whole_prompt=1.0,
        max_idle_steps=12,
        max_failed_reflections=12,
    )
    run = Run(settings, prompt=PROMPT, task=sort, reflection=model, event_bus=bus)
    result = run.start()
    return [q for q in model.questions if q.key == WHOLE.key], added, proposed, result


def test_every_form_is_read_and_prose_alone_is_refused_without_harm(made: Any) -> None:
    _, added, proposed, result = made
    texts = {event.after for event in proposed if event.module == QUEUES}
    ends = ("parcel, courier", "courier, delivery, tracking", "parcel, courier, delivery")
    assert {end for end in ends for text in texts if text.endswith(end)} == {*ends}
    assert any("username, profile" in text for text in texts)
    assert all("Summary" not in text and "`" not in text and "<<<" not in text for text in texts)
    assert any("no fenced block" in rejection.detail for rejection in result.rejections)
    assert result.best_index > 0
    assert len(added) > 1


def test_a_definition_replaces_the_one_of_its_label_and_is_never_moved_or_doubled(
    made: Any,
) -> None:
    _, added, proposed, _ = made
    written = {
        (label, words.removesuffix('"}]}'))
        for reply in REPLIES
        for label, words in SLOT.findall(reply.replace("\\n", "\n"))
    }
    source = set(SLOT.findall(added[0].texts[QUEUES]))
    texts = [candidate.texts[QUEUES] for candidate in added]
    for text in (*texts, *(event.after for event in proposed if event.module == QUEUES)):
        definitions = SLOT.findall(text)
        assert [label for label, _ in definitions] == list(WORDS)
        assert {*definitions} <= written | source
    for candidate in added:
        assert not {*WORDS}.intersection(dict(SLOT.findall(candidate.texts["section conventions"])))


def test_the_question_has_a_table_of_confusions_near_successes_and_a_memory(made: Any) -> None:
    questions, *_ = made
    texts = [question.text for question in questions]
    assert "What was tried" not in texts[0]
    tables = [text for text in texts if "| expected | answered | times |" in text]
    assert any(re.search(r"\| billing \| (account|shipping) \| \d+ \|", text) for text in tables)
    assert any("now; keep them so:" in text and "→ billing\n" in text for text in texts)
    told = "\n".join(bound(q, "tried") for q in questions if "What was tried" in q.text)
    assert "in place of what is below" in told
    assert "\n- `- billing: " in told
    assert re.search(r"not better on the cases it was written for \(\d\.\d\d before", told)
