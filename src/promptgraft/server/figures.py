"""Figures of the server for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from promptgraft.server.access import Scope
from promptgraft.server.calls import Call, Reply, Route


def show_figures(call: Call) -> Reply:
    """Return how many jobs there are in each state, and how many streams."""
    registry = CollectorRegistry()
    jobs = Gauge("promptgraft_jobs", "Jobs by state.", ["state"], registry=registry)
    for state, count in call.manager.counts().items():
        jobs.labels(state).set(count)
    streams = Gauge("promptgraft_streams", "Streams of events that are read.", registry=registry)
    streams.set(call.streams)
    return Reply(
        content=generate_latest(registry), media="text/plain; version=0.0.4; charset=utf-8"
    )


figures = Route("GET /metrics", Scope.ADMIN, show_figures)
