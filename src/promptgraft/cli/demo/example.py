"""The triage example, as the demo uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from promptgraft.cli.source import example_folder
from promptgraft.errors import ConfigError
from promptgraft.parts.descriptors import SectionPath
from promptgraft.project.python_source import load_file
from promptgraft.prompt import PromptTemplate
from promptgraft.targets.types import FeedbackFn, GepaExample

NAME = "triage"


@attrs.frozen(kw_only=True)
class Example:
    """A prompt with its data.

    Attributes:
        folder: where it stands.
        template: the prompt.
        training: tickets that the search may use.
        held_out: tickets that it never sees.
        feedback: scores an answer.
        targets: sections that the search may change.
        budget: rollouts that the search uses by default.
        minibatch_size: tickets that a change is tried on first.
        pareto_set_size: tickets that candidates are compared on.
        shuffle: whether the seed decides which these are.
    """

    folder: Path
    template: PromptTemplate[object]
    training: tuple[GepaExample, ...]
    held_out: tuple[GepaExample, ...]
    feedback: FeedbackFn
    targets: tuple[SectionPath, ...]
    budget: int
    minibatch_size: int
    pareto_set_size: int
    shuffle: bool


def load_example() -> Example:
    """Return the triage example.

    Raises:
        ConfigError: it is not installed, or its code has been changed beyond use.
    """
    folder = example_folder(NAME)
    module = load_file(folder / "task.py", name="promptgraft_example_triage", what="example")
    template: object = module.TEMPLATE
    if not isinstance(template, PromptTemplate):
        raise ConfigError(
            f"example: {folder / 'task.py'} has no TEMPLATE; install promptgraft again"
        )
    load_tickets: Callable[[Path], Sequence[GepaExample]] = module.load_tickets
    return Example(
        folder=folder,
        template=template,
        training=tuple(load_tickets(folder / "train.jsonl")),
        held_out=tuple(load_tickets(folder / "test.jsonl")),
        feedback=module.feedback,
        # As in its optimize.py.
        targets=(("queues",), ("conventions",)),
        budget=1500,
        minibatch_size=10,
        pareto_set_size=60,
        shuffle=True,
    )
