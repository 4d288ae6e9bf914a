"""Which images of cases a reflection model is shown, and which are only named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from image_files import png
from promptgraft import (
    Case,
    Data,
    FileJournal,
    GepaConfig,
    GepaOptimizer,
    GradientConfig,
    GradientOptimizer,
    Image,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    ScriptedAdapter,
    examples_from,
    feedback_from,
)
from promptgraft.errors import ConfigError, JournalMismatchError
from promptgraft.evals.metrics import Exact
from promptgraft.ground.content import File, names_in

PROMPT = Prompt(
    PromptTemplate[object](
        ns="tests",
        key="look",
        sections=(
            MarkdownSection(title="Rules", key="rules", template="Look."),
            MarkdownSection(title="Photo", key="photo", template="$photo", overridable=False),
        ),
    )
)
SIZES = (400, 4, 4, 4, 4, 4)


def photo(number: int) -> Image:
    """Return a photo of its own, with as many KiB behind it as ``SIZES`` says."""
    data = png(colour=(number, 0, 0)) + b"\0" * 1024 * SIZES[number % len(SIZES)]
    return Image(data=data, name=f"{number}.png")


CASES = [Case(id=f"c{n}", input={"photo": photo(n)}, expected="a cat") for n in range(12)]


class Blind(ScriptedAdapter):
    """A model that is known to see nothing."""

    @property
    def sees(self) -> bool:
        return False


class Unknown(ScriptedAdapter):
    """A model of which nothing is known."""

    sees = None  # type: ignore[assignment]


def sees_a_dog(_: RenderedPrompt[object]) -> str:
    return "a dog"


def run(
    reflection: type[ScriptedAdapter] = ScriptedAdapter,
    journal: FileJournal | None = None,
    algorithm: str = "gepa",
    task: Callable[[RenderedPrompt[object]], str] = sees_a_dog,
    **data: Any,
) -> list[RenderedPrompt[object]]:
    """Run a search in which nothing gets better, and return the questions that were asked."""
    context = OptimizationContext(
        ScriptedAdapter(task, identity="task"),
        reflection_adapter=(asked := reflection(lambda _: "no", identity="writer")),
        journal=journal,
    )
    common: dict[str, Any] = {
        "rollout_budget": 24,
        "pareto_set_size": 4,
        "training_examples": examples_from(PROMPT, CASES, [Exact()]),
        "feedback_fn": feedback_from([Exact()]),
        "data": Data(held_out=[], **data),
        "persist": False,
    }
    if algorithm == "gepa":
        config = GepaConfig(minibatch_size=4, **common)
        GepaOptimizer(context, config).optimize(PROMPT)
    else:
        GradientOptimizer(context, GradientConfig(**common)).optimize(PROMPT)
    return [*asked.requests]


def images_of(question: RenderedPrompt[object]) -> list[str]:
    return [str(piece) for piece in question.content if isinstance(piece, File)]


@pytest.mark.parametrize("algorithm", ["gepa", "gradient"])
def test_a_model_that_sees_is_shown_what_its_cases_show(algorithm: str) -> None:
    questions = run(algorithm=algorithm)
    assert any(images_of(question) for question in questions)
    for question in questions:
        assert images_of(question) == [*dict.fromkeys(names_in(question.text))]


def test_a_large_image_is_only_named() -> None:
    questions = run(shown_image_kb=100)
    assert any("[image 6." in question.text for question in questions)
    for question in questions:
        named = dict.fromkeys(names_in(question.text))
        assert images_of(question) == [
            name for name in named if not name.startswith(("[image 0.", "[image 6."))
        ]


def test_a_question_shows_so_many_images_and_names_the_others() -> None:
    questions = run(shown_images=1)
    assert any(len(names_in(question.text)) > 1 for question in questions)
    for question in questions:
        assert images_of(question) == names_in(question.text)[:1]


def test_the_images_of_failures_are_shown_first() -> None:
    def task(question: RenderedPrompt[object]) -> str:
        return "a dog" if "3.png" in question.text or "7.png" in question.text else "a cat"

    behind = 0
    for question in run(task=task, shown_images=1):
        named = names_in(question.text)
        failed = [name for name in named if name.startswith(("[image 3.", "[image 7."))]
        assert images_of(question) == (failed or named)[:1]
        behind += bool(failed) and failed[0] != named[0]
    assert behind


@pytest.mark.parametrize("model", [Blind, Unknown])
def test_a_model_that_is_not_known_to_see_is_told_the_names(model: type[ScriptedAdapter]) -> None:
    questions = run(model)
    assert questions
    for question in questions:
        assert names_in(question.text)
        assert images_of(question) == []


def test_images_may_be_switched_off() -> None:
    questions = run(shown_images=0)
    assert any(names_in(question.text) for question in questions)
    assert not any(map(images_of, questions))


def test_the_settings_are_checked_and_part_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.shown_images: expected an integer from 0"):
        Data(shown_images=-1)
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        run(journal=journal)
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        assert run(journal=journal) == []
    with (
        FileJournal(tmp_path / "journal.jsonl") as journal,
        pytest.raises(JournalMismatchError, match=r"data\.shown_images"),
    ):
        run(journal=journal, shown_images=2)
