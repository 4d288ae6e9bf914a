"""The data of a report as plain values, gathered from a run directory."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import attrs
from msgspec.structs import replace

from promptgraft.ground.content import IMAGE_TYPES, media_type_of, names_in, size_of
from promptgraft.ground.strict import structure
from promptgraft.ground.text import moment
from promptgraft.journal.file import kept_file
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.overrides.types import PromptOverride
from promptgraft.runs.comparing import fingerprint_of
from promptgraft.runs.folder import RunFolder, read_document
from promptgraft.runs.history import RoundSummary
from promptgraft.runs.pages import reasons_of
from promptgraft.runs.reading import RunRecord, read_run, transcripts
from promptgraft.search.events import CandidateAdded, CaseTaught, MergeRejected, MutationRejected
from promptgraft.search.frontier import Frontier
from promptgraft.search.ledger import LedgerEntry, unanswered_in
from promptgraft.search.place import Phase
from promptgraft.search.verdict import NO_SIDES, HeldOut, PassingSides, RunVerdict
from promptgraft.targets.part import named_in
from promptgraft.targets.types import RolloutRecord, read_changes

_SIDE = 160
_SMALL = 4 * 1024
"""Bytes up to which an image is shown as it is."""
_SMALL_ALONE = 24 * 1024
"""The same where no thumbnail can be made."""
_MOST_PIXELS = 50_000_000
_MOST = 400
"""Thumbnails of one report."""


def thumbnails(folder: Path, texts: Iterable[str]) -> Mapping[str, str]:
    """Return ``data:`` addresses of the images that texts name, by name.

    Args:
        folder: the folder of kept files; it need not exist.
        texts: the texts, of which only the first few hundred images are shown.
    """
    by_name: dict[str, str] = {}
    if not folder.is_dir():
        return by_name
    for name in (name for text in texts for name in names_in(text)):
        if len(by_name) == _MOST:
            break
        path = None if name in by_name else kept_file(folder, name[-17:-1])
        address = "" if path is None else _thumbnail(path.read_bytes())
        if address:
            by_name[name] = address
    return by_name


def _thumbnail(data: bytes) -> str:
    media_type = media_type_of(data)
    pixels = size_of(data)
    if media_type not in IMAGE_TYPES or pixels is None or pixels[0] * pixels[1] > _MOST_PIXELS:
        return ""
    if len(data) > _SMALL and find_spec("PIL") is not None:
        return _made_smaller(data)
    return _address(media_type, data) if len(data) <= _SMALL_ALONE else ""


def _made_smaller(data: bytes) -> str:
    from PIL import Image  # takes its time, and is not there everywhere

    try:
        with Image.open(io.BytesIO(data), formats=["PNG", "JPEG", "GIF", "WEBP"]) as picture:
            picture.thumbnail((_SIDE, _SIDE))
            small = io.BytesIO()
            picture.convert("RGB").save(small, "JPEG", quality=70)
    # Errors of Pillow for damaged files, and for those that would fill the memory.
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return ""
    return _address("image/jpeg", small.getvalue())


def _address(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


Answers = Mapping[tuple[int, str], RolloutRecord]
"""Rollouts by the position of the candidate and the id of the case."""

_ON_VALIDATION_SET = frozenset(
    {
        Phase.BASELINE,
        Phase.INITIAL,
        Phase.PARETO,
        Phase.MERGE,
        Phase.IDLE,
        Phase.SHORTEN,
        Phase.FINAL,
        Phase.VALIDATE,
    }
)
_NO_HELD_OUT = HeldOut(ids=(), why_not="the job has no test cases")
_NOT_ENDED = HeldOut(ids=(), why_not="the run has not ended")


@attrs.frozen(kw_only=True)
class ReportEnd:
    """What the end of a run says; before it, nothing.

    Attributes:
        held_out: baseline and winner on the held-out cases.
        verdict: the verdict on the winner; None before the end.
        stopped: why the run ended, in one sentence; empty before the end.
        stop_detail: the same with the figures of the limits.
        gains: the gain in the mean from each kind of change along the winner's line.
        passing: pass rates and metric means of baseline and winner.
        ledger: calls, tokens, money and time by role and model.
        prompts: the whole texts of each prompt by address: ``baseline`` and ``winner``.
        warnings: doubts about the winner, one line each.
    """

    held_out: HeldOut = _NO_HELD_OUT
    verdict: RunVerdict | None = None
    stopped: str = ""
    stop_detail: str = ""
    gains: Mapping[str, float] = attrs.field(factory=dict)
    passing: PassingSides = NO_SIDES
    ledger: tuple[LedgerEntry, ...] = ()
    prompts: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class ReportSteps:
    """What became of the steps of a run: its rounds or steps, its rewrites and merges."""

    rounds: tuple[RoundSummary, ...] = ()
    rewrites: str = "none"
    rejections: tuple[MutationRejected, ...] = ()
    merges: tuple[MergeRejected, ...] = ()


@attrs.frozen(kw_only=True)
class RunUse:
    """Rollouts and reflections used; ``budget`` is the most rollouts, None if unknown."""

    rollouts: int = 0
    budget: int | None = None
    reflections: int = 0


@attrs.frozen(kw_only=True)
class ReportAnswers:
    """The answers of a report.

    Attributes:
        seen: the rollouts of baseline and winner on the validation set.
        unseen: their rollouts on the held-out cases.
        taught: cases whose ``expected`` came from a teacher, by id.
        thumbnails: those of the images that inputs name, by name.
    """

    seen: Answers = attrs.field(factory=dict)
    unseen: Answers = attrs.field(factory=dict)
    taught: Mapping[str, CaseTaught] = attrs.field(factory=dict)
    thumbnails: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class ReportData:
    """The data of the report of one run.

    Attributes:
        run_id: the id of the run.
        prompt: the prompt, ``namespace/key``.
        state: ``ended``, ``stopped``, ``interrupted`` or ``running``.
        facts: names and values for the head of the page, such as the seed.
        case_ids: ids of the validation set.
        candidates: the pool, the baseline first.
        why: the reflection model's reasons for its changes, by position of the candidate.
        winner: position of the winner; 0 if nothing beat the baseline.
        frontier: positions of the undominated candidates that lead on a case.
        perfect: the best possible score.
    """

    run_id: str
    prompt: str
    state: str = "ended"
    facts: tuple[tuple[str, str], ...] = ()
    case_ids: tuple[str, ...] = ()
    candidates: tuple[CandidateAdded, ...] = ()
    why: Mapping[int, Sequence[str]] = attrs.field(factory=dict)
    winner: int = 0
    frontier: tuple[int, ...] = ()
    perfect: float = 1.0
    steps: ReportSteps = ReportSteps()
    used: RunUse = RunUse()
    end: ReportEnd = ReportEnd()
    answers: ReportAnswers = attrs.field(factory=ReportAnswers)

    @property
    def cost(self) -> Decimal | None:
        """US dollars of all calls; None if a price is unknown.

        Before the end there is no ledger yet; then it is the cost up to the last candidate.
        """
        if not self.end.ledger and self.candidates:
            return self.candidates[-1].cost
        if any(row.unpriced_calls for row in self.end.ledger):
            return None
        return sum((row.cost for row in self.end.ledger), Decimal(0))

    @property
    def is_estimate(self) -> bool:
        """Whether the means of baseline or winner lack cases of the validation set."""
        sides = {0, self.winner} if self.candidates else ()
        return any(self.candidates[side].estimated for side in sides)

    @property
    def unanswered(self) -> str:
        """A sentence on the requests that were not answered; empty for none."""
        return unanswered_in(self.end.ledger)

    @property
    def tokens(self) -> int:
        """Tokens of all calls."""
        return sum(row.usage.input_tokens + row.usage.output_tokens for row in self.end.ledger)

    @property
    def blame(self) -> Counter[str]:
        """How often models blamed each part, by name."""
        return Counter(blame.to for round_ in self.steps.rounds for _, blame in round_.blamed)

    @property
    def leaders(self) -> list[int]:
        """The positions on the frontier by descending mean; candidates without one come last."""
        means = {number: self.candidates[number].mean for number in self.frontier}
        return sorted(means, key=lambda at: (means[at] is None, -(means[at] or 0), at))

    def line_of(self, number: int) -> tuple[int, ...]:
        """Return the candidate and its line of first parents, back to the baseline."""
        line = [number]
        while parents := self.candidates[line[-1]].parents:
            line.append(parents[0])
        return tuple(line)


def gather(folder: RunFolder) -> ReportData:
    """Gather the data for the report of a run, ended or not.

    Raises:
        OSError: a file cannot be read.
        DataFormatError, JournalCorruptError: a file is invalid.
    """
    record = read_run(folder)
    ended = record.ended
    data = ReportData(
        run_id=record.id,
        prompt=record.prompt,
        state=str(record.state),
        facts=tuple(_facts(record)),
        case_ids=record.pareto_ids,
        candidates=tuple(_with_examples(candidate) for candidate in record.candidates),
        why={candidate.candidate: reasons_of(record, candidate) for candidate in record.candidates},
        frontier=ended.frontier if ended else _frontier(record),
        winner=ended.best if ended else 0,
        steps=ReportSteps(
            rounds=tuple(record.rounds.values()),
            rewrites=str(record.rewrites),
            rejections=tuple(record.rejections),
            merges=tuple(event for event in record.merges if isinstance(event, MergeRejected)),
        ),
        used=RunUse(rollouts=record.rollouts, budget=record.budget, reflections=record.reflections),
        end=_end(record),
    )
    perfect = (fingerprint_of(record) or {}).get("objectives.perfect_score")
    if isinstance(perfect, int | float):
        data = attrs.evolve(data, perfect=float(perfect))
    return attrs.evolve(data, answers=_answers(record, data))


def _end(record: RunRecord) -> ReportEnd:
    ended = record.ended
    if ended is None:
        return ReportEnd(held_out=_NOT_ENDED)
    end = ReportEnd(
        held_out=ended.held_out or _NO_HELD_OUT,
        verdict=ended.verdict,
        stopped=record.stopped,
        stop_detail=ended.stop_detail,
        gains=ended.gains,
        passing=ended.passing,
        ledger=ended.ledger,
    )
    result = record.folder.result
    if not result.exists():
        return end
    document, where = read_document(result), str(result)
    prompts = structure(document.get("prompts", {}), dict[str, dict[str, str]], where=where)
    warnings = structure(document.get("warnings", []), tuple[str, ...], where=where)
    # Targets that are no prompts have no whole prompts in the result; their texts are whole.
    before, after = (_with_examples(record.candidates[number]).texts for number in (0, ended.best))
    texts = {name: {"baseline": before[name], "winner": after[name]} for name in before}
    return attrs.evolve(end, prompts=prompts or texts, warnings=warnings)


def _facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield "Started", moment(record.began or record.created)
    if record.seed is not None:
        yield "Seed", str(record.seed)
    if record.budget is not None:
        yield "Budget", f"{record.budget:,} test calls"
    if record.pareto_ids:
        yield "Validation set", f"{len(record.pareto_ids):,} cases"
    settings = record.config.get("settings")
    models = settings.get("models") if isinstance(settings, dict) else None
    for role, model in (models if isinstance(models, dict) else {}).items():
        if isinstance(model, str):
            yield f"{role.capitalize()} model", model
    for name, key in (("promptgraft", "promptgraft"), ("Python", "python")):
        version = record.config.get(key)
        if isinstance(version, str):
            yield name, version


def _with_examples(candidate: CandidateAdded) -> CandidateAdded:
    """Return a candidate whose texts include the task examples that it adds."""
    changes = read_changes(candidate.entries, DEFAULT_TAG, where="entries")
    added = {
        entry.part if len(changes) == 1 else named_in(address, entry.part): entry.show()
        for address, override in changes.items()
        if isinstance(override, PromptOverride)
        for entry in override.added_task_examples.values()
    }
    return replace(candidate, texts={**candidate.texts, **added}) if added else candidate


def _frontier(record: RunRecord) -> tuple[int, ...]:
    """Compute the frontier of a run that has not recorded one, because it has not ended."""
    frontier = Frontier()
    for candidate in record.candidates:
        frontier.add(candidate.scores or (None,) * len(record.pareto_ids))
    return tuple(frontier.members()) if record.candidates else ()


def _answers(record: RunRecord, data: ReportData) -> ReportAnswers:
    """Return the answers of baseline and winner on the validation set and on held-out cases."""
    answers_seen: dict[tuple[int, str], RolloutRecord] = {}
    unseen: dict[tuple[int, str], RolloutRecord] = {}
    cases, held_out = set(data.case_ids), set(data.end.held_out.ids)
    for transcript in transcripts(record, candidates={0, data.winner}):
        if transcript.candidate is None:
            continue
        if transcript.phase in _ON_VALIDATION_SET and transcript.case in cases:
            answers_seen[transcript.candidate, transcript.case] = transcript.record
        elif transcript.phase == Phase.HELD_OUT and transcript.case in held_out:
            unseen[transcript.candidate, transcript.case] = transcript.record
    inputs = [answer.inputs_repr for side in (unseen, answers_seen) for answer in side.values()]
    return ReportAnswers(
        seen=answers_seen,
        unseen=unseen,
        taught=record.taught,
        thumbnails=thumbnails(record.folder.files, inputs),
    )
