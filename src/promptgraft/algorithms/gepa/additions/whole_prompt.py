"""One question about all instructions, which shows all that is known of their failures.

Its reply changes the instructions that are at fault, in a graph those of several prompts. Where
there is a single instruction, or an example has its turn, the question is about that one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import ClassVar, TypeVar

import attrs

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Proposer
from promptgraft.algorithms.gepa.prompts import WHOLE, WholeParams
from promptgraft.algorithms.gepa.reflect import TRIED, Draft
from promptgraft.algorithms.gepa.select import Draws
from promptgraft.ground.serde import digest
from promptgraft.ground.strict.checks import SHARE
from promptgraft.ground.text import counted, fenced, listed
from promptgraft.search.asks import Asking, Question, Records, Reply
from promptgraft.search.reflection import (
    MetaPrompts,
    Refusal,
    examples_of,
    limits_of,
    reflection_params,
)
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.evidence import Evidence, TriedChild, in_full, label_of, tried_before
from promptgraft.targets.formatting import fenced_part, in_one_line
from promptgraft.targets.part import beside, passing, prompt_of
from promptgraft.targets.replies import edits_in, no_edit, rewritten
from promptgraft.targets.text_lines import HOW_TO_EDIT, LONG_CHARS
from promptgraft.targets.types import Candidate, Module, ModuleDescription, RolloutRecord

T = TypeVar("T")

_MOST_CHARS = 24_000
"""Most characters of all texts that one question may change, unless the first alone has more."""
_SUMMARY_CHARS = 1_000  # of a neighbour, which is there for context only
_PREVIOUS_CHARS = 60_000  # of a refused reply, which has the texts of several parts
_NAME_CHARS = 200  # blocks of parts with longer names open with a mark
_OF_SEVERAL = "; their names begin with the prompt that each belongs to"
_REMEMBERED = 60
"""Children whose fate is remembered."""


@attrs.define(slots=False)
class WholePrompt(Addition):
    """Asks one question about all instructions, which may change several of them.

    It shows up to twenty failures that are known of the parent, right answers near them, and what
    was tried on them before.

    Attributes:
        share: share of the steps, 0 to 1, in which that is tried.
    """

    name: ClassVar[str] = "whole_prompt"
    version: ClassVar[int] = 5
    example_version: ClassVar[int] = 6

    share: float = attrs.field(default=0.9, validator=SHARE)
    _draws: Draws = attrs.field(init=False, repr=False, eq=False)
    _failed: int = attrs.field(default=0, init=False, repr=False, eq=False)
    _rests: int = attrs.field(default=0, init=False, repr=False, eq=False)
    _tried: deque[TriedChild] = attrs.field(init=False, repr=False, eq=False)
    _labels: Mapping[str, str] = attrs.field(init=False, repr=False, eq=False)

    def start(self) -> None:
        kit = self.tools.kit
        self._draws = Draws(self.tools.config.seed, "whole")
        self._tried = deque(maxlen=_REMEMBERED)
        self._labels = {example.id: label_of(example.label) for example in kit.training}

    def expected_questions(self, modules: int, otherwise: float) -> float:
        return self.share + (1 - self.share) * otherwise

    def begin(self, attempt: Attempt) -> Proposer | None:
        if self._draws.at(attempt.ahead) >= self.share or self._rests:  # it backs off, see `learn`
            return None
        rollouts = tuple(self.tools.training_rollouts.of(attempt.candidate).values())
        return partial(self._propose, rollouts=rollouts, tried=tuple(self._tried))

    def _propose(
        self, attempt: Attempt, *, rollouts: Records, tried: Sequence[TriedChild]
    ) -> Asking[Changes | None]:
        """Ask about all instructions, about the only one, or about an example."""
        reflector = self.tools.reflector
        failures = self.tools.kit.scorer.split(attempt.records).failures
        if not failures:
            return None
        target, parent = self.tools.kit.target, attempt.candidate
        turn = reflector.turn(attempt)
        # Kinds with a question of their own have replies of another form.
        in_turn = [module for module in turn.first or turn.second if module.question is None]
        lineage = self._lineage(parent)
        modules = most_shown(in_turn, lineage[0])
        if modules and modules[0].is_example:  # a question is about one, in the form of its kind
            modules = modules[:1]
        # In the order of the prompt, whoever's turn it is: a model may be asked many times.
        in_order = [module for module in target.modules if module in modules]
        parts = tuple((module, target.describe(module, parent)) for module in in_order)
        if not parts:
            return None
        attempt.notes[self.name], attempt.modules = len(parts), modules
        names = {module.name for module in modules}
        history = tried_before(tried, failures, parent, lineage, in_question=names)
        kind: type[Draft] = Draft if len(parts) == 1 else WholeDraft
        records = passing(failures, modules)
        if len(parts) == 1:
            records = in_full(passing(attempt.records, modules), records)
        all_records = passing((*attempt.records, *rollouts), modules)
        evidence = self._evidence(records, all_records, history)
        draft = kind(
            reflector=reflector,
            attempt=attempt,
            parts=parts,
            records=records,
            evidence=evidence,
            shows_all=True,
        )
        yield from reflector.ask(attempt, [draft])
        # The edits that were kept beside a bad one may have been tried without it.
        changes = draft.changes
        was_tried = changes and reflector.was_tried(attempt, changes[-1].candidate)
        return () if was_tried else changes

    def _lineage(self, candidate: Candidate) -> Sequence[Mapping[str, str]]:
        """Return the texts of a candidate and of its nearest ancestors, its own first."""
        kit, lineage, positions = self.tools.kit, [candidate], list(candidate.parents)
        # The list grows while it is gone through, so that nearer ancestors come first.
        for position in islice(positions, _REMEMBERED):
            lineage.append(kit.population.pool.candidates[position])
            positions += [parent for parent in lineage[-1].parents if parent not in positions]
        modules, text = kit.target.modules, kit.target.text
        return [{module.name: text(module, member) for module in modules} for member in lineage]

    def _evidence(self, in_question: Records, rollouts: Records, history: str) -> Evidence:
        """Return what a question shows in short; of each example the first scored rollout."""
        scorer, ids = self.tools.kit.scorer, {record.example_id for record in in_question}
        by_id: dict[str, RolloutRecord] = {}
        for record in rollouts:
            if record.example_id not in ids and scorer.score(record) is not None:
                by_id.setdefault(record.example_id, record)
        shown, further = scorer.split(in_question), scorer.split(by_id.values())
        evidence = Evidence.of(shown.failures, further.failures, further.perfect, self._labels)
        return attrs.evolve(evidence, tried=history)

    def learn(self, attempt: Attempt) -> None:
        if (compared := attempt.compared) is not None:
            scorer = self.tools.kit.scorer
            failures = scorer.split(compared.batches[0]).failures
            perfect = scorer.split(compared.batches[-1]).perfect
            failed = frozenset(record.example_id for record in failures)
            child = TriedChild(
                parent=attempt.candidate.digest,
                scores=(compared.before, compared.after),
                failed=failed,
                mended=failed.intersection(record.example_id for record in perfect),
                is_better=attempt.accepted,
                edits=tuple(
                    (change.module.name, change.before.text, change.text)
                    for change in attempt.changes
                ),
            )
            self._tried.append(child)
        if not attempt.had_failures:
            return
        self._draws.popleft()
        if self.name not in attempt.notes:
            self._rests = max(0, self._rests - 1)
            return
        # Back off linearly: a model that cannot answer about several parts is asked about one.
        self._failed = 0 if attempt.changes or attempt.notes[self.name] < 2 else self._failed + 1
        self._rests = self._failed


@attrs.define(kw_only=True)
class WholeDraft(Draft):
    """The question about several parts."""

    def question(self, position: str) -> Question:
        return question_on_all(
            position,
            [description for _, description in self.parts],
            self.records,
            meta_prompts=self.reflector.meta_prompts,
            evidence=self.evidence,
            refused=self.refused,
        )

    def take(self, reply: Reply) -> None:
        self._add_edits(reply)
        child = self.changes[-1].candidate
        if not self.is_partial and self.reflector.was_tried(self.attempt, child):
            self.changes = ()
            raise InvalidProposalError(RejectionReason.DUPLICATE, TRIED)

    def _add_edits(self, reply: Reply) -> None:
        """Add the changes that a reply makes to those of an earlier one.

        An edit that cannot be used is refused alone: the others are kept, and the next question
        asks for a repair of that edit. Edits that change nothing are ignored, because models often
        repeat the parts that they find good.

        Raises:
            InvalidProposalError: no edit of the reply can be used.
        """
        self.is_partial = False
        by_mark = dict(_marked(self.parts))
        edited_modules = {change.module for change in self.changes}
        changes = list(self.changes)
        unchanged: list[InvalidProposalError] = []
        names = {part.name: mark for mark, (_, part) in _marked(self.parts)}
        read = edits_in(reply.text, names, finish_reason=reply.finish_reason)
        faults = [("", error) for error in read.faults]
        for mark, edit in read.edits.items():
            part = by_mark[mark]
            if part[0] in edited_modules:  # repeated, although it was to be left out
                continue
            onto = changes[-1].candidate if changes else self.attempt.candidate
            try:
                whole = edit.text if part[1].as_json else rewritten(part[1].text, edit.text)
                change = self.reflector.graft(self.attempt, onto, part, whole, may_be_old=True)
                changes.append(attrs.evolve(change, reason=edit.reason))
            except InvalidProposalError as error:
                if error.reason is RejectionReason.UNCHANGED:
                    unchanged.append(error)
                else:
                    faults.append((f"{mark}: ", error))
        if len(changes) == len(edited_modules):  # the reply adds nothing; one reason is enough
            raise ([error for _, error in faults] or unchanged or [no_edit()])[0]
        self.changes = tuple(changes)
        if faults:
            self.is_partial = True
            modules = {change.module for change in changes}
            used = listed(mark for mark, (module, _) in by_mark.items() if module in modules)
            detail = "; ".join(f"{where}{error.detail}" for where, error in faults)
            detail += f"; the edits of {used} are kept, so leave them out"
            refusal = InvalidProposalError(faults[0][1].reason, detail)
            self.refusals.append((refusal, reply.text))


def most_shown(modules: Sequence[Module], texts: Mapping[str, str]) -> tuple[Module, ...]:
    """Return as many of the first modules as fit into one question; the texts are by name."""
    remaining = _MOST_CHARS
    chosen: list[Module] = []
    for module in modules:
        remaining -= len(texts[module.name])
        if remaining < 0 and chosen:
            break
        chosen.append(module)
    return tuple(chosen)


def question_on_all(
    position: str,
    parts: Sequence[ModuleDescription],
    records: Sequence[RolloutRecord],
    *,
    meta_prompts: MetaPrompts,
    evidence: Evidence,
    refused: Refusal,
) -> Question:
    """Return the question that asks for new texts of the parts that are at fault.

    The other parts of their prompts are shown for context; of long ones only the beginning. The
    arguments are those of :func:`promptgraft.search.reflection.question_on`, for several parts.
    """
    marks = {part.name: mark for mark, part in _marked(parts)}
    prompts = {prompt_of(part.name) for part in parts}
    whole = attrs.evolve(
        parts[0],
        neighbours=[(name, _summary(text)) for name, text in beside(parts)],
        siblings=(),
        max_chars=_PREVIOUS_CHARS,
    )
    plain = reflection_params(whole, (), evidence=evidence, refused=refused)
    names = [_opening(mark, part.name) for mark, part in _marked(parts)]
    is_long = any(len(part.text) >= LONG_CHARS and not part.as_json for part in parts)
    of_all = {
        "part": "one or several" + (_OF_SEVERAL if len(prompts) > 1 else ""),
        "current": "\n\n".join(
            [
                *(_shown(mark, part) for mark, part in _marked(parts)),
                *filter(None, (evidence.copying,)),
            ]
        ),
        "output": _outputs(parts),
        "limits": "",
        "schema": "",
        "examples": examples_of(records, marks, evidence),
        "edits": HOW_TO_EDIT if is_long else "",
        "first": names[0],
        "second": names[-1],
    }
    params = WholeParams(**{**attrs.asdict(plain, recurse=False), **of_all})
    # A digest of the content, not of the wording, which may change without losing journals.
    texts = {part.name: part.text for part in parts}
    answers = [[record.example_id, record.output_repr] for record in records]
    content = digest([WHOLE.key, texts, answers, refused[1]])
    return Question(
        position=position,
        prompt=meta_prompts[WHOLE.key].bind(params),
        digest=content,
        records=records,
    )


def _outputs(parts: Sequence[ModuleDescription]) -> str:
    """Return the expected answers of parts, of each prompt if there are several."""
    expected = {
        prompt_of(part.name): fenced_part(part.output if part.answers is None else part.answers)
        for part in parts
    }
    if len(set(expected.values())) == 1:
        return next(iter(expected.values()))
    return "\n\n".join(f"{prompt}:\n\n{output}" for prompt, output in expected.items() if output)


def _marked(parts: Sequence[T]) -> Iterator[tuple[str, T]]:
    return ((f"P{number}", part) for number, part in enumerate(parts, start=1))


def _opening(mark: str, name: str) -> str:
    """Return what the block of a part opens with: its name, or its mark if that does not fit."""
    return name if name.isprintable() and len(name) < _NAME_CHARS and "`" not in name else mark


def _shown(mark: str, part: ModuleDescription) -> str:
    title = "" if part.title in part.name else f" ({in_one_line(part.title)})"
    text = fenced(part.text) if part.text else "It has no text yet."
    types = f"**Types:**\n\n{fenced_part(part.schema)}" if part.schema else ""
    heading = (f"**{mark}:** {in_one_line(part.name)}{title}", text, limits_of(part), types)
    return "\n\n".join(filter(None, heading))


def _summary(text: str) -> str:
    """Return a text, or the head of a long one with its number of lines."""
    if len(text) <= _SUMMARY_CHARS:
        return text
    lines = counted(len(text.splitlines()), "line")
    return f"{text[:_SUMMARY_CHARS]}\n[… the head of {lines}, {len(text)} characters …]"
