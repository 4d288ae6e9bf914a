"""How a graph answers with the prompts of one candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from promptgraft.adapters.base import PromptResponse, ProviderAdapter
from promptgraft.errors import CallerError, CandidateError, FlowError, PromptgraftError
from promptgraft.frozenmap import FrozenMap
from promptgraft.graphs.run import Bound, Run, Setting, under_way
from promptgraft.graphs.waiting import AsyncRun, is_async
from promptgraft.prompt.rendering import Settled
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import Session, SessionProtocol
from promptgraft.serde import HexDigest, digest_text
from promptgraft.targets.part import PartOf, View
from promptgraft.targets.prompts import address_of
from promptgraft.targets.texts import response_with
from promptgraft.targets.types import GepaExample
from promptgraft.text import raised


class _PartDigests:
    """Digests of the parts of recent candidates, by the prompt as they have it."""

    def __init__(self) -> None:
        self._recent: dict[str, tuple[Settled, Mapping[str, HexDigest]]] = {}

    def __reduce__(self) -> tuple[type[_PartDigests], tuple[()]]:
        return type(self), ()

    def of(self, prompt: Prompt[object], parts: Iterable[PartOf]) -> Mapping[str, HexDigest]:
        store = prompt.overrides_store
        held = None if store is None else store.resolve(prompt.descriptor, prompt.overrides_tag)
        settled = prompt.template.settled(held)
        address = address_of(prompt)
        found = self._recent.get(address)
        # Neither changes: other threads may replace the pair, not what is in it.
        if found is None or found[0] is not settled:
            view = View(
                template=prompt.template,
                parts=settled.parts,
                max_part_chars=0,
                max_shown_chars=0,
                max_task_examples=0,
            )
            own = [part for part in parts if part.address == address and not part.is_new]
            texts = ((part.name, digest_text(part.part.text(view))) for part in own)
            found = self._recent[address] = settled, FrozenMap(texts)
        return found[1]


@attrs.frozen(kw_only=True)
class GraphFlow:
    """The flow of a graph; pickles when its functions and adapters do.

    Attributes:
        graph: name of the graph.
        function: the flow.
        nodes: ``namespace/key`` and adapter of each node with a prompt, by name.
        parts: the parts that may change.
        edges: the edges that may be taken; None for any.
        candidate_errors: exceptions of the flow that are the fault of the texts.
        max_steps: steps that an answer may take.
    """

    graph: str
    function: Callable[..., Any]
    nodes: Mapping[str, tuple[str, ProviderAdapter]]
    parts: tuple[PartOf, ...]
    edges: frozenset[tuple[str, str]] | None
    candidate_errors: tuple[type[Exception], ...]
    max_steps: int
    _digests: _PartDigests = attrs.field(factory=_PartDigests, init=False, repr=False, eq=False)

    def __call__(
        self,
        prompts: Mapping[str, Prompt[object]],
        example: GepaExample,
        *,
        session: Session,
        deadline: Deadline | None,
    ) -> PromptResponse[object]:
        """Answer an example with the prompts of one candidate; see ``Flow``."""
        return self.answer(
            prompts, example.params, case=example.id, session=session, deadline=deadline
        )

    def answer(
        self,
        prompts: Mapping[str, Prompt[object]],
        params: Sequence[object],
        *,
        case: str,
        session: SessionProtocol,
        deadline: Deadline | None,
    ) -> PromptResponse[object]:
        """Return what the flow answers; its steps are in ``session``.

        Raises:
            FlowError: the flow raised, or went where the graph does not.
            CandidateError: the answer cannot be used, or the flow raised one of
                ``candidate_errors``.
            ProviderError, LimitReachedError: a step ended with it, whatever the flow made of it.
        """
        setting = Setting(
            graph=self.graph,
            nodes={
                name: Bound(
                    prompt=prompts[address],
                    adapter=adapter,
                    parts=self._digests.of(prompts[address], self.parts),
                )
                for name, (address, adapter) in self.nodes.items()
            },
            edges=self.edges,
            max_steps=self.max_steps,
            case=case,
            deadline=deadline,
        )
        run = Run(setting, session)
        token = under_way.set(run)
        try:
            return self._answered(run, params)
        except Exception as error:
            if run.fault not in (None, error):
                raise run.fault from error
            if isinstance(error, CallerError) and not isinstance(error, FlowError):
                raise run.failed(str(error)) from error
            said = " ".join(raised(error).split())
            if isinstance(error, self.candidate_errors):
                # The reflector reads this.
                raise CandidateError(f"the program raised {said}") from error
            if isinstance(error, PromptgraftError):
                raise
            raise run.failed(f"the flow raised {said}") from error
        finally:
            under_way.reset(token)

    def _answered(self, run: Run, params: Sequence[object]) -> PromptResponse[object]:
        given = AsyncRun(run) if is_async(self.function) else run
        value = awaited(self.function(given, *params), deadline=run.deadline)
        if run.fault is not None:
            raise run.fault
        found = run.response_of(value)
        try:
            return response_with(value, "the flow") if found is None else found
        except CallerError as error:
            raise run.failed(str(error)) from None
