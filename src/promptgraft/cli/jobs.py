"""The jobs that the command line is pointed at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import FunctionType

from promptgraft.errors import ConfigError
from promptgraft.project.python_source import (
    Wanted,
    as_maker,
    beside,
    call_maker,
    load,
    place_of,
)
from promptgraft.search.job import OptimizationJob
from promptgraft.serde import shown


@contextlib.contextmanager
def loaded_job(spec: str) -> Iterator[OptimizationJob]:
    """Give the job that ``module:NAME`` or ``file.py:NAME`` names, to be used inside.

    Inside, the code of the job can import its neighbours, and what it prints goes to standard
    error.

    Raises:
        ConfigError: nothing like that can be imported, or it is no job.
        CallerError: the function that returns the job raised it.
    """
    place = place_of(spec, _JOB.what)
    found = load(place, _JOB)
    with beside(place.folder):
        yield _called(found, spec) if isinstance(found, FunctionType) else found


def _read(value: object) -> OptimizationJob | FunctionType | None:
    return value if isinstance(value, OptimizationJob) else as_maker(value)


_JOB = Wanted[OptimizationJob | FunctionType](
    what="JOB",
    expected="an OptimizationJob, or a function without arguments that returns one",
    plural="jobs",
    read=_read,
)


def _called(make: FunctionType, spec: str) -> OptimizationJob:
    job = call_maker(make, spec)
    if not isinstance(job, OptimizationJob):
        raise ConfigError(f"{spec}: expected an OptimizationJob, it returned {shown(job)}")
    return job
