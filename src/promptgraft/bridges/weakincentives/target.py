"""A weakincentives prompt as a target: it runs through its own adapter and store."""

from __future__ import annotations

import copy
import math
import re
import sys
import textwrap
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from string import Template
from typing import Any

import attrs

from promptgraft import errors
from promptgraft.adapters.base import PromptResponse
from promptgraft.evals.spending import AbandonedRolloutError, Role, Spending
from promptgraft.ground.environment import check_package
from promptgraft.ground.functions import function_identity
from promptgraft.ground.serde import Json, did_you_mean, shown
from promptgraft.ground.text import listed
from promptgraft.overrides.types import Provenance
from promptgraft.runtime.deadline import Deadline
from promptgraft.targets.base import (
    Identity,
    InvalidProposalError,
    RejectionReason,
    TextTarget,
    check_length,
)
from promptgraft.targets.formatting import (
    default_example_formatter,
    expected_text,
    show_value,
)
from promptgraft.targets.prompt_rollout import feedback_from
from promptgraft.targets.types import (
    Candidate,
    GepaExample,
    Module,
    ModuleDescription,
    RolloutFeedback,
    RolloutRecord,
)

MAX_TOOL_CHARS = 200
"""The maximum length of a tool description in weakincentives."""

_EXAMPLES = re.compile(r"\b(tool|task)[ _-]*examples?\b", re.IGNORECASE)
_ASCII = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "..."})


@attrs.frozen
class SectionBody(Module):
    """The body of a section, in the language of ``string.Template``."""

    path: tuple[str, ...]
    kind = "section"

    @property
    def name(self) -> str:
        return f"section {'/'.join(self.path)}"


@attrs.frozen
class ToolDescription(Module):
    """The description of a tool."""

    tool: str
    kind = "tool"

    @property
    def name(self) -> str:
        return f"tool {self.tool}"


Part = SectionBody | ToolDescription


def sources_of(prompt: Any, parts: Sequence[str] | None) -> Mapping[Part, str]:
    """Return the parts that may change, with their texts in the source.

    Args:
        prompt: the ``Prompt``.
        parts: names of the parts that may change; None for all that accept overrides.

    Raises:
        ConfigError: a name is unknown, or no part accepts overrides.
    """
    sources = dict(_overridable(prompt))
    by_name = {part.name: part for part in sources}
    for name in parts or ():
        if name not in by_name:
            if _EXAMPLES.search(name):
                raise errors.ConfigError(
                    f"parts: `{name}` is not a part: weakincentives {version('weakincentives')} "
                    "keeps overrides of tool and task examples and does not render them; leave it "
                    "out"
                )
            near = did_you_mean(name, list(by_name))
            raise errors.ConfigError(f"parts: no part `{name}`{near}; there are {listed(by_name)}")
    chosen = {part: text for part, text in sources.items() if parts is None or part.name in parts}
    if not chosen:
        raise errors.ConfigError("parts: expected a part that accepts overrides, found none")
    return chosen


def _overridable(prompt: Any) -> Iterator[tuple[Part, str]]:
    paths = {section.path for section in prompt.descriptor.sections}
    tools = {tool.name for tool in prompt.descriptor.tools}
    for node in prompt.sections:
        if node.path in paths:
            yield SectionBody(node.path), _plain(node.section.original_body_template())
        for tool in node.section.tools():
            if tool.name in tools:
                yield ToolDescription(tool.name), tool.description


def _plain(body: str) -> str:
    """Return the body of a section without common indentation, as weakincentives renders it."""
    return textwrap.dedent(body).strip()


def text_in(override: Any, part: Part) -> str | None:
    """Return the text of a part in a weakincentives override; None if it has none."""
    if isinstance(part, ToolDescription):
        tool = override.tool_overrides.get(part.tool)
        return None if tool is None else tool.description
    section = override.sections.get(part.path)
    return None if section is None else _plain(section.body)


def override_with(base: Any, texts: Mapping[Part, str | None], *, descriptor: Any, tag: str) -> Any:
    """Return a weakincentives override with new texts.

    Args:
        base: the override to start from, whose other entries are kept; None for an empty one.
        texts: the text of each part; None for that of the source.
        descriptor: the descriptor of the prompt.
        tag: the tag of the new override.
    """
    from weakincentives.prompt.overrides import PromptOverride

    sections = dict(base.sections) if base else {}
    tools = dict(base.tool_overrides) if base else {}
    for part, text in texts.items():
        if isinstance(part, ToolDescription):
            _put_tool(tools, part, text, descriptor)
        else:
            _put_section(sections, part, text, descriptor)
    return PromptOverride(
        ns=descriptor.ns,
        prompt_key=descriptor.key,
        tag=tag,
        sections=sections,
        tool_overrides=tools,
        task_example_overrides=base.task_example_overrides if base else (),
    )


def _put_section(
    sections: dict[tuple[str, ...], Any], part: SectionBody, text: str | None, descriptor: Any
) -> None:
    from weakincentives.prompt.overrides import SectionOverride

    removed = sections.pop(part.path, None)
    if text is not None:
        [content_hash] = [
            section.content_hash for section in descriptor.sections if section.path == part.path
        ]
        sections[part.path] = SectionOverride(
            path=part.path,
            expected_hash=content_hash,
            body=text,
            summary=removed and removed.summary,
            visibility=removed and removed.visibility,
        )


def _put_tool(
    tools: dict[str, Any], part: ToolDescription, text: str | None, descriptor: Any
) -> None:
    from weakincentives.prompt.overrides import ToolOverride

    removed = tools.pop(part.tool, None)
    parameters = dict(removed.param_descriptions) if removed else {}
    # Descriptions of parameters are not ours to change, so they outlive the description.
    if text is not None or parameters:
        [contract_hash] = [
            tool.contract_hash for tool in descriptor.tools if tool.name == part.tool
        ]
        tools[part.tool] = ToolOverride(
            name=part.tool,
            expected_contract_hash=contract_hash,
            description=text,
            param_descriptions=parameters,
        )


def placeholders_in(template: str) -> tuple[str, ...]:
    """Return the placeholders of a template as written, each once."""
    placeholders = {_named(match): match[0] for match in Template.pattern.finditer(template)}
    return tuple(marker for name, marker in placeholders.items() if name)


def fitting(part: Part, source: str, proposal: str) -> str:
    """Return a proposal in a form that weakincentives accepts.

    In a section, every ``$`` that does not begin a placeholder of the source becomes literal. In
    the description of a tool, characters with an ASCII equivalent are replaced.

    Raises:
        InvalidProposalError: it is empty or too long, has characters that are not allowed, or
            lost a placeholder.
    """
    text = proposal.strip()
    if not text:
        raise InvalidProposalError(RejectionReason.EMPTY, "the text is empty")
    if isinstance(part, ToolDescription):
        return _in_ascii(text)
    return _literal_but(text, placeholders_in(source))


def _literal_but(text: str, placeholders: Sequence[str]) -> str:
    names = {marker.strip("${}"): marker for marker in placeholders}
    names_kept = set()

    def literal(match: Any) -> str:
        name = _named(match)
        if name in names:
            names_kept.add(name)
        return str(match[0] if name in names or match["escaped"] else f"${match[0]}")

    escaped = Template.pattern.sub(literal, text)
    if lost := [marker for name, marker in names.items() if name not in names_kept]:
        raise InvalidProposalError(
            RejectionReason.LOST_PLACEHOLDER, f"the text has lost {listed(lost)}"
        )
    return escaped


def _named(match: Any) -> str:
    return str(match["named"] or match["braced"] or "")


def _in_ascii(text: str) -> str:
    # Typographic characters are what models write unasked; others need a new text.
    folded = unicodedata.normalize("NFKC", text.translate(_ASCII))
    if odd := sorted({char for char in folded if not char.isascii()}):
        raise InvalidProposalError(
            RejectionReason.UNUSABLE_TEXT,
            f"the description of a tool is ASCII; write it without {' '.join(odd[:10])}",
        )
    check_length(folded, MAX_TOOL_CHARS)
    return folded


OLDEST = "0.27"
"""The oldest supported version of weakincentives."""

SHORTEST = 1.1
"""Minimum of seconds to a deadline; weakincentives refuses less than one."""

Feedback = Callable[[GepaExample, Any, Any], RolloutFeedback | Awaitable[RolloutFeedback]]
"""Scores a ``PromptResponse`` of weakincentives, and sees its ``Session``; may be ``async``."""


class WeakIncentivesTarget(TextTarget):
    """A weakincentives prompt and the adapter that answers it; pass it to ``optimize``.

    Its parts are the bodies of sections and the descriptions of tools that accept overrides. Each
    rollout has its own session and its own copy of the prompt. The winner is written to a
    weakincentives overrides store, and rendered from there without promptgraft.

    Args:
        prompt: the ``Prompt``, with the parameters that all examples share; it is never changed.
        adapter: the ``ProviderAdapter`` that answers it. Called from several threads if the
            context has an executor.
        feedback_fn: scores an answer, with a reason.
        store: a weakincentives ``PromptOverridesStore``: its overrides are the starting point, and
            the winner is written to it. By default that of the prompt; without a store, the winner
            is in the result only.
        tag: the tag in that store; by default that of the prompt.
        parts: the parts that may change, such as ``section rules`` or ``tool search``; None for
            all.

    Attributes:
        texts: the text of each part at the start of the run, by name.

    Raises:
        ConfigError: weakincentives is missing or too old, ``parts`` has an unknown name, or no
            part of the prompt accepts overrides.
    """

    def __init__(
        self,
        prompt: Any,
        adapter: Any,
        *,
        feedback_fn: Feedback,
        store: Any = None,
        tag: str | None = None,
        parts: Sequence[str] | None = None,
    ) -> None:
        check_installed()
        self._prompt, self._adapter, self._feedback_fn = prompt, adapter, feedback_fn
        self._store = prompt.overrides_store if store is None else store
        self._tag = prompt.overrides_tag if tag is None else tag
        self._sources = sources_of(prompt, parts)
        self._base = self._kept()
        self.texts: dict[str, str] = self._texts_with(self._base)

    @property
    def identity(self) -> Identity:
        return Identity(
            name=f"{self._prompt.ns}/{self._prompt.key}",
            model=self._adapter.adapter_name,
            details={"prompt": _hashes(self._prompt.descriptor)},
            functions={"feedback_fn": function_identity(self._feedback_fn)},
        )

    @property
    def modules(self) -> tuple[Module, ...]:
        return tuple(self._sources)

    def source(self, module: Module) -> str:
        return self.texts[module.name]

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        described = super().describe(module, candidate)
        if isinstance(module, ToolDescription):
            return attrs.evolve(described, max_chars=MAX_TOOL_CHARS)
        return attrs.evolve(described, placeholders=placeholders_in(self._of_source(module)[1]))

    def graft(
        self,
        candidate: Candidate,
        module: Module,
        proposal: str,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
    ) -> Candidate:
        text = fitting(*self._of_source(module), proposal)
        return super().graft(candidate, module, text, parents=parents, examples=examples)

    def check(self, examples: Sequence[GepaExample]) -> None:
        from weakincentives.prompt import PromptError

        baseline = self.baseline()
        for example in examples:
            try:
                self._with(baseline).bind(*example.params).render()
            except PromptError as error:
                raise errors.ConfigError(f"example `{example.id}`: {_line(error)}") from error

    @property
    def in_force(self) -> Json:
        return dict(self.texts)

    def over(self, in_force: Json) -> WeakIncentivesTarget:
        if not isinstance(in_force, dict) or in_force.keys() != self.texts.keys():
            raise errors.DataFormatError(
                f"expected a text for each part of {self.identity.name}, found {shown(in_force)}"
            )
        target = copy.copy(self)
        target.texts = {name: str(text) for name, text in in_force.items()}
        return target

    def rollout(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        from weakincentives.errors import DeadlineExceededError, PromptEvaluationError
        from weakincentives.prompt import PromptError
        from weakincentives.runtime.session import Session

        if deadline is not None:
            deadline.check()
        session = Session(tags={"scope": "rollout", "example": example.id})
        # A copy, because handlers of tools may change the parameters.
        copied = example.copy()
        prompt = self._with(candidate).bind(*copied.params)
        try:
            with prompt.resources:
                response = self._adapter.evaluate(
                    prompt, session=session, deadline=_deadline_of(deadline)
                )
        except PromptError as error:
            return self._record(copied, None, session, _unusable(error), fault=_line(error))
        except (DeadlineExceededError, PromptEvaluationError) as error:
            if deadline is not None:
                deadline.check()
            # Before a model has answered, a fault says nothing about the candidate.
            answered = getattr(error, "phase", "request") != "request"
            feedback = _unusable(error) if answered else None
            return self._record(copied, None, session, feedback, fault=_line(error))
        try:
            feedback = feedback_from(
                lambda: self._feedback_fn(copied, response, session), copied, deadline=deadline
            )
        except (errors.TransientProviderError, errors.RejectedRequestError) as error:
            # A failure of a judge says nothing about the answer.
            return self._record(copied, response, session, None, fault=_line(error))
        except errors.PromptgraftError as error:
            spent = _spent(session, self._adapter.adapter_name)
            raise AbandonedRolloutError(error, spent) from error
        return self._record(copied, response, session, feedback)

    def persist(
        self, candidate: Candidate, provenance: Provenance, *, pool: Sequence[Candidate]
    ) -> bool:
        # Without the provenance, which their files have no place for.
        if self._store is None:
            return False
        kept_changes = self._kept()
        texts = self._texts_with(kept_changes)
        # A resumed run may find a candidate there that it has written itself.
        if texts != self.texts and not any(texts == dict(candidate.changes) for candidate in pool):
            raise errors.StoreError(
                f"{self.identity.name}: tag `{self._tag}` was changed by another process during "
                "the run; the winner is in the result"
            )
        self._store.upsert(self._prompt.descriptor, self._override(candidate, kept_changes))
        return True

    def _record(
        self,
        example: GepaExample,
        response: Any,
        session: Any,
        feedback: RolloutFeedback | None,
        *,
        fault: str = "",
    ) -> RolloutRecord:
        answer = response and PromptResponse(text=response.text or "", output=response.output)
        inputs, output = default_example_formatter(example, answer)
        return RolloutRecord(
            example_id=example.id,
            inputs_repr=inputs,
            output_repr=output,
            expected_repr=expected_text(example),
            tool_trace_repr=_trace(session),
            feedback=feedback,
            fault=fault,
            spent=_spent(session, self._adapter.adapter_name),
        )

    def _of_source(self, module: Module) -> tuple[Part, str]:
        """Return a part with its text in the source."""
        [part_text] = [(part, text) for part, text in self._sources.items() if part == module]
        return part_text

    def _kept(self) -> Any:
        """Return the override in the store, if there is one."""
        if self._store is None:
            return None
        return self._store.resolve(self._prompt.descriptor, self._tag)

    def _texts_with(self, override: Any) -> dict[str, str]:
        """Return the text of each part under an override, by name."""
        return {
            part.name: (override and text_in(override, part)) or source
            for part, source in self._sources.items()
        }

    def _with(self, candidate: Candidate) -> Any:
        """Return a copy of the prompt that renders the candidate."""
        # Shallow: sections and tools are shared, and only the store differs.
        prompt = copy.copy(self._prompt)
        prompt.overrides_store = _Holding(self._override(candidate, self._base))
        return prompt

    def _override(self, candidate: Candidate, base: Any) -> Any:
        """Return ``base`` with the texts of the candidate."""
        changes = {part: str(candidate.changes[part.name]) for part in self._sources}
        return override_with(
            base,
            {part: None if text == self._sources[part] else text for part, text in changes.items()},
            descriptor=self._prompt.descriptor,
            tag=self._tag,
        )


@attrs.frozen
class _Holding:
    """A weakincentives overrides store with the override of one candidate."""

    override: Any = attrs.field(hash=False)

    def resolve(self, descriptor: Any, tag: str = "latest") -> Any:
        return self.override


def check_installed() -> None:
    """Check the versions of Python and weakincentives.

    Raises:
        ConfigError: one is missing or too old; names the installed and the required version.
    """
    if sys.version_info < (3, 12, 2):
        version = ".".join(map(str, sys.version_info[:3]))
        raise errors.ConfigError(f"weakincentives needs Python 3.12.2 or newer, found {version}")
    check_package("weakincentives", OLDEST, extra="weakincentives", what="WeakIncentivesTarget")


def _hashes(descriptor: Any) -> Json:
    """Return the hashes to which overrides are bound, by part."""
    sections = {
        "/".join(section.path): str(section.content_hash) for section in descriptor.sections
    }
    return {**sections, **{tool.name: str(tool.contract_hash) for tool in descriptor.tools}}


def _deadline_of(deadline: Deadline | None) -> Any:
    from weakincentives.deadlines import Deadline as Theirs

    if deadline is None or deadline.remaining == math.inf:
        return None
    return Theirs(datetime.now(UTC) + timedelta(seconds=max(deadline.remaining, SHORTEST)))


def _unusable(error: Exception) -> RolloutFeedback:
    return RolloutFeedback(0.0, f"The answer could not be used: {_line(error)}")


def _trace(session: Any) -> str:
    from weakincentives.runtime.events import ToolInvoked

    return "\n".join(
        f"{call.name}({show_value(call.params, indent=None)}) -> {call.rendered_output}"
        for call in session[ToolInvoked].all()
    )


def _spent(session: Any, model: str) -> tuple[Spending, ...]:
    from weakincentives.runtime.events import PromptExecuted

    used = [event.usage for event in session[PromptExecuted].all()]
    return tuple(
        Spending(
            role=Role.TASK,
            model=model,
            input_tokens=(usage and usage.input_tokens) or 0,
            output_tokens=(usage and usage.output_tokens) or 0,
            cached_tokens=(usage and usage.cached_tokens) or 0,
            cost=None,
        )
        for usage in used or [None]
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
