"""A BAML function as an agent: its texts are those of a candidate, its cases are its tests."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.adapters.calling.access import one_line
from promptgraft.agents.call import AgentAnswer, AgentCall
from promptgraft.agents.faults import refusal_of
from promptgraft.agents.templates import hidden
from promptgraft.baml.arguments import arguments_of
from promptgraft.baml.functions import BamlFunction
from promptgraft.baml.judging import Judged, check_rules, judged
from promptgraft.baml.runtime import Compiled, UnreadableAnswerError, said_by
from promptgraft.baml.tests import BamlTest
from promptgraft.errors import (
    AgentFaultError,
    ConfigError,
    DataFormatError,
    PromptEvaluationError,
    TransientProviderError,
)
from promptgraft.runtime.deadline import Deadline
from promptgraft.serde import Json, digest

if TYPE_CHECKING:
    from baml_py import Collector
    from baml_py.baml_py import LLMCall, LLMStreamCall
    from baml_py.baml_py import Usage as BamlUsage

LONGEST_CALL = 600.0
"""Seconds that a call takes at most, where nothing in the project says less."""

_DIGITS, _NO_SUCCESS = 12, 300


@attrs.frozen(kw_only=True)
class BamlAgent:
    """Asks a function with the arguments of its tests, and has BAML judge what it answers.

    Attributes:
        function: the function with its files.
        tests: those of its tests that are cases, by name.
    """

    function: BamlFunction
    tests: Mapping[str, BamlTest]
    _compiled: functools._lru_cache_wrapper[Compiled] = attrs.field(
        init=False, repr=False, eq=False
    )

    def __attrs_post_init__(self) -> None:
        @functools.lru_cache(maxsize=64)
        def compiled(texts: tuple[tuple[str, str], ...]) -> Compiled:
            return Compiled.of(self.function.sources(dict(texts)), folder=self.function.folder)

        object.__setattr__(self, "_compiled", compiled)

    @property
    def name(self) -> str:
        return f"BAML function {self.function.name}"

    @property
    def identity(self) -> str:
        # Texts are the candidate's: an applied winner leaves the function what it was.
        blank = {part.key: part.key.replace("-", "_") for part in self.function.parts}
        return f"{self.name} {digest(self.function.sources(blank))[:_DIGITS]}"

    @property
    def reports_tools(self) -> bool:
        return False

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the environment that it needs."""
        return self.function.variables

    def check(self, delivery: str, names: Collection[str]) -> None:
        del names
        if delivery != "argument":
            raise ConfigError(
                "delivery: expected none, a BAML function gets its texts in memory; leave it out"
            )

    def faults(self) -> Iterator[str]:
        """Yield a line for each fault of the function and its tests, with file and line."""
        try:
            compiled = self._compiled(())
        except DataFormatError as error:
            yield from error.faults
            return
        for test in self.tests.values():
            yield from (f"{test.origin}: {line}" for line in check_rules(test.rules, test.args))
            try:
                compiled.type_builder(test.types)
                arguments_of(self.function, test)
            except ConfigError as error:
                line = str(error)
                yield line if line.startswith(test.origin) else f"{test.origin}: {line}"

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        """Answer the test that the case of a call is.

        Raises what :meth:`Agent.ask` does; ``ConfigError`` where the arguments do not fit.
        """
        del query
        test = self.tests[call.example]
        compiled = self._candidate(call.texts)
        log = self._asked(compiled, test, call.deadline)
        text = hidden(log.answer, self._secrets)
        try:
            value = compiled.parsed(self.function.name, text, test.types)
        except UnreadableAnswerError as error:
            output = _output(None, str(error), (), log.milliseconds)
        else:
            found = judged(test.rules, value, args=test.args, latency_ms=log.milliseconds)
            output = _output(value, "", found, log.milliseconds)
        return AgentAnswer(text=text, output=output, usage=log.usage)

    @property
    def _secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, (os.environ.get(name) for name in self.variables)))

    def _candidate(self, texts: Mapping[str, str]) -> Compiled:
        self._check_aliases(texts)
        try:
            return self._compiled(tuple(sorted(texts.items())))
        except DataFormatError as error:
            # Names of files mean nothing to a reflector.
            said = error.faults[0].partition(": ")[2]
            raise AgentFaultError(f"BAML does not compile the texts: {said}") from error

    def _check_aliases(self, texts: Mapping[str, str]) -> None:
        """Refuse two members of one name, which BAML takes in silence."""
        seen: dict[tuple[str, str], str] = {}
        for part in self.function.parts:
            if not part.own:
                continue
            text = texts.get(part.key, part.text)
            if (other := seen.setdefault((part.owner, text), part.key)) != part.key:
                raise AgentFaultError(f"`{part.key}` and `{other}` are the same alias, `{text}`")

    def _asked(self, compiled: Compiled, test: BamlTest, deadline: Deadline | None) -> _Log:
        from baml_py import AbortController, Collector
        from baml_py.errors import BamlError

        collector = Collector("promptgraft")
        seconds = min(LONGEST_CALL, deadline.remaining if deadline else LONGEST_CALL)
        if missing := [one for one in self.variables if not os.environ.get(one)]:
            raise ConfigError(f"the environment variable {missing[0]} is not set; export it first")
        try:
            compiled.runtime.call_function_sync(
                self.function.name,
                arguments_of(self.function, test),
                compiled.runtime.create_context_manager(),
                compiled.type_builder(test.types),
                None,
                [collector],
                {name: os.environ[name] for name in self.variables},
                None,
                AbortController(timeout_ms=max(1, int(1000 * seconds))),
            )
        except BamlError as error:
            if not _calls(collector):
                said = one_line(said_by(error), self._secrets)
                raise ConfigError(f"{test.origin}: test {test.name}: {said}") from None
        answer = collector.last.raw_llm_response if collector.last else None
        if answer is None:
            if deadline is not None:
                deadline.check()
            raise self._refusal(collector, seconds)
        return _Log.of(answer, collector)

    def _refusal(self, collector: Collector, seconds: float) -> PromptEvaluationError:
        calls = _calls(collector)
        response = calls[-1].http_response if calls else None
        if response is None:
            return TransientProviderError(f"{self.name} took longer than {seconds:.0f} seconds")
        if response.status < _NO_SUCCESS:
            return TransientProviderError(f"{self.name} got a reply that BAML cannot read")
        said = one_line(response.body.text(), self._secrets)
        return refusal_of(self.name, response.status, said)


def _calls(collector: Collector) -> Sequence[LLMCall | LLMStreamCall]:
    return collector.last.calls if collector.last else ()


@attrs.frozen(kw_only=True)
class _Log:
    """What BAML has noted of a call."""

    answer: str
    usage: Usage
    milliseconds: int

    @classmethod
    def of(cls, answer: str, collector: Collector) -> _Log:
        spent = [_usage(one.usage) for one in _calls(collector)]
        return cls(
            answer=answer,
            usage=sum(spent, start=NO_USAGE),
            milliseconds=max((one.timing.duration_ms or 0) for one in _calls(collector)),
        )


def _output(value: Json, fault: str, found: Sequence[Judged], milliseconds: int) -> dict[str, Json]:
    rules: list[Json] = [
        {
            "name": one.rule.name,
            "rule": one.rule.expression,
            "assert": one.rule.is_assert,
            "held": one.held,
            "why": one.why,
        }
        for one in found
    ]
    return {"value": value, "fault": fault, "rules": rules, "latency_ms": milliseconds}


def _usage(said: BamlUsage | None) -> Usage:
    if said is None:
        return NO_USAGE
    return Usage(
        input_tokens=said.input_tokens or 0,
        output_tokens=said.output_tokens or 0,
        cached_tokens=said.cached_input_tokens or 0,
    )
