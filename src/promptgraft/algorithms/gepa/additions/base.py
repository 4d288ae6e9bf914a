"""What a search does beyond the published algorithm: the interface, and how settings name it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import ClassVar, Self

import attrs

from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Proposer
from promptgraft.algorithms.gepa.reflect import Reflector
from promptgraft.algorithms.gepa.select import TrainingRollouts
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.entry_points import Group
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.kinds import listed, record_of, without_name
from promptgraft.ground.strict.nodes import Node
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, answered
from promptgraft.search.config import RunConfig
from promptgraft.search.population import Seen
from promptgraft.search.validation import Validator


@attrs.frozen(kw_only=True)
class Tools:
    """What an addition works with.

    Attributes:
        config: the settings of the run.
        kit: what the search works with.
        reflector: asks the reflection model, and grafts its replies.
        validator: adds candidates to the population.
        seen: the candidates tried so far.
        trial_size: most rollouts of an attempt.
        training_rollouts: those of the latest candidates, if the strategy remembers any.
    """

    config: RunConfig
    kit: Kit
    reflector: Reflector
    validator: Validator
    seen: Seen
    trial_size: int
    training_rollouts: TrainingRollouts


class Addition:
    """Something that a search does besides the published algorithm.

    Everything that an addition knows of an attempt it fixes in :meth:`begin`, in ``attempt.notes``
    or in the proposer, so that attempts that overlap depend on their number alone; :meth:`learn` is
    called in the order of the steps. What subclasses set in ``__init__`` are their settings, values
    that JSON has; a search works on a copy, so one object may be in the settings of several runs.

    Attributes:
        name: its name in settings, and of its notes.
        version: raised when it decides otherwise with the same settings and answers; the run of
            another version is not continued.
        example_version: its version in runs in which examples may change; 0 for the same one.
        asks_several: whether an attempt may ask questions about several modules.
        tools: what it works with, from :meth:`start` on.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    example_version: ClassVar[int] = 0
    asks_several: ClassVar[bool] = False
    tools: Tools

    def started(self, tools: Tools) -> Self:
        """Return a copy for one search."""
        kind: type = type(self)
        copied: Self = attrs.evolve(self) if attrs.has(kind) else copy.copy(self)  # type: ignore[misc]
        copied.tools = tools
        copied.start()
        return copied

    def start(self) -> None:
        """Set up the state of a search."""

    @property
    def settings(self) -> Mapping[str, Json]:
        """What decides the path of a run besides its name, for the fingerprint of the run.

        Raises:
            ConfigError: one of them has no JSON form.
        """
        kind: type = type(self)
        if attrs.has(kind):
            names = [field.name for field in attrs.fields(kind) if field.init]
        else:
            names = [name for name in vars(self) if name != "tools"]
        try:
            return {name: unstructure(getattr(self, name), path=name) for name in names}
        except DataFormatError as error:
            raise ConfigError(f"addition `{self.name}`: {error}") from None

    def reserve(self, rollouts: int, *, least: int, validation: int) -> int:
        """Return how many rollouts of a budget are kept for :meth:`finish`.

        They are released with ``tools.kit.budget.release``, in ``finish`` or before.

        Args:
            rollouts: the budget; a larger one may keep more, but not all that it has more.
            least: the smallest budget that a search without additions can have.
            validation: examples of the validation set.
        """
        return 0

    def expected_questions(self, modules: int, otherwise: float) -> float:
        """Return how many questions an attempt is expected to ask, for the plan.

        Args:
            modules: how many modules may change.
            otherwise: how many it is expected to ask without the addition.
        """
        return otherwise

    def begin(self, attempt: Attempt) -> Proposer | None:
        """Return what proposes in this attempt instead of a reflection; None for the reflection.

        It may set ``attempt.minibatch``, if the attempt is about certain examples, and
        ``attempt.is_reflection``. A proposer has ``attempt.records``, the parent's rollouts, and
        may leave examples out of the minibatch. The first addition that returns a proposer is
        asked first; where a proposer returns None, the next one is.
        """
        return None

    def revise(self, attempt: Attempt, changes: Changes) -> Changes:
        """Return the changes of a child as they are to be tried; there is at least one."""
        return changes

    def learn(self, attempt: Attempt) -> None:
        """Learn from an attempt that has ended."""

    def gives_back(self) -> bool:
        """Release reserved rollouts that are not needed; return whether there were any."""
        return False

    def finish(self, steps: int) -> Asking[None]:
        """Use what was reserved, after the search, which has made so many steps."""
        return answered(None)


_HERE = __name__.rpartition(".")[0]
_OWN = {
    "lines": f"{_HERE}.lines.addition:Lines",
    "whole_prompt": f"{_HERE}.whole_prompt:WholePrompt",
    "blame": f"{_HERE}.blame:Blame",
    "history": f"{_HERE}.history:History",
    "restart": f"{_HERE}.restart:Restart",
    "shorten": f"{_HERE}.shorten:Shorten",
}
VERSIONS = "addition_versions"
"""The key of a fingerprint with the versions of additions above 1, by name."""
GROUP = Group("promptgraft.additions", "addition", Addition, _OWN)


def _read(node: Node) -> Addition | None:
    """Read an addition: its name, or its name with its settings."""
    if not isinstance(node.value, str) and not (
        isinstance(node.value, dict) and len(node.value) == 1
    ):
        node.expected("the name of an addition, or `NAME: {SETTING: ...}`")
        return None
    name = node.value if isinstance(node.value, str) else next(iter(node.value))
    try:
        kind = GROUP.load(name)
        if isinstance(node.value, str):
            return kind()
        return record_of(kind).read(node.member(name))
    except ConfigError as error:
        node.fault(without_name(str(error), "additions"))
        return None


ADDITIONS_KIND: Kind[object] = listed(
    Kind(
        _read,
        {"anyOf": [{"type": "string"}, {"type": "object", "minProperties": 1, "maxProperties": 1}]},
    ),
    "a list of additions",
)
"""How files write additions: ``[lines, shorten: {margin: 0.02}]``."""
