"""The jobs that the command line is pointed at."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from types import FunctionType

from promptgraft.cli.source import Wanted, beside, load, place_of
from promptgraft.errors import CallerError, ConfigError
from promptgraft.optimizers.gepa.job import OptimizationJob
from promptgraft.serde import shown

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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
    if isinstance(value, OptimizationJob):
        return value
    if not isinstance(value, FunctionType):
        return None
    needed = [
        name
        for name, given in inspect.signature(value).parameters.items()
        if given.default is given.empty and given.kind not in _MANY
    ]
    return None if needed else value


_JOB = Wanted[OptimizationJob | FunctionType](
    what="JOB",
    expected="an OptimizationJob, or a function without arguments that returns one",
    plural="jobs",
    read=_read,
)


def _called(make: FunctionType, spec: str) -> OptimizationJob:
    try:
        job: object = make()
    except CallerError as error:
        raise type(error)(f"{spec}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{spec} raised {type(error).__name__}: {error}") from error
    if not isinstance(job, OptimizationJob):
        raise ConfigError(f"{spec}: expected an OptimizationJob, it returned {shown(job)}")
    return job
