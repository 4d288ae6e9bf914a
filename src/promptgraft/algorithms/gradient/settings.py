"""The settings of textual gradients, and what they let a run use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, get_args

import attrs

from promptgraft.algorithms.gradient.inquiries import MAX_PROBLEM_CHARS
from promptgraft.algorithms.gradient.patching import patch_params
from promptgraft.algorithms.gradient.prompts import (
    FORMER_QUESTIONS,
    QUESTIONS,
    BlameParams,
    MergeParams,
    QuestionKey,
)
from promptgraft.algorithms.gradient.stages import Aggregate, Backward, Rewrite
from promptgraft.errors import ConfigError
from promptgraft.evals.spending import Role
from promptgraft.ground.functions import function_identity, taking
from promptgraft.ground.serde import Json, did_you_mean, digest, shown
from promptgraft.ground.strict.checks import COUNT, FINITE, FLAG, integer, one_of, path_of
from promptgraft.ground.text import listed
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.search.acceptance import Paired
from promptgraft.search.algorithm import Questions
from promptgraft.search.config import RunConfig
from promptgraft.search.round_events import Problem, Severity
from promptgraft.search.settings import Affordable
from promptgraft.search.targets import meta_prompt_digest
from promptgraft.targets.base import InvalidProposalError, Target
from promptgraft.targets.estimating import Sizes, sent_chars
from promptgraft.targets.types import Candidate

Attribution = Literal["steps", "trace"]
"""How failures are traced back: with a question for each step, or with one for all steps."""

STAGES = ("backward", "aggregate", "rewrite")
"""Settings that replace the questions of a stage."""

COPIED_WORDS = 8
"""``guards.max_copied_words`` where it is not given."""

# The question and its repair.
_ASKED_TWICE = 2


def _texts(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    """Check texts by name."""
    pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        path = path_of(owner, field)
        raise ConfigError(f"{path}: expected texts by name of the part, found {shown(value)}")


@attrs.frozen(kw_only=True)
class GradientSettings(RunConfig):
    """The settings of a gradient search, in addition to those of every run.

    Attributes:
        max_rounds: rounds that the run may make, 1 to 100.
        patience: rounds in a row without an accepted candidate, after which the run ends.
        target_score: mean of the current candidate on the validation set at which the run ends;
            None for no target.
        train_batch: training cases of a round: up to three quarters that the current candidate
            is known to fail, and others, each of which is used once before any is used again.
            ``all`` for all of them in every round.
        initial: texts to begin with, by name of the part, in place of those in force.
        max_gradients: gradients of a part in a round, at most; the most severe come first.
        attribution: how failures are traced back: ``trace`` asks once for each case and shows
            all of its steps; ``steps`` asks about each step, from the last to the first, as
            published.
        first_try: whether, after a refused candidate, the next ones are evaluated on the failures
            that led to them before the validation set, and refused if they are no better there;
            the published search does not do this.
        backward: blames parts for a failed answer, in place of the questions.
        aggregate: merges the problems of a part, in place of the question.
        rewrite: writes the new text of a part, in place of the question.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    algorithm: ClassVar[str] = "gradient"
    functions: ClassVar[tuple[str, ...]] = (*RunConfig.functions, *STAGES)
    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = QUESTIONS
    question_shares: ClassVar[Mapping[Role, float]] = {
        Role.BACKWARD: 0.6,
        Role.AGGREGATE: 0.2,
        Role.OPTIMIZE: 0.2,
    }

    max_rounds: int = attrs.field(default=20, validator=integer(1, 100))
    patience: int = attrs.field(default=5, validator=COUNT)
    target_score: float | None = attrs.field(default=None, validator=FINITE.or_none)
    train_batch: int | Literal["all"] = attrs.field(default=16, validator=COUNT.or_word("all"))
    initial: Mapping[str, str] = attrs.field(factory=dict, validator=_texts)
    max_gradients: int = attrs.field(default=20, validator=COUNT)
    attribution: Attribution = attrs.field(
        default="trace", validator=one_of(*get_args(Attribution))
    )
    first_try: bool = attrs.field(default=True, validator=FLAG)
    backward: Backward | None = attrs.field(default=None, validator=taking("request"))
    aggregate: Aggregate | None = attrs.field(default=None, validator=taking("request"))
    rewrite: Rewrite | None = attrs.field(default=None, validator=taking("request"))

    def check(self) -> None:
        if self.enable_example_generation:
            raise ConfigError(
                "enable_example_generation: a gradient search changes texts that are there, and "
                "writes no new examples; leave it out, or take the algorithm gepa"
            )
        if isinstance(self.acceptance, Paired):
            answers = self.pareto_set_size * (1 + self.acceptance.max_repeats)
            self.acceptance.check_power(answers, "raise pareto_set_size or max_repeats")

    def initial_candidate(self, target: Target) -> Candidate | None:
        """Return the candidate that the search begins with; None for the baseline.

        Raises:
            ConfigError: naming an unknown part, or why a text cannot be used.
        """
        modules = {module.name: module for module in target.modules if not module.is_new}
        candidate, (_, training) = None, self.split
        for name, text in self.initial.items():
            if name not in modules:
                near = did_you_mean(name, list(modules))
                raise ConfigError(
                    f"initial: no part `{name}` may change{near}; there are {listed(modules)}"
                )
            try:
                base = candidate or target.baseline()
                candidate = target.graft(base, modules[name], text, parents=(0,), examples=training)
            except InvalidProposalError as error:
                raise ConfigError(f"initial: `{name}`: {error.detail}") from None
        if candidate is None:
            return None
        return attrs.evolve(candidate, modules=tuple(modules[name] for name in self.initial))

    def check_target(self, target: Target) -> None:
        self.initial_candidate(target)

    @property
    def decisive(self) -> Mapping[str, Json]:
        stages = {name: getattr(self, name) for name in STAGES}
        return {
            **{name: function_identity(stage) for name, stage in stages.items() if stage},
            "train_batch": self.train_size,
            "initial": dict(self.initial),
            "max_gradients": self.max_gradients,
            "attribution": self.attribution,
            "first_try": self.first_try,
            "guards.max_copied_words": self.copied_words,
        }

    @property
    def copied_words(self) -> int:
        """Consecutive words of an answer for which a text is refused; 0 for no guard."""
        guards_words = self.guards.max_copied_words
        return COPIED_WORDS if guards_words is None else guards_words

    @property
    def train_size(self) -> int:
        """Training cases of a round."""
        most = self.training_size
        return most if self.train_batch == "all" else min(self.train_batch, most)

    @property
    def judging_size(self) -> int:
        """Rollouts that evaluate the candidate of a round, including all repeats."""
        # A repeat evaluates both candidates.
        repeated = 2 * self.acceptance.max_repeats * self.pareto_set_size
        return self.train_size * self.first_try + self.pareto_set_size + repeated

    @property
    def baseline_size(self) -> int:
        return self.pareto_set_size * (2 if self.initial else 1)

    @property
    def step_size(self) -> int:
        return self.train_size + self.judging_size

    @property
    def smaller_steps(self) -> str:
        return " or train_batch"

    def pays_for(self, rollouts: int) -> Affordable:
        # A round begins only if the budget covers all of it. A refused one takes at least one
        # rollout, and one without a usable text takes none.
        remaining = rollouts - self.baseline_size - self.reserved_size
        if remaining < self.step_size:
            return Affordable(if_accepted=0, if_refused=0, steps=0)
        least = 1 if self.first_try else self.pareto_set_size
        return Affordable(
            if_accepted=min(self.max_rounds, remaining // self.step_size),
            if_refused=min(self.max_rounds, 1 + (remaining - self.step_size) // least),
            steps=self.max_rounds,
        )

    def most_questions(self, rollouts: int, *, modules: int = 1, steps: int = 1) -> int:
        traced = self.train_size * (max(1, steps) if self.attribution == "steps" else 1)
        # For each part, one question merges its problems, and one asks for a new text.
        return self.pays_for(rollouts).steps * _ASKED_TWICE * (traced + 2 * modules)

    def translated(self, recorded: Mapping[str, Json]) -> Mapping[str, Json]:
        if recorded.get("meta_prompts") != FORMER_QUESTIONS:
            return recorded
        digests = [meta_prompt_digest(Prompt(template)) for template in QUESTIONS.values()]
        return {**recorded, "meta_prompts": digest(digests)}

    def expected_questions(self, proposals: int, modules: int) -> int:
        # About half of the cases fail, and failures blame about half of the parts.
        return round(proposals * (self.train_size / 2 + modules))

    @property
    def questions_at_once(self) -> int:
        return self.train_size

    def question_chars(self, target: Target, questions: Questions, sizes: Sizes) -> Sequence[int]:
        baseline, refused = target.baseline(), "x" * sizes.refused
        filler = "x" * (sizes.input + sizes.answer + sizes.trace)
        chars = []
        for module in target.modules:
            described = target.describe(module, baseline)
            neighbours = "".join(text for _, text in described.neighbours)
            problems = "x" * min(MAX_PROBLEM_CHARS, sizes.feedback) * self.max_gradients
            key = QuestionKey.TRACE if self.attribution == "trace" else QuestionKey.STEP
            rendered_prompts = {
                key: BlameParams(
                    steps=filler,
                    parts=described.text,
                    others=neighbours,
                    losses="x" * sizes.feedback,
                    previous=refused,
                ),
                QuestionKey.MERGE: MergeParams(
                    part=described.name, current=described.text, said=problems, previous=refused
                ),
                QuestionKey.PATCH: attrs.evolve(
                    patch_params(described, [Problem(severity=Severity.P1, text=problems)]),
                    previous=refused,
                ),
            }
            chars += [
                sent_chars(questions[name].bind(params).render())
                for name, params in rendered_prompts.items()
            ]
        return chars
