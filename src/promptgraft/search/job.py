"""Everything that a run needs, in one value."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.agents.adapter import AgentAdapter
from promptgraft.errors import ConfigError
from promptgraft.prompt.template import Prompt
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.optimizer import Optimizer
from promptgraft.search.plan import RunPlan, SeenAnswers
from promptgraft.search.result import RunResult
from promptgraft.search.stopping import StopFile
from promptgraft.serde import shown
from promptgraft.strict.checks import instance
from promptgraft.targets.base import Subject, Target
from promptgraft.targets.prompts import Improvable, PromptSet, name_of, prompts_of
from promptgraft.targets.texts import TextsAdapter

_AS_THEY_ARE = (TextsAdapter, AgentAdapter)
"""Adapters that take part in a dry run: what they ask is the user's own."""


@attrs.frozen(init=False)
class OptimizationJob:
    """What is improved, the surroundings of the run, and its settings.

    ``promptgraft plan`` and ``promptgraft optimize`` take one from a Python file: an object,
    or a function without arguments that returns it.

    Attributes:
        subject: what is improved; of a subject such as ``Texts``, its prompt.
        context: who answers, where the winner goes, what is in force now.
        config: the settings.

    Raises:
        ConfigError: a field is something else.
    """

    subject: Prompt[object] | PromptSet | Target
    context: OptimizationContext
    config: RunConfig

    def __init__(
        self, subject: Improvable, context: OptimizationContext, config: RunConfig
    ) -> None:
        if not isinstance(subject, (Prompt, PromptSet, Target, Subject)):
            raise ConfigError(f"subject: expected a Prompt, found {shown(subject)}")
        instance(OptimizationContext).hold("context", context)
        if not isinstance(config, RunConfig):
            raise ConfigError(f"config: expected a RunConfig, found {shown(config)}")
        alone = subject if isinstance(subject, (Prompt, PromptSet, Target)) else subject.prompt
        self.__attrs_init__(alone, context.around(subject), config)

    @property
    def name(self) -> str:
        """What is improved, as runs name it: ``namespace/key`` of a prompt."""
        return name_of(self.subject)

    @property
    def prompts(self) -> Mapping[str, Prompt[object]]:
        """The prompts that are improved, by ``namespace/key``."""
        return prompts_of(self.subject)

    @property
    def prompt(self) -> Prompt[object]:
        """The one prompt that is improved.

        Raises:
            ConfigError: there are several, or there is none.
        """
        if not isinstance(self.subject, Prompt):
            raise ConfigError(f"expected a job for one prompt, found one for `{self.name}`")
        return self.subject

    def dry(self) -> OptimizationJob:
        """Return the same on the embedded offline model: it costs nothing and stores nothing.

        Overrides that the store holds take part as they do in the job. Tools, the function of
        ``Texts``, agents and the feedback function are called as they are, and a judge that this
        asks is a real one.
        """
        from promptgraft.adapters.offline import OfflineAdapter

        offline, task = OfflineAdapter(), self.context.adapter
        # A stop file may be meant for the real run, and a run removes the one that it finds.
        limits = self.config.limits
        stoppers = [one for one in limits.stoppers if not isinstance(one, StopFile)]
        subject = self.subject
        return OptimizationJob(
            subject.answered_by(offline) if isinstance(subject, PromptSet) else subject,
            attrs.evolve(
                self.context,
                adapter=task if task is None or isinstance(task, _AS_THEY_ARE) else offline,
                reflection_adapter=offline,
                journal=None,
                teacher=self.context.teacher and self.context.teacher.answered_by(offline),
            ),
            attrs.evolve(
                self.config,
                persist=False,
                limits=attrs.evolve(limits, max_cost=None, max_tokens=None, stoppers=stoppers),
            ),
        )

    def within(self, context: OptimizationContext) -> OptimizationJob:
        """Return the same job in other surroundings."""
        return attrs.evolve(self, context=context)

    def plan(self, *, seen: SeenAnswers | None = None) -> RunPlan:
        """Say what the run can use; see :meth:`Optimizer.plan`."""
        return Optimizer(self.context, self.config).plan(self.subject, seen=seen)

    def run(self) -> RunResult:
        """Run it; see :meth:`Optimizer.optimize`."""
        return Optimizer(self.context, self.config).optimize(self.subject)
