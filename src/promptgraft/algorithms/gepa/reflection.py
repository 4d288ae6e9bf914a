"""Reflections: a model is shown a module and its rollouts, and proposes a new text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.algorithms.gepa.prompts import reflection_params
from promptgraft.prompt.template import Prompt
from promptgraft.search.asks import Question
from promptgraft.serde import digest
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.types import ModuleDescription, RolloutRecord

MetaPrompts = Mapping[str, Prompt[object]]
"""The question for each kind of part."""


def question_on(
    position: str,
    description: ModuleDescription,
    records: Sequence[RolloutRecord],
    *,
    meta_prompts: MetaPrompts,
    earlier: Mapping[str, Sequence[RolloutRecord]],
    refused: tuple[InvalidProposalError, str] | None = None,
) -> Question:
    """Return the question that asks for a new text of a module.

    Args:
        position: where in the run.
        description: the module.
        records: its rollouts; unscored ones are left out.
        meta_prompts: the questions.
        earlier: better answers to the same examples, by example.
        refused: why the previous reply could not be used, and that reply.
    """
    problem, previous = ("", "") if refused is None else (refused[0].detail, refused[1])
    params = reflection_params(
        description,
        [record for record in records if record.feedback is not None],
        earlier=earlier,
        problem=problem,
        previous=previous,
    )
    # The meta-prompts are in the fingerprint, so nothing has to be rendered for a replay.
    return Question(
        position=position,
        prompt=meta_prompts[description.meta_prompt].bind(params),
        digest=digest([description.meta_prompt, params]),
    )
