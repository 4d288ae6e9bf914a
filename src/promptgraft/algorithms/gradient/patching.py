"""Turning the gradients of parts into new texts."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TypeVar

import attrs

from promptgraft.algorithms.gradient import stages
from promptgraft.algorithms.gradient.inquiries import (
    Inquiries,
    Inquiry,
    InquiryOutcome,
    Refusal,
    read_patch,
    read_problems,
)
from promptgraft.algorithms.gradient.prompts import (
    BlockParams,
    MergeParams,
    PatchParams,
    QuestionKey,
)
from promptgraft.algorithms.gradient.tracing import Gradient
from promptgraft.evals.spending import Role
from promptgraft.ground.text import fenced, score
from promptgraft.search.acceptance import Change, Rejections
from promptgraft.search.asks import Asking, Reply, Together
from promptgraft.search.events import Emit, MutationProposed
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.place import named
from promptgraft.search.reflection import reflection_params
from promptgraft.search.round_events import (
    GradientsMerged,
    PatchWritten,
    Problem,
    QuestionUnanswered,
)
from promptgraft.search.scores import Score
from promptgraft.targets.base import InvalidProposalError, RejectionReason, Target
from promptgraft.targets.evidence import Evidence
from promptgraft.targets.formatting import fenced_part, in_one_line
from promptgraft.targets.replies import JSON_TAG, TEXT_TAG
from promptgraft.targets.types import Candidate, GepaExample, Module, ModuleDescription

T = TypeVar("T")

REMEMBERED = 3
"""How many of the latest refused texts of a part are shown."""


@attrs.frozen(kw_only=True)
class Patch:
    """A usable new text of a part.

    Attributes:
        change: the part, and the current candidate with this change alone.
        why: the model's reason.
        cases: ids of the cases whose failures led to it.
    """

    change: Change
    why: str
    cases: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Base:
    """The start of a round, from which its patches are made.

    Attributes:
        number: number of the round.
        position: position of the current candidate.
        candidate: the current candidate.
        examples: the training examples of the round.
        seen: digests of all candidates evaluated so far.
        rejections: collects refusals.
    """

    number: int
    position: int
    candidate: Candidate
    examples: Sequence[GepaExample]
    seen: Container[object]
    rejections: Rejections


@attrs.frozen(kw_only=True)
class Patcher:
    """Merges the gradients of each part, and asks for new texts.

    Attributes:
        target: the target whose parts are changed.
        inquiries: asks questions.
        guard: refuses texts that contain answers of training cases.
        most: how many gradients of a part are considered.
        emit: receives events.
        aggregate: merges problems in place of the question; None for the question.
        rewrite: writes new texts in place of the question; None for the question.
    """

    target: Target
    inquiries: Inquiries
    guard: AnswerGuard
    most: int
    emit: Emit
    aggregate: stages.Aggregate | None = None
    rewrite: stages.Rewrite | None = None
    _refused: dict[str, list[tuple[str, Score, Score]]] = attrs.field(
        factory=dict, init=False, hash=False
    )

    def merge(
        self, base: Base, gradients: Sequence[Gradient], *, share: float = 1.0
    ) -> Asking[list[GradientsMerged]]:
        """Return the problems of the parts that gradients blame.

        Args:
            base: the start of the round.
            gradients: the gradients.
            share: share of the parts that are considered, the most often blamed first.
        """
        by_module: dict[Module, list[Gradient]] = {}
        for gradient in sorted(gradients, key=lambda one: one.severity):
            by_module.setdefault(gradient.module, []).append(gradient)
        # The sort is stable: of equals, the part with the more severe gradient stays first.
        by_blame = sorted(
            by_module, key=lambda module: -len({gradient.case for gradient in by_module[module]})
        )
        most_blamed = by_blame[: max(1, round(share * len(by_module)))]
        blamed = [module for module in self.target.modules if module in most_blamed]
        chosen = {module: by_module[module][: self.most] for module in blamed}
        if self.aggregate is None:
            several = [module for module, gradients in chosen.items() if len(gradients) > 1]
            outcomes = yield from self.inquiries.ask(
                [self._merge_inquiry(base, module, chosen[module]) for module in several]
            )
        else:
            # A stage of the user's may reword even one gradient; the question would merge nothing.
            several = list(chosen)
            parts = [self._aggregated(base, *part) for part in chosen.items()]
            outcomes = yield from Together(parts)
        merged = dict(zip(several, outcomes, strict=True))
        merged_problems = []
        for module, gradients_of_module in chosen.items():
            problems = tuple(gradient.problem for gradient in gradients_of_module)
            if module in merged:
                # Without a usable reply the gradients are used unmerged.
                self._emit_unanswered(base, module, "aggregate", merged[module])
                found_problems = merged[module].found
                problems = problems if found_problems is None else found_problems
            if not problems:
                continue
            cases = tuple(dict.fromkeys(gradient.case for gradient in gradients_of_module))
            merge = GradientsMerged(
                step=base.number, module=module.name, cases=cases, problems=problems
            )
            self.emit(merge)
            merged_problems.append(merge)
        return merged_problems

    def write(self, base: Base, merged: Sequence[GradientsMerged]) -> Asking[list[Patch]]:
        """Return the usable new texts, at most one per part."""
        modules = {module.name: module for module in self.target.modules}
        pairs = []
        for pair in merged:
            module = modules[pair.module]
            pairs.append((pair, module, self.target.describe(module, base.candidate)))
        if self.rewrite is None:
            outcomes = yield from self.inquiries.ask(
                [self._patch_inquiry(base, *pair) for pair in pairs]
            )
        else:
            rewritten = [self._rewritten(base, *pair) for pair in pairs]
            outcomes = yield from Together(rewritten)
        patches = []
        for (pair, module, before), outcome in zip(pairs, outcomes, strict=True):
            for refusal in outcome.refusals:
                final = outcome.found is None and refusal is outcome.refusals[-1]
                base.rejections.add(
                    pair.module, before.text, refusal.error, text=refusal.text, final=final
                )
            if outcome.found is None:
                self._emit_unanswered(base, module, "optimize", outcome)
                continue
            patches.append(outcome.found)
            self.emit(
                PatchWritten(
                    step=base.number,
                    module=pair.module,
                    before=before.text,
                    text=outcome.found.change.text,
                    why=outcome.found.why,
                    cases=pair.cases,
                )
            )
        return patches

    def together(self, base: Base, patches: Sequence[Patch]) -> tuple[list[Patch], Candidate]:
        """Return the patches that fit together, and the current candidate with all of them."""
        compatible: list[Patch] = []
        candidate = base.candidate
        for patch in patches:
            change = patch.change
            try:
                # The first was grafted already, when its reply was read.
                candidate = (
                    self.target.graft(
                        candidate,
                        change.module,
                        change.text,
                        parents=(base.position,),
                        examples=base.examples,
                    )
                    if compatible
                    else change.candidate
                )
            except InvalidProposalError as error:
                base.rejections.add(
                    change.module.name, change.before.text, error, text=change.text, final=False
                )
                continue
            compatible.append(patch)
            self.emit(
                MutationProposed(
                    step=base.number,
                    parent=base.position,
                    module=change.module.name,
                    before=change.before.text,
                    after=change.text,
                )
            )
        modules = tuple(patch.change.module for patch in compatible)
        return compatible, attrs.evolve(candidate, modules=modules)

    def remember(self, patches: Sequence[Patch], before: Score, after: Score) -> None:
        """Remember texts that were evaluated and refused."""
        for patch in patches:
            refused = self._refused.setdefault(patch.change.module.name, [])
            refused.append((patch.change.text, before, after))
            del refused[:-REMEMBERED]

    def forget(self, patches: Sequence[Patch]) -> None:
        """Forget the refused texts of parts that have changed."""
        for patch in patches:
            self._refused.pop(patch.change.module.name, None)

    def _emit_unanswered(
        self, base: Base, module: Module, stage: str, outcome: InquiryOutcome[T]
    ) -> None:
        if outcome.failed:
            position = f"round/{base.number}/{stage}/{named(module.name)}"
            detail = outcome.refusals[-1].error.detail
            self.emit(QuestionUnanswered(step=base.number, position=position, detail=detail))

    def _aggregated(
        self, base: Base, module: Module, gradients: Sequence[Gradient]
    ) -> Asking[InquiryOutcome[tuple[Problem, ...]]]:
        """Merge the gradients of a part by the user's own stage."""
        request = stages.AggregateRequest(
            position=f"round/{base.number}/aggregate/{named(module.name)}",
            part=module.name,
            text=self.target.text(module, base.candidate),
            problems=tuple((gradient.case, gradient.problem) for gradient in gradients),
        )
        result = yield from stages.staged("aggregate", self.aggregate, request)
        position = request.position
        return InquiryOutcome(
            found=stages.results_of(Problem, result, name="aggregate", position=position)
        )

    def _rewritten(
        self, base: Base, merged: GradientsMerged, module: Module, before: ModuleDescription
    ) -> Asking[InquiryOutcome[Patch]]:
        """Write the new text of a part by the user's own stage."""
        request = stages.RewriteRequest(
            position=f"round/{base.number}/optimize/{named(merged.module)}",
            part=merged.module,
            text=before.text,
            problems=merged.problems,
            refused=tuple(self._refused.get(merged.module, ())),
        )
        result = yield from stages.staged("rewrite", self.rewrite, request)
        [new] = stages.results_of(
            stages.NewText, [result], name="rewrite", position=request.position
        )
        try:
            return InquiryOutcome(found=self._patch(base, merged, before, new, module=module))
        except InvalidProposalError as error:
            return InquiryOutcome(refusals=[Refusal(error, new.text)])

    def _patch(
        self,
        base: Base,
        merged: GradientsMerged,
        before: ModuleDescription,
        new: stages.NewText,
        *,
        module: Module,
    ) -> Patch:
        """Return a new text that has passed all checks.

        Raises:
            InvalidProposalError: it has not.
        """
        child = self.target.graft(
            base.candidate, module, new.text, parents=(base.position,), examples=base.examples
        )
        # After the target's checks, which bound the length of the text.
        self.guard.check(module, before, new.text)
        if child.digest in base.seen:
            raise InvalidProposalError(
                RejectionReason.DUPLICATE, "this text has been tried before; propose another"
            )
        change = Change(module, before, new.text, child)
        return Patch(change=change, why=new.why, cases=merged.cases)

    def _merge_inquiry(
        self, base: Base, module: Module, gradients: Sequence[Gradient]
    ) -> Inquiry[tuple[Problem, ...]]:
        position = f"round/{base.number}/aggregate/{named(module.name)}"
        described = self.target.describe(module, base.candidate)
        digested = MergeParams(
            part=in_one_line(module.name),
            current=fenced(described.text),
            said="\n\n".join(
                f"**{gradient.severity}:** of case {in_one_line(gradient.case)}\n\n"
                f"{fenced(gradient.text)}"
                for gradient in gradients
            ),
        )
        return Inquiry(
            positions=(position, f"{position}/repair"),
            key=QuestionKey.MERGE,
            params=attrs.evolve(digested, current=fenced(described.written.text or described.text)),
            role=Role.AGGREGATE,
            read=read_problems,
            digested=digested,
        )

    def _patch_inquiry(
        self, base: Base, merged: GradientsMerged, module: Module, before: ModuleDescription
    ) -> Inquiry[Patch]:
        position = f"round/{base.number}/optimize/{named(merged.module)}"
        refused = self._refused.get(merged.module, ())
        copying = "" if module.is_example else self.guard.rule
        params = patch_params(before, merged.problems, refused, copying=copying)
        # Journals hold digests of these parameters only; the digest must not change.
        bare = patch_params(before.as_digested, merged.problems, refused)
        former = {field.name: getattr(bare, field.name) for field in attrs.fields(PatchParams)}

        def read(reply: Reply) -> Patch:
            new = stages.NewText(*read_patch(reply, before, tag=params.tag))
            return self._patch(base, merged, before, new, module=module)

        return Inquiry(
            positions=(f"{position}/0", f"{position}/1"),
            key=QuestionKey.PATCH,
            params=params,
            role=Role.OPTIMIZE,
            read=read,
            digested=PatchParams(**{**former, "output": fenced_part(before.output)}),
        )


def patch_params(
    before: ModuleDescription,
    problems: Sequence[Problem],
    refused: Sequence[tuple[str, Score, Score]] = (),
    copying: str = "",
) -> BlockParams:
    """Return the parameters of the question for a new text of a part."""
    plain = reflection_params(before, (), evidence=Evidence(copying=copying))
    return BlockParams(
        part=plain.part,
        limits=plain.limits,
        current=fenced(before.text) if before.text else "It has no text yet.",
        schema=plain.schema,
        output=plain.output,
        neighbours=plain.neighbours,
        problems="\n\n".join(
            f"**{problem.severity}:**\n\n{fenced(problem.text)}" for problem in problems
        ),
        refused="\n\n".join(
            f"**Score:** {score(after)}, the present text has {score(now)}\n\n{fenced_part(text)}"
            for text, now, after in refused
        ),
        edits=plain.edits,
        tag=JSON_TAG if before.as_json else TEXT_TAG,
    )
