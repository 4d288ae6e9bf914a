"""The JSON documents of replies, and their schemas in the OpenAPI document."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict, get_type_hints

import attrs
import msgspec

from promptgraft.evals.spending import Role
from promptgraft.graphs.describing import Edge, NodeDescription
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.kinds import abouts_of
from promptgraft.runs.history import RoundPatch
from promptgraft.search.round_events import Decided, Loss, Problem, Severity
from promptgraft.search.scores import Score
from promptgraft.search.verdict import HeldOut
from promptgraft.service.jobs import Job, approvals
from promptgraft.service.jobs.datasets import DatasetRevision
from promptgraft.service.jobs.presence import WorkerRow
from promptgraft.service.jobs.types import JOB_CHANGES, Attempt

JobReply = msgspec.defstruct(
    "Job",
    # The changes are their own schema, that of the request.
    [
        (name, dict[str, Any] if name == "changes" else hint)
        for name, hint in get_type_hints(Job).items()
        if name in attrs.fields_dict(Job)
    ],
    namespace={"__doc__": Job.__doc__},
)
JobWithAttempts = msgspec.defstruct(
    "JobWithAttempts",
    [("tries", list[Attempt]), ("no_worker", str)],
    bases=(JobReply,),
    namespace={
        "__doc__": "A job, the periods in which workers had it, and that none has its project."
    },
)


class JobPage(TypedDict):
    """Jobs, the newest first.

    Attributes:
        next: the cursor of the next page; null on the last one.
    """

    jobs: list[dict[str, Any]]  # Job, or fields of it
    next: str | None


class ProjectReply(TypedDict):
    """A project and the names of its prompts and graphs."""

    name: str
    prompts: list[str]


class ProjectList(TypedDict):
    """The projects that the token may see."""

    projects: list[ProjectReply]


class WorkerList(TypedDict):
    """The workers of projects that the token may see."""

    workers: list[WorkerRow]


class PromptInterface(TypedDict):
    """The tools of a prompt, and the fields of its output type."""

    tools: list[str]
    output_fields: list[str]


class Structure(TypedDict):
    """The structure of a prompt or a graph.

    Attributes:
        structure_id: a digest of nodes, parts with their texts, and declared edges.
        entry: the nodes to which no edge leads; empty if no edge is known.
        edges: pairs of node ids.
        declared: whether the edges are declared, so that no others may be taken.
        prompts: the prompts behind the nodes, by namespace and key.
    """

    structure_id: str
    entry: list[str]
    name: str
    nodes: list[NodeDescription]
    edges: list[Edge]
    declared: bool
    prompts: dict[str, PromptInterface]


class UseReply(TypedDict):
    """Calls, tokens per call, and US dollars as a decimal number; null for what is unknown."""

    calls: int | None
    input_tokens: int | None
    output_tokens: int | None
    tokens: int | None
    cost: str | None


class ExpectedUse(UseReply):
    """What a role is expected to use.

    Attributes:
        thinking: the part of the output tokens of a call that the model thinks.
        thinking_from: the basis of that estimate, in words.
    """

    thinking: int
    thinking_from: str


class RoleUse(UseReply):
    """What calls of one role may use at most, and are expected to use."""

    role: Role
    model: str
    expected: ExpectedUse


class Proposals(TypedDict):
    """How many proposals the budget pays for, by their fate."""

    if_accepted: int
    if_refused: int


class PlanExpectation(TypedDict):
    """What a run is expected to use; null for what is unknown."""

    rollouts: int
    answer_tokens: int | None
    answer_from: str
    tokens: int | None
    cost: str | None


class Plan(TypedDict):
    """What a job may use at most, and is expected to use; money is a decimal number.

    Attributes:
        line: the plan in one line.
        first_call: calls before the baseline, in words.
    """

    line: str
    rollouts: int
    reflections: int
    proposals: Proposals
    tokens: int | None
    cost: str | None
    expected: PlanExpectation
    max_tokens: int | None
    max_cost: str | None
    max_seconds: float | None
    first_call: str
    roles: list[RoleUse]
    warnings: list[str]


class EventReply(TypedDict):
    """An event of a job; its other fields depend on `event`.

    Attributes:
        number: its number in the job.
        event: its kind, such as `job_started`, `candidate`, `rollout`, `round_started`, `ended`.
    """

    number: int
    event: str


class EventPage(TypedDict):
    """Events of a job in order.

    Attributes:
        last: the number of the last one, to be sent as `after` for the next page.
    """

    events: list[EventReply]
    last: int


class Stop(TypedDict):
    """Why a run ended."""

    reason: str
    detail: str


class RolloutCounts(TypedDict):
    """Rollouts that a run used, was allowed, and could not score."""

    used: int
    budget: int
    unscored: int


class MutationCounts(TypedDict):
    """Proposals that were accepted, and those that were rejected by reason.

    ``kept_rewrites`` counts the texts of the accepted ones; runs of early versions lack it.
    """

    accepted: int
    kept_rewrites: NotRequired[int]
    rejected: dict[str, int]


class Means(TypedDict):
    """Mean scores of baseline and best candidate; null if nothing was scored."""

    baseline: Score
    best: Score
    gain: Score
    examples: int


class ValidationMeans(Means):
    """Mean scores on the validation set, and whether they are estimates."""

    baseline_estimated: bool
    best_estimated: bool


class HeldOutMeans(Means):
    """Mean scores on held-out cases, with the interval of the gain and numbers of cases."""

    low: float
    high: float
    level: float
    won: int
    lost: int
    tied: int
    unscored: int
    p_value: float
    shown_by: list[str]
    cases_to_show: int | None


class ScoresReply(TypedDict):
    """Scores on the validation set, and on held-out cases if there are any."""

    pareto: ValidationMeans
    held_out: HeldOutMeans | None


class LedgerRow(TypedDict):
    """What calls of one role to one model used; money is a decimal number, null is unknown."""

    role: Role
    model: str
    calls: int
    retries: int
    input_tokens: int | None
    cached_tokens: int
    output_tokens: int | None
    reasoning_tokens: int
    cost: str | None
    unpriced_calls: int
    seconds: float


class WinnerReply(TypedDict):
    """The best candidate: its position, the tag of the run, its changes by address."""

    candidate: int
    tag: str
    entries: dict[str, Any]


class PartDifference(TypedDict):
    """The change of one part.

    Attributes:
        status: `applied`, or `skipped` for a stale entry; null where there is no source.
        reason: why it was skipped.
        diff: the difference as a unified diff.
    """

    kind: str
    part: str
    status: str | None
    reason: str | None
    before: str | None
    after: str | None
    diff: str


class WearReply(TypedDict):
    """How often the held-out cases have judged runs."""

    cases: int
    new: int
    runs: int
    least_gain: float | None
    least_gain_when_new: float | None
    cases_when_new: int
    line: str


class JobResult(TypedDict):
    """The result of a job, in the format of `result.json`.

    Attributes:
        verdict: what may be claimed about the winner.
        best: position of the best candidate.
        means: the validation mean of each candidate.
        shortened: share of the tokens that a shorter winner saves.
        gains: gain on the validation set by kind of change.
        metrics: thresholds, pass rates and means of metrics.
        taught: cases whose expected answer came from a teacher.
    """

    prompt: str
    seed: int
    run_id: str
    improved: bool
    verdict: str
    stop: Stop
    rollouts: RolloutCounts
    reflections: int
    steps: int
    mutations: MutationCounts
    best: int
    scores: ScoresReply
    candidates: int
    means: list[Score]
    merges: int
    shortened: float
    gains: dict[str, float]
    held_out: NotRequired[HeldOut | None]
    metrics: dict[str, Any]
    cost: str | None
    ledger: NotRequired[list[LedgerRow]]
    winner: NotRequired[WinnerReply]
    parts: NotRequired[list[PartDifference]]
    warnings: list[str]
    wear: NotRequired[WearReply]
    taught: NotRequired[list[str]]


class CandidateReply(TypedDict):
    """A candidate of a job.

    Attributes:
        candidate: its position, 0 for the baseline.
        step: the step or round that made it.
        parents: positions of its parents.
        changed: names of the changed parts, `merge` or `baseline`.
        mean: its mean on the validation set.
        estimated: whether cases without a score make the mean an estimate.
        texts: its texts by part.
        scores: its scores on the validation set.
    """

    candidate: int
    step: int
    parents: list[int]
    changed: str
    mean: Score
    estimated: bool
    texts: NotRequired[dict[str, str]]
    scores: NotRequired[list[Score]]


class CandidateList(TypedDict):
    """The candidates of a job, the baseline first."""

    candidates: list[CandidateReply]


class CaseBlame(TypedDict):
    """A problem that a model attributes to a part, with the case that showed it."""

    case: str
    to: str
    severity: Severity
    text: str


class RoundReply(TypedDict):
    """A round of a job, or a step of its search.

    Attributes:
        round: its number, from 1.
        current: position of the candidate that it began with.
        decided: the outcome; null while it lasts.
        detail: why, in one line.
        tried: means of the current and the new candidate on the cases of its patches.
        validated: their means on the validation set.
        candidate: position of the new candidate; null if it was not accepted.
        cases: number of training cases that were evaluated.
        trained: mean of the current candidate on them; null in steps, which have no such cases.
        problems: what is to be fixed, by part.
        unanswered: why questions have no usable reply.
        stop: why no further round begins; empty if one does.
    """

    round: int
    current: int | None
    decided: Decided | None
    detail: str
    tried: list[Score] | None
    validated: list[Score] | None
    candidate: int | None
    cases: int
    trained: Score
    losses: list[Loss]
    blamed: list[CaseBlame]
    problems: dict[str, list[Problem]]
    patches: list[RoundPatch]
    unanswered: list[str]
    stop: str


class RoundList(TypedDict):
    """The rounds of a job."""

    rounds: list[RoundReply]


class RolloutReply(TypedDict):
    """A recorded rollout.

    Attributes:
        position: its place in the records of the job.
        key: its place in the run.
        feedback: score, reason and objectives; null if the provider failed.
        fault: what failed, in one line.
        hidden: sections and tools that the model was not shown.
        spent: the cost of its calls.
        steps: the steps of a graph.
    """

    position: int
    key: str
    example_id: str
    inputs_repr: NotRequired[str]
    output_repr: NotRequired[str]
    expected_repr: NotRequired[str]
    tool_trace_repr: NotRequired[str]
    feedback: dict[str, Any] | None
    fault: str
    hidden: list[str]
    spent: list[list[str | int | None]]
    verdicts: NotRequired[list[dict[str, Any]]]
    steps: NotRequired[list[dict[str, Any]]]


class RolloutPage(TypedDict):
    """Recorded rollouts; `last` is to be sent as `after` for the next page."""

    rollouts: list[RolloutReply]
    last: int


class RevisionReply(TypedDict):
    """A revision of a prompt that a tag holds, or held.

    Attributes:
        prompt: namespace and key.
        id: its id.
        number: its number, from 1.
        parent: the id of the revision before it; null for the first.
    """

    prompt: str
    id: str
    number: int
    parent: str | None
    time: str
    run_id: str | None
    note: str


class DatasetList(TypedDict):
    """The latest revision of each data set of a project, by name and without texts."""

    datasets: list[DatasetRevision]


class DatasetHistory(TypedDict):
    """The revisions of a data set, the newest first and without texts."""

    revisions: list[DatasetRevision]


class TagReply(TypedDict):
    """The revisions that a tag points at, one for each prompt."""

    tag: str
    prompts: list[RevisionReply]


class TagList(TypedDict):
    """The tags of a prompt or graph."""

    tags: list[TagReply]


class HeldRevision(RevisionReply):
    """A revision with its entries by kind, and the parts that they change."""

    entries: dict[str, Any]
    parts: list[PartDifference]


class TagContents(TypedDict):
    """What a tag holds."""

    tag: str
    prompts: list[HeldRevision]


class TagHistory(TypedDict):
    """Every revision of a tag, the oldest first."""

    tag: str
    revisions: list[RevisionReply]


class MovedTag(TagReply):
    """The revisions that a tag points at.

    Attributes:
        request: the number of the request that waits, if the tag is protected; null if it moved.
    """

    request: int | None


class ProtectionList(TypedDict):
    """The protected tags of a project."""

    protections: list[approvals.ProtectedTag]


class RequestReply(TypedDict):
    """A request to move a protected tag.

    Attributes:
        digest: SHA-256 of the move.
        reason: why it is stale.
        entries: its history, the oldest first.
        approved_by: who has approved, among them who asked.
        missing: how many approvals are missing.
    """

    number: int
    move: approvals.TagMove
    digest: str
    state: approvals.RequestState
    reason: str
    entries: list[approvals.RequestEntry]
    approved_by: list[str]
    missing: int


class ChangedText(TypedDict):
    """A text that a request changes."""

    part: str
    before: str
    after: str


class RequestWithTexts(RequestReply):
    """A request with the texts that it changes, and the verdict on them; empty for a rollback."""

    texts: list[ChangedText]
    verdict: str


class RequestList(TypedDict):
    """Requests, the newest first."""

    requests: list[RequestReply]


class AppliedRevision(TypedDict):
    """The revision of a prompt that a tag points at now."""

    prompt: str
    id: str


class Applied(TypedDict):
    """What applying a winner did to a tag.

    Attributes:
        request: the number of the request that waits, if the tag is protected; null if it moved.
    """

    tag: str
    prompts: list[AppliedRevision]
    request: int | None


REF = "#/components/schemas/{name}"
_CHANGES: Json = {"$ref": REF.format(name="JobChanges")}


def reply_schemas(kinds: Iterable[type]) -> dict[str, Json]:
    """Return the JSON Schemas of the documents of replies and of all that is in them, by name."""
    _, components = msgspec.json.schema_components(list(kinds), ref_template=REF)
    schemas: dict[str, dict[str, Any]] = {
        name: _whole(schema) for name, schema in components.items()
    }
    for name in ("Job", "JobWithAttempts"):
        schemas[name]["properties"]["changes"] = _CHANGES
    for name in PARTIAL:
        schemas[f"{name}Fields"] = {
            **schemas[name],
            "title": f"{name}Fields",
            "description": f"The chosen fields of a {name}.",
            "required": [],
        }
    schemas["JobPage"]["properties"]["jobs"]["items"] = partial("Job")
    return {**schemas, "JobChanges": dict(JOB_CHANGES.schema)}


PARTIAL = ("Job", "JobWithAttempts", "JobResult")
"""Documents of which a request may choose fields."""


def partial(name: str) -> Json:
    """Return the schema of a document, or of fields of it."""
    return {"anyOf": [{"$ref": REF.format(name=each)} for each in (name, f"{name}Fields")]}


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with descriptions of its fields, and without defaults: replies are whole."""
    text = inspect.cleandoc(schema.get("description", ""))
    described = {**schema, "description": text.partition("\n\n")[0]}
    if "properties" not in schema:
        return described
    required = set(schema.get("required", ()))
    abouts = abouts_of(type("Described", (), {"__doc__": text}))
    properties: dict[str, dict[str, Json]] = {}
    for name, field in schema["properties"].items():
        if "default" in field:
            required.add(name)
        properties[name] = {key: _even(value) for key, value in field.items() if key != "default"}
        # A reference stands alone, for the sake of generators.
        if name in abouts and "$ref" not in field:
            properties[name]["description"] = abouts[name]
    names = [name for name in properties if name in required]
    return {**described, "properties": properties, "required": names}


def _even(value: Json) -> Json:
    """Return a schema whose tuples, all of values of one kind, are lists of a fixed length.

    Generators of clients do not know ``prefixItems``.
    """
    if isinstance(value, list):
        return [_even(part) for part in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _even(part) for name, part in value.items()}
    first = plain.pop("prefixItems", None)
    return {**plain, "items": first[0]} if isinstance(first, list) else plain


def with_changes(schema: Json) -> Json:
    """Return the schema of a request with a reference for the changes of a job."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("properties") == JOB_CHANGES.schema["properties"]:
        return _CHANGES
    return {name: with_changes(part) for name, part in schema.items()}
