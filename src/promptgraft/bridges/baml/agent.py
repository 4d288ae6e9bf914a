"""A BAML function as an agent that answers the cases of its tests."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial

import attrs

from promptgraft.adapters.base import ProviderAdapter, adapter_identity
from promptgraft.adapters.calling.adapter import ModelAdapter
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.calling.turns import Turn
from promptgraft.agents.call import AgentAnswer, AgentCall
from promptgraft.bridges.baml.calls import BamlCall, Environment, arguments_of, messages_of
from promptgraft.bridges.baml.flows import FlowCall
from promptgraft.bridges.baml.functions import BamlFunction
from promptgraft.bridges.baml.judging import check_rules
from promptgraft.bridges.baml.runtime import CompiledProject
from promptgraft.bridges.baml.tests import BamlTest
from promptgraft.errors import AgentFaultError, ConfigError, DataFormatError
from promptgraft.ground.serde import digest
from promptgraft.ground.text import listed
from promptgraft.prompt.schema import JsonObject

_DIGITS = 12
_OUTPUT_FORMAT = re.compile(r"\{\{-?\s*ctx\.output_format\b")


@attrs.frozen(kw_only=True)
class BamlAgent:
    """Calls a function with the arguments of its tests, and has BAML check the answers.

    Attributes:
        function: the function with its files.
        tests: the tests that serve as cases, by name.
        model: makes the model that answers; None for the client of the BAML project.
        policy: retries of calls by the client of the BAML project.
    """

    function: BamlFunction
    tests: Mapping[str, BamlTest]
    model: Callable[[], ProviderAdapter] | None = None
    policy: RetryPolicy = attrs.field(factory=RetryPolicy)

    @property
    def name(self) -> str:
        return f"BAML function {self.function.name}"

    @property
    def identity(self) -> str:
        # Without the texts, so that applying a winner does not change the identity.
        blank = {part.key: part.key.replace("-", "_") for part in self.function.parts}
        model_identity = f" {model.identity}" if (model := self._made()) else ""
        return f"{self.name} {digest(self.function.sources(blank))[:_DIGITS]}{model_identity}"

    @property
    def reports_tools(self) -> bool:
        # A flow reports its calls, as other agents do those of tools.
        return self.function.is_flow

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that it needs."""
        return self.function.variables if self.model is None else ()

    def check(self, delivery: str, names: Collection[str]) -> None:
        del names
        if delivery != "argument":
            raise ConfigError(
                "delivery: expected none, a BAML function gets its texts in memory; leave it out"
            )

    def faults(self) -> tuple[str, ...]:
        """Return a line for each fault of the function, with file and line."""
        try:
            self._compiled(frozenset())
        except DataFormatError as error:
            return error.faults
        except AgentFaultError as error:
            return (f"{self.function.folder}: {error}",)
        return ()

    def test_faults(self) -> tuple[str, ...]:
        """Return a line for each fault of the tests of a function without faults of its own."""
        compiled = self._compiled(frozenset())
        lines = [line for test in self.tests.values() for line in self._faults_of(test, compiled)]
        return tuple(lines) or self._refused_tests()

    def _faults_of(self, test: BamlTest, compiled: CompiledProject) -> Iterator[str]:
        yield from (f"{test.origin}: {line}" for line in check_rules(test.rules, test.args))
        try:
            compiled.type_builder(test.types)
            arguments_of(self.function, test)
        except ConfigError as error:
            line = str(error)
            yield line if line.startswith(test.origin) else f"{test.origin}: {line}"

    def _refused_tests(self) -> tuple[str, ...]:
        """Return the faults that BAML finds in tests: a single ``@assert`` would judge nothing."""
        sources = self.function.sources({}, tests=self.tests.values())
        try:
            CompiledProject.of(sources, folder=self.function.folder)
        except DataFormatError as error:
            return error.faults
        return ()

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        """Answer the test that belongs to the case of a call.

        Raises what :meth:`Agent.ask` does, and ``ConfigError`` if the arguments do not fit.
        """
        del query
        baml_call = BamlCall(
            function=self.function,
            compiled=self._candidate(call.texts),
            test=self.tests[call.example],
            asked=call,
        )
        model = self._made()
        if self.function.is_flow:
            return FlowCall(baml_call, partial(self._turn, model)).answer()
        if model:
            return baml_call.by_model(model)
        return baml_call.by_own_client(self._environment, self.policy)

    def _turn(self, model: ModelAdapter | None, baml_call: BamlCall) -> Turn:
        if model is None:
            return baml_call.turn_of_client(self._environment, self.policy)
        return baml_call.turn_of_model(model)

    def messages(
        self, texts: Mapping[str, str], test: str, *, provider: str = "openai-generic"
    ) -> JsonObject:
        """Return the messages that BAML would send for a test, without sending them.

        Raises:
            AgentFaultError: the texts do not compile.
            ConfigError: the arguments do not fit, or the function is a flow.
        """
        if self.function.is_flow:
            raise ConfigError(
                f"{self.name} is a flow: what its functions send depends on their answers; "
                f"render one of {listed(self.function.asked)}"
            )
        compiled = self._candidate(texts)
        return messages_of(self.function, compiled, self.tests[test], provider=provider)

    def answers(self, texts: Mapping[str, str]) -> str:
        """Return what the function declares of its answers, and how its prompt describes them."""
        declared = self.function.declared(texts)
        output_format = self._output_format(texts)
        return (
            f"{declared}\nThe prompt describes it as:\n\n{output_format}\n"
            if output_format
            else declared
        )

    def _output_format(self, texts: Mapping[str, str]) -> str:
        """Return the output format as BAML writes it; empty if the prompt does not show it."""
        prompt = self.function.parts[0]
        tag = next((tag_text for tag_text in prompt.tags if _OUTPUT_FORMAT.match(tag_text)), "")
        if not tag or not self.tests or self.function.is_flow:
            return ""
        try:
            messages = self.messages({**texts, prompt.key: tag}, next(iter(self.tests)))
        except (AgentFaultError, ConfigError):  # rollouts of the texts say why
            return ""
        match messages.get("messages"):
            case [{"content": str(text)}] | [{"content": [{"text": str(text)}]}]:
                return text.strip()
        return ""

    def _made(self) -> ModelAdapter | None:
        adapter = None if self.model is None else self.model()
        if adapter is None or isinstance(adapter, ModelAdapter):
            return adapter
        raise ConfigError(
            f"models.task: expected a model over HTTP in place of the client of {self.name}, found "
            f"{adapter_identity(adapter)}"
        )

    @cached_property
    def _environment(self) -> Environment:
        return Environment.of(self.function)

    @cached_property
    def _compiled(self) -> Callable[[frozenset[tuple[str, str]]], CompiledProject]:
        @functools.lru_cache(maxsize=64)
        def compiled(texts: frozenset[tuple[str, str]]) -> CompiledProject:
            self._check_aliases(dict(texts))
            sources = self.function.sources(dict(texts))
            return CompiledProject.of(sources, folder=self.function.folder)

        return compiled

    def _candidate(self, texts: Mapping[str, str]) -> CompiledProject:
        try:
            return self._compiled(frozenset(texts.items()))
        except DataFormatError as error:
            # File names are of no use to the reflection model.
            message = error.faults[0].partition(": ")[2]
            raise AgentFaultError(f"BAML does not compile the texts: {message}") from error

    def _check_aliases(self, texts: Mapping[str, str]) -> None:
        """Refuse two members with the same alias, which BAML accepts silently."""
        owners: dict[tuple[str, str], str] = {}
        for part in self.function.parts:
            if not part.own:
                continue
            text = texts.get(part.key, part.text)
            if (other_key := owners.setdefault((part.owner, text), part.key)) != part.key:
                raise AgentFaultError(
                    f"`{part.key}` and `{other_key}` are the same alias, `{text}`"
                )
