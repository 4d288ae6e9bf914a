"""What a prompt is bound to for a case: the parameters that its placeholders are filled from."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping

import attrs

from promptgraft.errors import BindingError, CandidateError, ConfigError
from promptgraft.evals.faults import CaseFaults, in_one_line
from promptgraft.evals.types import Case
from promptgraft.frozenmap import FrozenMap
from promptgraft.prompt.rendering import values_of
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt, takes_cases
from promptgraft.serde import did_you_mean, shown
from promptgraft.text import listed

ParamsOf = Callable[[Case], object]
"""Makes what a prompt is bound to of a case: one parameter, or a tuple of several."""


class _CaseInput(FrozenMap[str, object]):
    """A class of its own: a prompt keeps only the last parameter of each class."""


def params_of_cases(
    prompt: Prompt[object],
    cases: Iterable[Case],
    params: ParamsOf | None = None,
    *,
    noted: CaseFaults | None = None,
) -> dict[str, tuple[object, ...]]:
    """Return what the prompt is bound to for each case, by the id of the case.

    Without ``params`` a text goes to the one placeholder that is open, and an object to the
    placeholders of its names; the prompt of an agent takes the case itself. To a recorded answer
    nothing is bound.

    Cases that do not fit the prompt raise one ``ConfigError``, which says once what several of them
    share; or that is ``noted``, and they are left out.
    """
    faults = in_one_line() if noted is None else noted
    made: dict[str, tuple[object, ...]] = {}
    make = params or _maker_of(prompt)
    for case in cases:
        if case.id in made:
            raise ConfigError(f"cases: two cases have the id `{case.id}`; ids must differ")
        if case.recorded is not None:
            made[case.id] = ()
            continue
        try:
            made[case.id] = _checked_params(prompt, make(case))
        except (BindingError, ConfigError) as error:
            faults.add_of(case, str(error))
    if noted is None:
        faults.refuse()
    return made


def _maker_of(prompt: Prompt[object]) -> ParamsOf:
    if takes_cases(prompt):
        return lambda case: case
    if isinstance(prompt, TextsPrompt) and prompt.takes_inputs:
        return lambda case: case.input
    open_names, hints = _open_placeholders(prompt), prompt.template.lookalikes()
    return lambda case: _by_name(case, open_names, hints)


def _checked_params(prompt: Prompt[object], found: object) -> tuple[object, ...]:
    made = found if isinstance(found, tuple) else (found,)
    # A block that does not render with these values is the prompt's fault, not the case's.
    with contextlib.suppress(CandidateError):
        # Overrides can use no other placeholders than the source.
        attrs.evolve(prompt.bind(*made), overrides_store=None).render()
    return made


def _by_name(
    case: Case, open_names: tuple[str, ...], hints: Mapping[str, str]
) -> Mapping[str, object]:
    if case.turns or case.context:
        raise ConfigError(
            "a case with several turns or a context needs `params` that say where they go"
        )
    there = listed(open_names) or "none"
    if isinstance(case.input, dict):
        for name in case.input:
            if name not in open_names:
                near = did_you_mean(name, list(open_names))
                mend = hints.get(name, f"open placeholders: {there}")
                raise ConfigError(f"input: the prompt has no placeholder `{name}`{near}; {mend}")
        if missing := [name for name in open_names if name not in case.input]:
            raise ConfigError(f"input: expected a value for {listed(missing)}, found none")
        return _CaseInput(case.input)
    if not isinstance(case.input, str):
        raise ConfigError(f"input: expected a text or an object, found {shown(case.input)}")
    if len(open_names) != 1:
        meant = "" if open_names else "; ".join(itertools.islice(hints.values(), 3))
        mend = meant or "give an object with values by name, or `params`"
        raise ConfigError(f"input: a text needs one open placeholder, found {there}; {mend}")
    return _CaseInput({open_names[0]: case.input})


def _open_placeholders(prompt: Prompt[object]) -> tuple[str, ...]:
    """Return the names that the prompt reads and that are not bound yet."""
    known = {name for param in prompt.params for name in values_of(param)}
    reads = dict.fromkeys(
        name for _, section in prompt.template.walked for name in section.source.reads
    )
    return tuple(name for name in reads if name not in known)
