"""The dashboard: pages rendered on the server, which work without the script."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import attrs
from markupsafe import Markup, escape

from promptgraft import __version__
from promptgraft.errors import DataFormatError, JournalCorruptError, PromptgraftError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.text import clip, counted, dollars, duration, moment, score, visible
from promptgraft.runs import read_run
from promptgraft.runs.report.data import ReportData
from promptgraft.runs.report.drawings import Chart, rollouts_chart, spending_chart
from promptgraft.runs.report.page import LABELS, Links, comparison, difference, make_environment
from promptgraft.runs.report.page import asset as report_asset
from promptgraft.runs.report.tables import scores_on
from promptgraft.runs.report.texts import case_views, changes_between
from promptgraft.search.place import DOING, Place
from promptgraft.service.jobs import Job, JobConflictError, JobFilter, JobNotFoundError, JobState
from promptgraft.service.jobs.approvals import ApprovalNeededError
from promptgraft.service.jobs.interface import LARGEST_PAGE
from promptgraft.service.jobs.preparing import read_changes, written_changes
from promptgraft.service.jobs.rows import Order
from promptgraft.service.jobs.types import ALLOWED, ENDED, check_allowed
from promptgraft.service.server import api
from promptgraft.service.server.calls import ApiCall, ApiReply, Route, natural
from promptgraft.service.server.forms import form_lists, form_of
from promptgraft.service.server.kept import BY, hidden_fields, inside, kept_of, shown_fields
from promptgraft.service.server.problems import ApiProblem, problem_of
from promptgraft.service.server.tokens import ApiCaller, Scope
from promptgraft.service.server.views import Headline, limit_in_words, surety

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

_TEMPLATES = Path(__file__).parent / "templates"
_AT = {
    "jobs.html": "/",
    "new.html": "/new",
    "dataset.html": "/datasets",
    "datasets.html": "/datasets",
    "tags.html": "/tags",
    "approvals.html": "/approvals",
    "approval.html": "/approvals",
    "workers.html": "/workers",
    "account.html": "/account",
}
_OF_REPORTS = frozenset({"report.css", "report.js"})
_PAGE = 50
_MOST_COMPARED_CASES = 3_000
_MOST_EARLIER = 20
_ASSETS = {"live.js": "text/javascript", "server.css": "text/css"}
_TABS: Mapping[str, tuple[str, Sequence[str]]] = {
    "": ("Overview", ()),
    "candidates": ("Candidates", ("candidates.html", "every.html")),
    "cases": ("Cases", ("scores.html", "cases.html", "answers.html")),
    "rounds": ("Rounds", ("graph.html", "rounds.html")),
    "texts": ("Texts", ("changes.html", "whole.html")),
    "cost": ("Cost", ("ledger.html", "progress.html")),
    "events": ("Events", ()),
}
"""The tabs of a job by the end of their path: title, and sections of the report."""
_LABELS: Mapping[str, str] = {
    "budget": "Test calls",
    "max_cost": "Pause at (US dollars)",
    "max_tokens": "Pause at (tokens)",
    "max_iterations": "Candidates",
    "patience": "Steps without a better text",
    "target_score": "Target score",
    "model": "Model",
    "tag": "Tag",
    "dataset": "Data set",
    "seed": "Seed",
    "priority": "Priority",
    "note": "Note",
    "parts": "Parts that may change",
    "store": "Save the winner",
}
"""What pages call the settings of a job."""
_SIGNED_OUT = (
    "You are signed out, and nothing was changed. Sign in and repeat it.",
    "You are signed out, and nothing was changed. Sign in: what you typed comes back, to be sent.",
)
"""Without and with a text that was typed."""
_COLUMNS: Mapping[str, str] = {
    "verdict": "Verdict",
    "gain": "Gain on unseen cases",
    "calls": "Test calls",
    "cost": "Cost",
    "time": "Time",
    "tag": "Tag",
    "by": "By",
    "worker": "Worker",
    "created": "Created",
}
"""The columns of the list that can be chosen, by their names in its URL."""
_SHOWN_COLUMNS = frozenset(_COLUMNS) - {"calls", "worker"}
_STOPS: Mapping[JobState, str] = {JobState.PAUSED: "pause", JobState.CANCELLED: "cancel"}
_ENDED = [state for state in JobState if state in ENDED]
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}")
_JOB = re.compile(r"\bjob (([0-9a-f]{8})[0-9a-f]{24})\b")
_HEADING = re.compile(r'<section id="([\w-]+)"[^>]*>\s*<h2[^>]*>(.*?)</h2>')
_CODE = re.compile("`([^`]+)`")
_PLACE = re.compile("at `([^`]+)` of the run")
_SECONDS_A_DAY = 86_400
_MOST_DAYS = 36_500
_NUMBERS = frozenset({"budget", "max_tokens", "max_iterations", "patience", "seed", "priority"})


@functools.cache
def _environment() -> Environment:
    environment = make_environment(_TEMPLATES)
    environment.filters["moment"] = lambda seconds: (
        "" if seconds is None else moment(datetime.fromtimestamp(seconds, UTC))
    )
    environment.filters["verdict"] = Headline.of
    environment.filters["surety"] = surety
    environment.filters["duration"] = duration
    environment.filters["elapsed"] = _elapsed
    environment.filters["labelled"] = _labelled
    environment.filters["coded"] = _coded
    environment.filters["limit"] = limit_in_words
    environment.filters["linked"] = lambda note, base: Markup(  # noqa: S704
        _JOB.sub(rf'<a href="{escape(base)}/jobs/\1">job \2</a>', str(escape(visible(note))))
    )
    environment.filters["money"] = lambda cost: dollars(None if cost is None else Decimal(cost))
    environment.filters["known"] = lambda value: "–" if value is None else score(value)
    return environment


def _labelled(fault: str) -> str:
    """Return a fault with the label of the field that it begins with, as forms have it."""
    name, colon, rest = fault.partition(":")
    # A search has a longer name for the budget.
    label = _LABELS.get(name.removeprefix("rollout_"))
    return f"{label}{colon}{rest}" if label else fault


def _coded(message: str) -> Markup:
    """Return a message with its names in backticks as code, and its place in the run in words."""
    message = _PLACE.sub(_in_words, message)
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(visible(message)))))  # noqa: S704


def _in_words(match: re.Match[str]) -> str:
    place = Place.of_rollout(match[1])
    return f"while {DOING[place.phase]}" if place else match[0]


def _elapsed(job: Job) -> str:
    """Return how long workers have been at a job; a dash if it has not started."""
    if job.started is None:
        return "–"
    return duration(job.seconds_until(datetime.now(UTC).timestamp()))


def prepare() -> None:
    """Compile the templates and the patterns of word diffs, which would delay the first page."""
    environment = _environment()
    for name in environment.list_templates(["html"]):
        environment.get_template(name)
    list(changes_between({"": "a"}, {"": "b"}))


def page_of(call: ApiCall, name: str, status: int = 200, **values: object) -> ApiReply:
    """Return a page made from a template."""
    may = {str(scope) for scope in call.caller.scopes}
    typed = Markup('<input type="hidden" name="{}" value="{}">').format(BY, call.caller.name)
    frame = {"base": call.visit.base, "who": call.caller, "may": may, "typed": typed, **values}
    content = _rendered(name, **frame)
    headers = {"Content-Security-Policy": POLICY}
    return ApiReply(
        status=status, content=content, media="text/html; charset=utf-8", headers=headers
    )


def _rendered(name: str, **values: object) -> bytes:
    frame = {"version": __version__, "here": _AT.get(name, ""), **values}
    return _environment().get_template(name).render(frame).encode()


def redirect(call: ApiCall, path: str, **headers: str) -> ApiReply:
    """Return a redirect to a path below that of the application."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    # Names of other scripts: a header has none. What is encoded already stays.
    location = quote(f"{call.visit.base}{path}", safe="/%?#[]@!$&'()*+,;=:~")
    return ApiReply(status=303, headers={"Location": location, **named})


def problem_page(
    problem: ApiProblem,
    base: str,
    path: str,
    *,
    is_lost: bool,
    who: ApiCaller | None,
    provider: str = "",
    form: Mapping[str, str] = FrozenMap(),
) -> bytes:
    """Return the page of a problem; the form to sign in if that is what is missing.

    Args:
        problem: the problem.
        base: the path that the application is mounted at.
        path: path and query below it that were asked for.
        is_lost: whether something was to be changed there.
        who: who is signed in; None if nobody is, or before that is known.
        provider: the name of the provider that signs users in; empty if there is none.
        form: the fields of the form that was sent.
    """
    if problem.status == 401:
        kept = hidden_fields(path, form, _LABELS)
        fault = _SIGNED_OUT[bool(kept)] if is_lost else ""
        fields = {"link": "", "fault": fault, "wanted": path, "provider": provider}
        return _rendered("sign_in.html", base=base, who=None, kept=kept, **fields)
    values = {"problem": problem, "path": path, "is_lost": is_lost}
    return _rendered("problem.html", base=base, who=who, **values)


def kept_page(call: ApiCall, form: Mapping[str, str]) -> ApiReply | None:
    """Return the page with what another form keeps of one that was lost; None if it keeps none."""
    path, fields = kept_of(form, call.caller.name)
    if not fields:
        return None
    values = {"path": inside(path), **shown_fields(fields, _LABELS)}
    return page_of(call, "kept.html", 200, **values)


def asset(call: ApiCall) -> ApiReply:
    """Return a style sheet or the script of the pages."""
    # Only known names become part of a path, so that none leads out of the folder.
    name = call.path["name"]
    if name in _OF_REPORTS:
        media = "text/css" if name.endswith(".css") else "text/javascript"
        return ApiReply(content=report_asset(name).encode(), media=media)
    if name not in _ASSETS:
        raise ApiProblem(404, "nothing found at this path")
    return ApiReply(content=(_TEMPLATES / name).read_bytes(), media=_ASSETS[name])


# Jobs


def show_jobs(call: ApiCall) -> ApiReply:
    """List jobs."""
    names = ("state", "project", "text", "sort", "columns")
    query = {name: call.query[name] for name in names if call.query.get(name)}
    columns = _COLUMNS.keys() & query.get("columns", "").split(",") or _SHOWN_COLUMNS
    # Pages of the newest begin at a number, which new jobs do not move.
    key = "offset" if "sort" in query else "cursor"
    start = call.integer(key, 0, least=0, most=10**11)
    jobs = call.manager.list(
        JobFilter(state=query.get("state"), project=query.get("project"), text=query.get("text")),
        before=start if key == "cursor" and start else None,
        limit=_PAGE,
        projects=call.caller.projects,
        order=Order.of(query["sort"], start) if key == "offset" else None,
    )
    following = ""
    if len(jobs) == _PAGE:
        after = start + _PAGE if key == "offset" else jobs[-1].number
        following = f"?{urlencode({**query, key: after})}"
    name = "jobs_table.html" if call.path.get("part") else "jobs.html"
    return page_of(
        call,
        name,
        jobs=jobs,
        by=call.manager.submitters(jobs),
        query=query,
        counts=call.manager.counts(projects=call.caller.projects),
        states=list(JobState),
        ended=_ENDED,
        projects=list(prompts_of(call)),
        columns=columns,
        all_columns=_COLUMNS,
        # The filters send the columns too, be they the usual ones.
        has_chosen=columns != _SHOWN_COLUMNS,
        following=following,
        now=_now(),
    )


def _now() -> str:
    return moment(datetime.now(UTC))[11:]


def prompts_of(call: ApiCall) -> dict[str, Sequence[str]]:
    """Return the prompts of each project that the caller can see."""
    return {name: project.names for name, project in call.manager.projects.items()}


def show_job(call: ApiCall) -> ApiReply:
    """Show a job, live."""
    return _job_page(call, "job.html", {**_overview(call), **_comments(call)})


def show_live(call: ApiCall) -> ApiReply:
    """Return the live part of the page of a job."""
    return page_of(call, "job_live.html", 200, job=call.job, **_overview(call))


def _job_page(call: ApiCall, name: str, values: Mapping[str, object], *, tab: str = "") -> ApiReply:
    """Return a page of a job, with its tabs."""
    tabs = [(path, title) for path, (title, _) in _TABS.items()]
    return page_of(call, name, 200, job=call.job, tabs=tabs, tab=tab, **values)


def _overview(call: ApiCall) -> dict[str, object]:
    job, view = call.job, call.view
    data = view.data
    winner = view.candidates[data.winner] if view.candidates else None
    return {
        "by": call.manager.submitters([job])[job.id],
        "edits": list(changes_between(view.candidates[0].texts, winner.texts)) if winner else [],
        "stopped": next((act for act in view.acts if act.asked == _STOPS.get(job.state)), None),
        "labels": _LABELS,
        "doing": {str(phase): words for phase, words in DOING.items()}.get(job.status.stage),
        "applied": next((act for act in view.acts if act.asked in ("apply", "rollback")), None),
        "requests": call.manager.waiting_for(job) if job.status.revisions else (),
        "is_protected": call.manager.is_protected(job.project, job.tag),
        "last": view.last,
        "now": _now(),
        "changes": written_changes(job.changes),
        "allowed": ALLOWED[job.state],
        "attempts": call.manager.attempts(job.id),
        "no_worker": call.manager.no_worker(job.id),
        "winner": winner,
        "charts": _charts(data),
        "data": data,
        "links": _links(call, job),
        "damage": view.damage,
        "budget": data.used.budget,
        "has_report": job.attempts > 0,
    }


def _links(call: ApiCall, job: Job) -> Links:
    at = f"{call.visit.base}/jobs/{job.id}"
    return Links(
        candidates=f"{at}/candidates",
        cases=f"{at}/cases",
        case=f"{at}/case?id=",
        compare=f"{at}/compare",
    )


def show_tab(call: ApiCall) -> ApiReply:
    """Show sections of the report of a job as one of its tabs."""
    tab, job = call.path["tab"], call.job
    if tab not in _TABS or not _TABS[tab][1]:
        raise ApiProblem(404, "nothing found at this path")
    content, fault = "", ""
    try:
        with call.mirrors.report(call.manager, job) as report:
            content = report.sections(_TABS[tab][1], _links(call, job))
    except (DataFormatError, JournalCorruptError) as error:
        fault = str(error) if job.attempts else ""
    # Made by the templates of the report, which escape every text.
    headings = [(id_, Markup(title)) for id_, title in _HEADING.findall(content)]  # noqa: S704
    values = {"content": Markup(content), "fault": fault, "headings": headings}  # noqa: S704
    return _job_page(call, "job_tab.html", values, tab=tab)


def show_case(call: ApiCall) -> ApiReply:
    """Show a case: the answers to it, and how it fared in the latest jobs of the prompt."""
    job, case = call.job, call.query.get("id", "")
    with call.mirrors.report(call.manager, api.started(call)) as report:
        data = report.data
    views = case_views(data, case)
    if not views and case not in (*data.case_ids, *data.end.held_out.ids):
        raise ApiProblem(404, f"the job has no case `{case[:200]}`")
    where = JobFilter(project=job.project, prompt=job.prompt)
    earlier = call.manager.list(where, limit=_MOST_EARLIER, projects=call.caller.projects)
    values = {
        "case": case,
        "views": views,
        "data": data,
        "links": _links(call, job),
        "history": [
            (other, *row)
            for other in earlier
            for row in scores_on(call.views.of(call.manager, other).data, case)
        ],
        **_comments(call, f"case {case}"),
    }
    return _job_page(call, "case.html", values, tab="cases")


def _comments(call: ApiCall, about: str = "") -> dict[str, object]:
    """Return the comments on something in a job, for its page; all of them for the job."""
    comments = call.view.comments
    return {
        "about": about,
        "comments": [one for one in comments if about in ("", one.about)],
    }


def show_events(call: ApiCall) -> ApiReply:
    """Show what happened to a job, and its latest events."""
    view = call.view
    # Characters instead of their escapes, so that people can read other scripts.
    events = [
        (number, clip(json.dumps(json.loads(line), ensure_ascii=False), 400, around=" "))
        for number, line in view.lines
    ]
    return _job_page(call, "job_events.html", {"acts": view.acts, "events": events}, tab="events")


def _charts(data: ReportData) -> list[tuple[str, Chart]]:
    """Return charts of the means over rollouts and money, with their titles."""
    drawn = [rollouts_chart(data), spending_chart(data)[0]]
    return [
        (f"Mean on the validation set against {drawing.what}", drawing)
        for drawing in drawn
        if drawing
    ]


def show_candidate(call: ApiCall) -> ApiReply:
    """Show a candidate and its differences from its parent."""
    job, candidate = call.job, api.candidate_of(call)
    parent = call.view.candidates[candidate.parents[0]] if candidate.parents else None
    changes = list(changes_between(parent.texts, candidate.texts)) if parent else []
    values = {
        "one": candidate,
        "parent": parent,
        "changes": changes,
        "links": _links(call, job),
        **_comments(call, f"candidate {candidate.candidate}"),
    }
    return _job_page(call, "candidate.html", values, tab="candidates")


def compare_candidates(call: ApiCall) -> ApiReply:
    """Compare candidates of a job side by side."""
    job, data = call.job, call.view.data
    there = {f"{candidate.candidate}": candidate for candidate in data.candidates}
    names = list(dict.fromkeys(filter(None, call.query.get("candidate", "").split(","))))
    if not 2 <= len(names) <= len(LABELS) or not there.keys() >= set(names):
        expected = f"2 to {len(LABELS)} numbers of the {counted(len(there), 'candidate')}"
        raise ApiProblem(422, f"candidate: expected {expected}, found {', '.join(names)[:100]!r}")
    first, *others = candidates = [there[name] for name in names]
    labels = [f"#{name}" for name in names]
    # A candidate that has not been tried on all cases yet may have fewer scores.
    missing = (None,) * len(data.case_ids)
    scores_of = [(*candidate.scores, *missing) for candidate in candidates]
    rows = list(zip(data.case_ids, *scores_of, strict=False))
    values = {
        "candidates": candidates,
        "labels": labels,
        "data": data,
        "links": _links(call, job),
        "changes": [
            (label, tuple(changes_between(first.texts, other.texts)))
            for label, other in zip(labels[1:], others, strict=True)
        ],
        "cases": [
            ("validation", case, scores, difference(scores))
            for case, *scores in rows[:_MOST_COMPARED_CASES]
        ],
        "left_out": len(rows[_MOST_COMPARED_CASES:]),
    }
    return _job_page(call, "compare_candidates.html", values, tab="candidates")


def show_report(call: ApiCall) -> ApiReply:
    """Show the full report of a job."""
    # `frame-ancestors` has no effect in the `meta` element that holds the policy of a report.
    return attrs.evolve(api.show_report(call), headers={"X-Frame-Options": "DENY"})


def compare(call: ApiCall) -> ApiReply:
    """Compare jobs side by side."""
    ids = [id_ for id_ in call.query.get("job", "").split(",") if id_]
    if not 2 <= len(ids) <= len(LABELS):
        raise ApiProblem(
            422, f"job: expected 2 to {len(LABELS)} jobs, found {len(ids)}; choose them in the list"
        )
    jobs = [api.started(attrs.evolve(call, path={"job": id_})) for id_ in ids]
    records = []
    for job in jobs:
        with call.mirrors.of(call.manager, job, pages=False) as folder:
            records.append(read_run(folder))
    compared = comparison(
        records,
        verdicts=[Headline.of(job).word for job in jobs],
        ends=[f"{job.state}: {job.reason}" if job.reason else job.state for job in jobs],
    )
    return page_of(call, "compare_jobs.html", 200, jobs=jobs, **compared)


def act_on_jobs(call: ApiCall) -> ApiReply:
    """Carry out the action of a button below the list on the jobs that are chosen in it."""
    form, manager = form_lists(call), call.manager
    what, ids = form.get("what", [""])[-1], form.get("job", [])
    if what == "prune":
        days, state = (form.get(name, [""])[-1].strip() for name in ("days", "state"))
        return _confirm_pruning(call, days, state)
    is_sure = "sure" in form
    actions: Mapping[str, Callable[[ApiCall], object]] = {
        "pause": lambda at: manager.pause(at.job.id),
        "resume": lambda at: manager.resume(at.job.id),
        "cancel": lambda at: manager.cancel(at.job.id),
        "delete": api.delete_job if is_sure else lambda at: check_allowed(at.job, "delete"),
    }
    if what not in actions or not ids:
        *names, last = actions
        what_to_do = f"{', '.join(names)} or {last} them"
        raise ApiProblem(422, f"no job is chosen; tick jobs in the list, then {what_to_do}")
    refused: list[str] = []
    for id_ in ids:
        try:
            actions[what](attrs.evolve(call, path={"job": id_}))
        except (JobNotFoundError, JobConflictError) as error:
            refused.append(str(error))
    if refused:
        count = f"{len(refused)} of {counted(len(ids), 'job')}"
        raise ApiProblem(409, f"{what}: refused for {count}", faults=tuple(refused))
    if what == "delete" and not is_sure:
        jobs = [attrs.evolve(call, path={"job": id_}).job for id_ in dict.fromkeys(ids)]
        return page_of(call, "delete_jobs.html", jobs=jobs, total=len(jobs))
    return redirect(call, "/")


def _confirm_pruning(call: ApiCall, days: str, state: str) -> ApiReply:
    """Ask whether the jobs that ended so many days ago are to be deleted, a page at a time.

    Args:
        call: the request.
        days: how many.
        state: the state in which they ended; empty for any.
    """
    if state and state not in ENDED:
        raise ApiProblem(422, f"state: expected one of {', '.join(_ENDED)}, found {state[:40]!r}")
    number = natural(days)
    if number is None or number > _MOST_DAYS:
        raise ApiProblem(
            422, f"days: expected an integer from 0 to {_MOST_DAYS}, found {days[:40]!r}"
        )
    latest = math.ceil(datetime.now(UTC).timestamp()) - number * _SECONDS_A_DAY
    where = JobFilter(state=state or None, ended_by=latest)
    oldest = Order(by="created", is_rising=True)
    jobs = call.manager.list(where, limit=_PAGE, projects=call.caller.projects, order=oldest)
    total = sum(call.manager.counts(where, projects=call.caller.projects).values())
    return page_of(call, "delete_jobs.html", jobs=jobs, total=total, state=state, days=number)


def act(call: ApiCall) -> ApiReply:
    """Carry out the action of a button on the page of a job."""
    form, job = form_of(call), call.job
    manager, what = call.manager, form.get("what")
    # Who approves may also say why not.
    needed = Scope.APPROVE if what == "apply" else Scope.SUBMIT
    if what != "comment" or Scope.APPROVE not in call.caller.scopes:
        call.caller.check(needed)
    match what:
        case "pause" | "resume" | "cancel":
            {"pause": manager.pause, "resume": manager.resume, "cancel": manager.cancel}[what](
                job.id
            )
        case "apply":
            try:
                manager.apply(job.id)
            except ApprovalNeededError as error:
                return redirect(call, f"/approvals/{error.request}")
        case "change":
            manager.change(job.id, _changes(form))
        case "comment":
            manager.comment(job.id, form.get("text", ""), about=form.get("about", ""))
            return redirect(call, _commented(job, form.get("about", "")))
        case "fork":
            return redirect(call, f"/jobs/{manager.fork(job.id, _changes(form)).id}")
        case _:
            raise ApiProblem(
                422, "what: expected pause, resume, cancel, apply, change, fork or comment"
            )
    # A redirect: reloading the page must not repeat the action.
    return redirect(call, f"/jobs/{job.id}")


def _commented(job: Job, about: str) -> str:
    """Return the path of the page that shows a comment."""
    kind, _, name = about.partition(" ")
    if kind == "case":
        return f"/jobs/{job.id}/case?{urlencode({'id': name}, errors='replace')}#comments"
    number = natural(name) if kind == "candidate" else None
    return f"/jobs/{job.id}{'' if number is None else f'/candidates/{number}'}#comments"


def show_new(call: ApiCall) -> ApiReply:
    """Show the form for a new job."""
    return _new_page(call, call.query)


def _new_page(
    call: ApiCall, given: Mapping[str, str], *, plan: object = None, fault: str = ""
) -> ApiReply:
    prompts, sets = prompts_of(call), dict[str, list[str]]()
    for row in (row for project in prompts for row in call.manager.datasets(project)):
        sets.setdefault(row.name, []).append(f"{row.project}, {counted(row.cases, 'case')}")
    values = {"given": given, "plan": plan, "fault": fault, "labels": _LABELS, "sets": sets}
    return page_of(call, "new.html", 422 if fault else 200, prompts=prompts, **values)


def submit(call: ApiCall) -> ApiReply:
    """Submit the job in the form, or show its plan."""
    form, prompts = form_of(call), prompts_of(call)
    project, _, prompt = form.get("prompt", "").partition("/")
    plan, fault = None, ""
    try:
        changes = read_changes(_changes(form))
        if form.get("what") != "plan":
            job = call.manager.create(call.project(project), prompt, changes)
            return redirect(call, f"/jobs/{job.id}")
        # Only what the caller sees: a plan tells the size of the data.
        if project in prompts:
            plan = call.manager.plan(project, prompt, changes)
    except PromptgraftError as error:
        fault = problem_of(error, call.manager.projects).detail
    return _new_page(call, form, plan=plan, fault=fault)


def _changes(form: Mapping[str, str]) -> dict[str, object]:
    """Return the fields of a form that are filled in, with numbers parsed."""
    names = (*_NUMBERS, "max_cost", "note", "tag", "target_score", "dataset", "model")
    values = {name: form[name] for name in names if form.get(name)}
    changes: dict[str, object] = dict(values)
    for name in _NUMBERS & values.keys():
        number = natural(values[name].removeprefix("-"))
        if number is not None:
            changes[name] = -number if values[name].startswith("-") else number
    if _DECIMAL.fullmatch(values.get("target_score", "")):
        changes["target_score"] = float(values["target_score"])
    if "dry_run" in form:
        changes["dry_run"] = True
    if form.get("parts"):
        ids = [id_.strip() for id_ in form["parts"].split(",")]
        changes["tuning"] = {"targets": {"parts": ids}}
    return changes


# Workers


def show_workers(call: ApiCall) -> ApiReply:
    """Show the workers and the jobs that they run."""
    jobs = call.manager.list(
        JobFilter(state=JobState.RUNNING), limit=LARGEST_PAGE, projects=call.caller.projects
    )
    jobs_of: dict[str, list[Job]] = {}
    for job in jobs:
        jobs_of.setdefault(job.worker, []).append(job)
    return page_of(
        call,
        "workers.html",
        workers=call.manager.workers(projects=call.caller.projects),
        jobs_of=jobs_of,
        counts=call.manager.counts(projects=call.caller.projects),
    )


R, S = Scope.READ, Scope.SUBMIT

ROUTES: Sequence[Route] = (
    Route("GET /", R, show_jobs),
    Route("POST /", S, act_on_jobs),
    Route("GET /live/{part}", R, show_jobs),
    Route("GET /new", S, show_new),
    Route("POST /new", S, submit),
    Route("GET /jobs/{job}", R, show_job),
    Route("POST /jobs/{job}", None, act),
    Route("GET /jobs/{job}/live", R, show_live),
    Route("GET /jobs/{job}/report", R, show_report, is_heavy=True),
    Route("GET /jobs/{job}/events", R, show_events),
    Route("GET /jobs/{job}/case", R, show_case, is_heavy=True),
    Route("GET /jobs/{job}/compare", R, compare_candidates, is_heavy=True),
    Route("GET /jobs/{job}/candidates/{number}", R, show_candidate),
    Route("GET /jobs/{job}/{tab}", R, show_tab, is_heavy=True),
    Route("GET /compare", R, compare, is_heavy=True),
    Route("GET /workers", R, show_workers),
)
"""The pages."""
