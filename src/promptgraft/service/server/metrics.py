"""Metrics for Prometheus: of the jobs in the database, and of the requests to this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from promptgraft.service.jobs.rows import ProjectTotals
from promptgraft.service.server.calls import ApiCall, ApiReply

_MEDIA = "text/plain; version=0.0.4; charset=utf-8"

_OF_PROJECTS: Mapping[str, tuple[str, Callable[[ProjectTotals], float]]] = {
    "queue_age_seconds": (
        "Seconds since the oldest queued job that could run now was submitted.",
        lambda totals: totals.waiting,
    ),
    "failed_jobs": ("Jobs that have failed.", lambda totals: totals.failed),
    "repeated_attempts": ("Attempts beyond the first of each job.", lambda totals: totals.repeated),
    "cost_dollars": ("US dollars that jobs have spent.", lambda totals: totals.dollars),
    "model_calls": ("Model calls of jobs that have ended or paused.", lambda totals: totals.calls),
    "model_retries": (
        "Requests beyond the first of each of these calls.",
        lambda totals: totals.retries,
    ),
    "model_seconds": ("Duration of these calls, including waits.", lambda totals: totals.seconds),
}
"""Gauges by project, of the jobs that are kept."""


class RequestMetrics:
    """Counts the requests to an application, and measures the time until a response begins."""

    def __init__(self) -> None:
        # A registry of its own, because the default one also has figures of the process.
        self.registry: CollectorRegistry = CollectorRegistry()
        self._count = Counter(
            "promptgraft_requests",
            "Requests by route, method and status.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "promptgraft_request_seconds",
            "Seconds until a response begins, by route.",
            ["route"],
            registry=self.registry,
        )
        self._routes: dict[object, str] = {}

    def name(self, endpoint: object, route: str) -> None:
        """Give the endpoint of a route the name that its requests are counted under."""
        self._routes[endpoint] = route

    def measured(self, app: ASGIApp) -> ASGIApp:
        """Return the application, with its requests measured."""

        async def measure(scope: ASGIScope, receive: Receive, send: Send) -> None:
            began = time.monotonic()

            async def note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    # Patterns only: paths have ids, and strangers may ask for any number of them.
                    route = self._routes.get(scope.get("endpoint"), "other")
                    method = scope["method"] if route != "other" else ""
                    self._count.labels(route, method, message["status"]).inc()
                    self._seconds.labels(route).observe(time.monotonic() - began)
                await send(message)

            await app(scope, receive, note)

        return measure


def show_metrics(call: ApiCall, requests: RequestMetrics) -> ApiReply:
    """Return the metrics that the caller may see, for Prometheus."""
    registry, projects = CollectorRegistry(), call.caller.projects
    jobs = Gauge("promptgraft_jobs", "Jobs by state.", ["state"], registry=registry)
    for state, count in call.manager.counts(projects=projects).items():
        jobs.labels(state).set(count)
    streams = Gauge("promptgraft_streams", "Streams of events that are read.", registry=registry)
    streams.set(call.access.streams(call.caller))
    workers = Gauge("promptgraft_workers", "Workers by state.", ["state"], registry=registry)
    alive = [worker.is_alive for worker in call.manager.workers(projects=projects)]
    workers.labels("running").set(alive.count(True))
    workers.labels("lost").set(alive.count(False))
    totals = call.manager.totals(projects=projects)
    for name, (about, value) in _OF_PROJECTS.items():
        gauge = Gauge(f"promptgraft_{name}", about, ["project"], registry=registry)
        for project_totals in totals:
            gauge.labels(project_totals.project).set(value(project_totals))
    content = generate_latest(registry)
    if projects is None:
        # Requests belong to no project.
        content += generate_latest(requests.registry)
    return ApiReply(content=content, media=_MEDIA)
