"""Targets that users write: each result is checked, and each exception says where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import attrs

from promptgraft.errors import CallerError, PromptgraftError, user_errors
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.text import raised
from promptgraft.overrides.types import Provenance
from promptgraft.runtime.deadline import Deadline
from promptgraft.targets.base import Identity, Target
from promptgraft.targets.estimating import Estimate
from promptgraft.targets.types import (
    Candidate,
    GepaExample,
    Module,
    ModuleDescription,
    RolloutRecord,
)

T = TypeVar("T")


@attrs.frozen
class OwnTarget(Target):
    """A target written by a user; errors name the class, the method and the part.

    The results of ``rollout`` and ``persist`` are checked by their callers.
    """

    target: Target

    @property
    def identity(self) -> Identity:
        with self._named("identity"):
            return _expected(Identity, self.target.identity)

    @property
    def modules(self) -> tuple[Module, ...]:
        with self._named("modules"):
            return tuple(_expected(Module, module) for module in self.target.modules)

    def baseline(self) -> Candidate:
        with self._named("baseline"):
            return _expected(Candidate, self.target.baseline())

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        with self._named("describe", module, candidate.parents):
            return _expected(ModuleDescription, self.target.describe(module, candidate))

    def text(self, module: Module, candidate: Candidate) -> str:
        with self._named("text", module, candidate.parents):
            return _expected(str, self.target.text(module, candidate))

    def has_room(self, module: Module, candidate: Candidate) -> bool:
        with self._named("has_room", module, candidate.parents):
            return self.target.has_room(module, candidate)

    def graft(
        self,
        candidate: Candidate,
        module: Module,
        proposal: str,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
    ) -> Candidate:
        with self._named("graft", module, parents):
            grafted = self.target.graft(
                candidate, module, proposal, parents=parents, examples=examples
            )
            return _expected(Candidate, grafted)

    def merge(
        self,
        base: Candidate,
        first: Candidate,
        second: Candidate,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
        keep_both: bool = False,
    ) -> Candidate:
        with self._named("merge", parents=parents):
            merged = self.target.merge(
                base, first, second, parents=parents, examples=examples, keep_both=keep_both
            )
            return _expected(Candidate, merged)

    def additions(self, candidate: Candidate) -> Mapping[tuple[str, ...], str]:
        with self._named("additions", parents=candidate.parents):
            return _expected(Mapping, self.target.additions(candidate))

    def estimate(self, examples: Sequence[GepaExample]) -> Estimate:
        with self._named("estimate"):
            return _expected(Estimate, self.target.estimate(examples))

    def check(self, examples: Sequence[GepaExample]) -> None:
        # Texts of candidates are kept by these names.
        names = [module.name for module in self.modules]
        if not names or len(set(names)) < len(names):
            raise CallerError(
                f"target {type(self.target).__name__}: `modules`: expected at least one part, and "
                f"different names, found {shown(names)}"
            )
        with self._named("check"):
            self.target.check(examples)

    @property
    def in_force(self) -> Json:
        with self._named("in_force"):
            return self.target.in_force

    def over(self, in_force: Json) -> Target:
        with self._named("over"):
            return OwnTarget(_expected(Target, self.target.over(in_force)))

    def rollout(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        return self.target.rollout(candidate, example, deadline)

    def persist(
        self, candidate: Candidate, provenance: Provenance, *, pool: Sequence[Candidate]
    ) -> bool:
        return self.target.persist(candidate, provenance, pool=pool)

    @contextmanager
    def _named(
        self, method: str, module: Module | None = None, parents: tuple[int, ...] = ()
    ) -> Iterator[None]:
        """Convert an exception of a method; promptgraft's own, such as a refused text, pass."""
        try:
            yield
        except PromptgraftError:
            raise
        except user_errors() as error:
            about = [f"part `{module.name}`"] if module else []
            if parents:
                about.append(f"a child of candidate {' and '.join(map(str, parents))}")
            place = f" ({', '.join(about)})" if about else ""
            message = (
                str(error) if isinstance(error, _WrongResultError) else f"raised {raised(error)}"
            )
            raise CallerError(
                f"target {type(self.target).__name__}: `{method}`{place} {message}"
            ) from error


class _WrongResultError(Exception):
    """A method returned a value of the wrong type."""


def _expected(kind: type[object], value: T) -> T:
    if not isinstance(value, kind):
        raise _WrongResultError(f"returned {shown(value)}; expected a {kind.__name__}")
    return value
