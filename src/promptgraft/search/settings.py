"""The groups of settings that every run has: objects in Python, keys in a project file.

Messages name a setting by its path, such as ``limits.max_cost``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import nearest, shown
from promptgraft.ground.strict import checks
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.search.frontier import FrontierType
from promptgraft.search.scores import weights_of
from promptgraft.search.stopping import StopFile, Stopper
from promptgraft.targets.prompt_rollout import OnError
from promptgraft.targets.types import GepaExample, named_numbers_fault


class PersistenceScope(StrEnum):
    """Where a winner is stored.

    ``GLOBAL``: in the context's override store. ``SESSION``: only in the session given to
    ``optimize``, as a ``PromptOverride`` event; refused without a session.
    """

    GLOBAL = "global"
    SESSION = "session"


DEFAULT_WORKERS = 4
"""Rollouts at a time, for those who bring no executor."""

Size = Literal["light", "medium", "heavy"]
"""The size of a run, as an alternative to a number of rollouts."""

PROPOSALS: Mapping[Size, int] = {"light": 6, "medium": 15, "heavy": 40}
"""How many proposals the budget of a size pays for if every one is accepted."""


@attrs.frozen(kw_only=True)
class Affordable:
    """What a number of rollouts pays for.

    Attributes:
        if_accepted: proposals evaluated if every one is accepted, and merged where merges are on.
        if_refused: proposals evaluated if none is accepted.
        steps: steps begun if no reply is usable, so that nothing is evaluated.
        if_usual: as ``if_accepted``, if minibatches grow as they usually do; None for the same.
    """

    if_accepted: int
    if_refused: int
    steps: int
    if_usual: int | None = None

    @property
    def expected(self) -> int:
        """Proposals evaluated if every second one is accepted."""
        accepted = self.if_accepted if self.if_usual is None else self.if_usual
        refused = self.if_refused
        # An accepted proposal takes 1/accepted of the budget, and a refused one 1/refused.
        return round(2 * accepted * refused / (accepted + refused)) if accepted else refused // 2

    def limited(self, proposals: int) -> Affordable:
        """Return the numbers capped at ``proposals``."""
        return attrs.evolve(
            self,
            if_accepted=min(self.if_accepted, proposals),
            if_refused=min(self.if_refused, proposals),
            if_usual=None if self.if_usual is None else min(self.if_usual, proposals),
        )


_MONEY = checks.money(texts=True).or_none


@attrs.frozen
class Settings:
    """Base class of settings and of their groups, which are attrs classes.

    Lists and mappings are copied, so that settings never change.

    Raises:
        ConfigError: an argument is not the name of a setting; suggests the nearest name.
    """

    settings_path: ClassVar[str] = ""
    """The prefix of the names of settings in messages, such as ``limits.``."""

    former_settings: ClassVar[Mapping[str, str]] = {}
    """What became of settings of earlier versions and of the common specification, by name."""

    def __new__(cls, *_: object, **given: object) -> Self:
        # Before `__init__`, whose TypeError would suggest no name.
        for name in given:
            if name in cls.former_settings:
                raise ConfigError(f"{cls.__name__}: `{name}` {cls.former_settings[name]}")
            if name not in attrs.fields_dict(cls):
                raise ConfigError(f"{cls.__name__}: there is no setting `{name}`{_near(name, cls)}")
        return object.__new__(cls)

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            if isinstance(value, Sequence) and not isinstance(value, (str, tuple)):
                object.__setattr__(self, field.name, tuple(value))
            elif isinstance(value, Mapping) and not isinstance(value, FrozenMap):
                object.__setattr__(self, field.name, FrozenMap(value))


def group(kind: type[Any]) -> checks.Check[Any]:
    """Return the check of a setting that is a group of settings."""
    return attrs.evolve(checks.instance(kind), mend=f"write `{kind.__name__}(NAME=VALUE)`")


def groups_of(kind: type[Settings]) -> dict[str, type[Settings]]:
    """Return the groups of settings, by their names."""
    fields = attrs.fields_dict(attrs.resolve_types(kind))
    types = {name: field.type for name, field in fields.items()}
    return {
        name: kind_of_group
        for name, kind_of_group in types.items()
        if isinstance(kind_of_group, type) and issubclass(kind_of_group, Settings)
    }


def _near(name: str, kind: type[Settings]) -> str:
    """Return a suggestion for ``name``: the nearest setting with its group, or else all."""
    names = list(attrs.fields_dict(kind))
    paths = {
        field: f"{group}.{field}"
        for group, inner in groups_of(kind).items()
        for field in attrs.fields_dict(inner)
    }
    if near := nearest(name, [*names, *paths], cutoff=0.75):
        return f"; did you mean `{paths.get(near, near)}`?"
    return f"; there are {', '.join(f'`{name}`' for name in names)}"


@attrs.frozen
class Several:
    """A validator of sequences.

    Attributes:
        what: what is expected, for messages.
        item: what each item must be.
        distinct: whether no item may occur twice.
    """

    what: str
    item: checks.Check[object]
    distinct: bool = True

    def __call__(self, owner: object, field: attrs.Attribute[Any], value: object) -> None:
        """Check the value of a field.

        Raises:
            ConfigError: naming the field, and the position of an item.
        """
        path = checks.path_of(owner, field)
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            raise ConfigError(f"{path}: expected {self.what}, found {shown(value)}")
        for position, item in enumerate(value):
            self.item.hold(f"{path}[{position}]", item)
            if self.distinct and item in value[:position]:
                named = "/".join(item) if isinstance(item, tuple) else item
                raise ConfigError(f"{path}: `{named}` is named twice")


EXAMPLES = Several("a sequence of GepaExample", checks.instance(GepaExample), distinct=False)


def _path(value: object) -> SectionPath | None:
    if isinstance(value, tuple) and value and all(isinstance(key, str) for key in value):
        return value
    return None


PATHS = Several(
    "a tuple of section paths",
    checks.check("a tuple of section keys such as ('policies', 'refunds')", _path),
)
_NAMES = Several("a tuple of names", checks.TEXT)
_STOPPERS = Several(
    "a sequence of stoppers such as (MaxProposals(30),)",
    checks.check(
        "a stopper such as MaxProposals(30), or a function of the run's state",
        lambda value: value if callable(value) and not isinstance(value, type) else None,
    ),
    distinct=False,
)


def _thresholds(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    """Check finite numbers by name."""
    if fault := named_numbers_fault(value):
        raise ConfigError(f"{checks.path_of(owner, field)}: {fault}")


def _weights(owner: object, field: attrs.Attribute[Any], value: Mapping[str, float]) -> None:
    """Check weights by name, each above 0."""
    weights_of(value, checks.path_of(owner, field))


def _as_max_cost(amount: Decimal | float | str | None) -> Decimal | None:
    return _as_dollars("limits.max_cost", amount)


def _as_max_rollout_cost(amount: Decimal | float | str | None) -> Decimal | None:
    return _as_dollars("guards.max_rollout_cost", amount)


def _as_dollars(path: str, amount: object) -> Decimal | None:
    _MONEY.hold(path, amount)
    return _MONEY.fits(amount)


@attrs.frozen(kw_only=True)
class Limits(Settings):
    """What ends a run before its budget is used up; a run may be resumed with other limits.

    Attributes:
        max_cost: US dollars that the run may use for task, judges and reflection together; only
            calls in flight can exceed it. Needs models whose prices are known.
        max_tokens: tokens that the run may use, sent and received; only calls in flight can
            exceed it.
        max_reflections: reflections that the run may use, including repairs.
        timeout: seconds that the run may take.
        max_idle_steps: steps with nothing to learn or nothing new to evaluate, without an
            evaluated child in between, after which the run stops.
        max_failed_reflections: steps without a usable reply, without an evaluated child in
            between, after which the run stops.
        max_unscored_share: share of the rollouts that may stay unscored, 0 to 1. The run stops
            when, in any stretch of it, more than this share plus 4 are unscored: with 0.3, 6 in a
            row stop it. 0 stops at the first, 1 never stops. A candidate with more than this
            share of the validation set unscored does not win.
        stoppers: further reasons to stop, checked between steps in this order: ``MaxProposals``,
            ``NoImprovement``, ``Plateau``, ``TargetScore``, ``RequiredObjectives``,
            ``MaxCandidates``, ``StopFile``, or any function that takes a ``RunState`` and returns
            a reason in words or None.
    """

    settings_path: ClassVar[str] = "limits."

    max_cost: Decimal | None = attrs.field(
        default=None, converter=_as_max_cost, validator=checks.DOLLARS.or_none
    )
    max_tokens: int | None = attrs.field(default=None, validator=checks.COUNT.or_none)
    max_reflections: int | None = attrs.field(default=None, validator=checks.COUNT.or_none)
    timeout: float | None = attrs.field(default=None, validator=checks.SECONDS.or_none)
    max_idle_steps: int = attrs.field(default=20, validator=checks.COUNT)
    max_failed_reflections: int = attrs.field(default=5, validator=checks.COUNT)
    max_unscored_share: float = attrs.field(default=0.3, validator=checks.SHARE)
    stoppers: Sequence[Stopper] = attrs.field(default=(), validator=_STOPPERS)

    @property
    def stop_files(self) -> tuple[Path, ...]:
        """The files that end the run when they exist."""
        return tuple(stopper.path for stopper in self.stoppers if isinstance(stopper, StopFile))


def without_stop_files(limits: Limits) -> Limits:
    """Return the limits of a run that no file ends."""
    stoppers = [stopper for stopper in limits.stoppers if not isinstance(stopper, StopFile)]
    return attrs.evolve(limits, stoppers=stoppers)


@attrs.frozen(kw_only=True)
class Objectives(Settings):
    """What makes one candidate better than another.

    Attributes:
        weights: makes the score the weighted mean of objectives: ``{"score": 0.8, "tokens":
            0.2}``. ``score`` is the feedback's own; ``tokens``, ``prompt_tokens``,
            ``completion_tokens``, ``cost`` and ``seconds`` are relative to the baseline, lower is
            better; others are the feedback's objectives.
        pick: selects as winner the candidate with the highest weighted sum of objectives; if
            empty, the one with the highest score. Decides only which candidate wins, not the
            search.
        required: the lowest mean on the validation set that a winner may have in an objective.
        frontier_type: the cells in which candidates are compared when a parent is chosen:
            ``instance`` (the examples), ``objective`` (the means of the objectives), ``hybrid``
            (both) or ``cartesian`` (each objective on each example).
        perfect_score: the highest score that an answer can have, which leaves nothing to learn;
            with ``weights``, the highest weighted mean. A higher score is refused.
        num_runs: answers per rollout: a rollout makes that many calls, and its score is the mean
            of theirs. For noisy answers or judges.
        on_error: how a rollout counts if its provider failed: ``unscored`` (left out of every
            mean) or ``zero``. If a judge fails it is always unscored.
    """

    settings_path: ClassVar[str] = "objectives."

    weights: Mapping[str, float] = attrs.field(factory=FrozenMap, validator=_weights)
    pick: Mapping[str, float] = attrs.field(factory=FrozenMap, validator=_weights)
    required: Mapping[str, float] = attrs.field(factory=FrozenMap, validator=_thresholds)
    frontier_type: FrontierType = attrs.field(
        default="instance", validator=checks.one_of(*get_args(FrontierType))
    )
    perfect_score: float = attrs.field(default=1.0, validator=checks.FINITE)
    num_runs: int = attrs.field(default=1, validator=checks.COUNT)
    on_error: OnError = attrs.field(default="unscored", validator=checks.one_of(*get_args(OnError)))


@attrs.frozen(kw_only=True)
class Guards(Settings):
    """Reasons to refuse a candidate, whatever its score.

    Attributes:
        max_part_chars: longest text of a part. If the current text is longer than half of that, it
            may grow to twice its length.
        max_prompt_chars: longest rendered prompt of a candidate, with any example.
        max_copied_words: an instruction that contains this many consecutive words of a training
            answer is refused; 0 for no guard. By default 8, and no guard in the published GEPA.
        max_rollout_cost: US dollars that one rollout of a candidate may cost.
    """

    settings_path: ClassVar[str] = "guards."

    max_part_chars: int = attrs.field(
        default=6_000,
        validator=checks.integer(1, MAX_BODY_CHARS),  # the limit of stores
    )
    max_prompt_chars: int | None = attrs.field(default=None, validator=checks.COUNT.or_none)
    max_copied_words: int | None = attrs.field(default=None, validator=checks.integer(0).or_none)
    max_rollout_cost: Decimal | None = attrs.field(
        default=None, converter=_as_max_rollout_cost, validator=checks.DOLLARS.or_none
    )


@attrs.frozen
class ToolExampleTarget:
    """An example of a tool that may change.

    Attributes:
        tool_name: the tool.
        example_index: position among its examples, from 0.
    """

    tool_name: str
    example_index: int


@attrs.frozen(kw_only=True)
class Targets(Settings):
    """Further parts that may change, in addition to ``target_section_paths`` and the like.

    Attributes:
        tools: tools whose descriptions may change, by name.
        summaries: sections whose summaries may change.
        output_fields: fields of the answer whose descriptions and aliases may change:
            ``Review.severity``, or the type's name for a choice.
        visibility: sections and task examples that may be hidden, or shown again; a section of
            task examples stands for itself and for each of its examples.
    """

    settings_path: ClassVar[str] = "targets."

    tools: Sequence[str] = attrs.field(default=(), validator=_NAMES)
    summaries: Sequence[SectionPath] = attrs.field(default=(), validator=PATHS)
    output_fields: Sequence[str] = attrs.field(default=(), validator=_NAMES)
    visibility: Sequence[SectionPath] = attrs.field(default=(), validator=PATHS)


@attrs.frozen(kw_only=True)
class Data(Settings):
    """Further settings of the data.

    Attributes:
        held_out: examples that no part of the search sees. If the search completes with a winner,
            baseline and winner are evaluated on them, within the budget, and that decides whether
            the run reports *improved*. None takes about three in ten of ``training_examples``
            from their end, if there are enough of them and the budget pays for it; an empty list
            holds out none.
        shuffle: whether ``training_examples`` are shuffled by ``seed`` before they are split.
        shown_images: images of cases that one question shows to a reflection model that is known
            to see; the others are only named.
        shown_image_kb: the size in KiB from which an image is only named.
    """

    settings_path: ClassVar[str] = "data."

    held_out: Sequence[GepaExample] | None = attrs.field(
        default=None, validator=attrs.validators.optional(EXAMPLES), repr=False
    )
    shuffle: bool = attrs.field(default=False, validator=checks.FLAG)
    shown_images: int = attrs.field(default=8, validator=checks.integer(0, 100))
    shown_image_kb: int = attrs.field(default=1_024, validator=checks.COUNT)

    @property
    def showing(self) -> Mapping[str, int]:
        """The settings of images that differ from their defaults, for the fingerprint of a run."""
        usual = type(self)()
        names = ("shown_images", "shown_image_kb")
        return {
            f"data.{name}": getattr(self, name)
            for name in names
            if getattr(self, name) != getattr(usual, name)
        }
