"""Systems that were written for gepa: a ``GEPAAdapter``, or an evaluator of ``optimize_anything``.

gepa itself is not imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import attrs

from promptgraft.adapters.base import PromptResponse
from promptgraft.errors import CallerError, ConfigError
from promptgraft.ground.functions import code_digest, function_name
from promptgraft.ground.serde import shown
from promptgraft.prompt.texts import texts_in
from promptgraft.runtime.session import SessionProtocol
from promptgraft.search.result import RunResult
from promptgraft.targets.texts import Texts, as_texts
from promptgraft.targets.types import GepaExample, RolloutFeedback

_TEXT = "text"
"""The name of a candidate that is a single text."""
_OUTPUTS = ("Generated Outputs", "Output")
"""Keys under which a record has the answer."""
_SHOWN_APART = frozenset((*_OUTPUTS, "Inputs", "Input", "score", "scores"))
"""Keys of a record that are no feedback."""
_SPECIFIC = "_specific_info"
"""How the keys end under which side information is about one component."""

Record = Mapping[str, Any]
"""What a system tells of one example."""


class Adapter(Protocol):
    """The methods of a ``GEPAAdapter`` that are used here."""

    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> Any:
        """Return an ``EvaluationBatch``."""

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Record]]:
        """Return records of the batch by component."""


def texts_of(adapter: Adapter, seed_candidate: Mapping[str, str], **options: Any) -> Texts:
    """Return the components of a system behind a ``GEPAAdapter``, so that they can be improved.

    A rollout evaluates a batch of one example; questions show the records that the adapter makes
    of it. The configuration needs ``feedback_fn=feedback``.

    Args:
        adapter: the adapter.
        seed_candidate: the components by name. A name that is no key, such as ``Prog.predict``,
            becomes one: ``prog-predict``.
        **options: ``ns``, ``key``, ``placeholders`` and ``frozen`` of :class:`Texts`.

    Raises:
        ConfigError: a component is no text, or two names become the same key.
    """
    evaluate = partial(_evaluated, adapter.evaluate, adapter.make_reflective_dataset)
    return _texts(evaluate, adapter.evaluate, seed_candidate, options)


def texts_of_evaluator(
    evaluator: Callable[..., Any], seed_candidate: str | Mapping[str, str], **options: Any
) -> Texts:
    """Return a candidate of ``optimize_anything``, so that it can be improved.

    The configuration needs ``feedback_fn=feedback``. Messages of ``oa.log`` are not seen; return
    them as side information.

    Args:
        evaluator: ``evaluator(candidate, example)``, which returns a score, or a score and side
            information by name. The candidate is a text if ``seed_candidate`` is one.
        seed_candidate: a text, which gets the name ``text``, or texts by name.
        **options: as for :func:`texts_of`.

    Raises:
        ConfigError: the candidate is no text, or two names become the same key.
    """
    if isinstance(seed_candidate, str):
        evaluate_text = partial(_judged_text, evaluator)
        return _texts(evaluate_text, evaluator, {_TEXT: seed_candidate}, options)
    return _texts(partial(_judged, evaluator), evaluator, seed_candidate, options)


def feedback(
    _example: GepaExample, response: PromptResponse[Any], _session: SessionProtocol, /
) -> RolloutFeedback:
    """Return the score and the reasons that a system of this module gave: a ``feedback_fn``."""
    if not isinstance(response.output, RolloutFeedback):
        raise CallerError(
            "feedback: expected an answer of `texts_of` or `texts_of_evaluator`, found "
            f"{shown(response.output)}"
        )
    return response.output


def best_candidate(result: RunResult, seed_candidate: Mapping[str, str]) -> dict[str, str]:
    """Return the components of the winner by their names in ``seed_candidate``."""
    texts = texts_in(result.prompt.render())
    return {name: texts[key] for key, name in _names_by_key(seed_candidate).items()}


@attrs.frozen
class _System:
    """Evaluates the texts of one candidate on one example.

    Attributes:
        evaluate: evaluates a candidate, by the names that the user's code has for its components.
        code: the user's code, whose name stands in reports.
        names: those names, by key.
    """

    evaluate: Callable[[dict[str, str], Any], PromptResponse[Any]]
    code: Callable[..., Any]
    names: Mapping[str, str]

    @property
    def identity(self) -> str:
        return f"function {function_name(self.code)} {code_digest(self.evaluate)}".rstrip()

    def __call__(self, texts: Mapping[str, str], example: Any) -> PromptResponse[Any]:
        return self.evaluate({self.names[key]: text for key, text in texts.items()}, example)


def _texts(
    evaluate: Callable[[dict[str, str], Any], PromptResponse[Any]],
    code: Callable[..., Any],
    seed_candidate: Mapping[str, str],
    options: Mapping[str, Any],
) -> Texts:
    source = as_texts(seed_candidate)
    names = _names_by_key(source)
    texts = {key: source[name] for key, name in names.items()}
    return Texts(texts, run=_System(evaluate, code, names), **{"key": "gepa", **options})


def _names_by_key(seed_candidate: Mapping[str, str]) -> dict[str, str]:
    names = dict[str, str]()
    for name in seed_candidate:
        key = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:64]
        if key in names:
            raise ConfigError(
                f"seed_candidate: {names[key]!r} and {name!r} become the same key, `{key}`; "
                "rename one"
            )
        names[key] = name
    return names


def _evaluated(
    evaluate: Callable[..., Any],
    make_reflective_dataset: Callable[..., Mapping[str, Sequence[Record]]],
    candidate: dict[str, str],
    example: Any,
) -> PromptResponse[Any]:
    batch = evaluate([example], candidate, capture_traces=True)
    # Many adapters take one component at a time, as the default adapter of gepa does.
    records = {
        name: list(make_reflective_dataset(candidate, batch, [name]).get(name, ()))
        for name in candidate
    }
    objectives = batch.objective_scores[0] if batch.objective_scores else {}
    return _response(batch.scores[0], batch.outputs[0], records, objectives)


def _judged_text(
    evaluator: Callable[..., Any], candidate: dict[str, str], example: Any
) -> PromptResponse[Any]:
    return _judged(evaluator, candidate[_TEXT], example)


def _judged(
    evaluator: Callable[..., Any], candidate: str | dict[str, str], example: Any
) -> PromptResponse[Any]:
    outcome = evaluator(candidate, example)
    score, information = outcome if isinstance(outcome, tuple) else (outcome, None)
    information = information or {}
    shared = {key: value for key, value in information.items() if not key.endswith(_SPECIFIC)}
    components = [_TEXT] if isinstance(candidate, str) else list(candidate)
    records = {name: [{**shared, **information.get(name + _SPECIFIC, {})}] for name in components}
    return _response(score, "", records, information.get("scores", {}))


def _response(
    score: float,
    output: object,
    records: Mapping[str, Sequence[Record]],
    objectives: Mapping[str, float],
) -> PromptResponse[Any]:
    """Return an answer with its verdict as ``output``."""
    different = list[Record]()
    for record in (record for of_one in records.values() for record in of_one):
        if record not in different:
            different.append(record)
    if len(different) == 1:
        [record] = different
        output = next((record[key] for key in _OUTPUTS if key in record), output)
        reasons = [*_lines(record, leave_out=_SHOWN_APART)]
    else:  # each has its own input and output
        reasons = [
            line
            for name, of_one in records.items()
            for record in of_one
            for line in (f"{name}:", *_lines(record))
        ]
    verdict = RolloutFeedback(score=score, feedback="\n".join(reasons), objectives=dict(objectives))
    return PromptResponse(text=_as_text(output), output=verdict)


def _lines(record: Record, leave_out: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield what a record says; feedback alone needs no heading."""
    texts = {key: _as_text(value) for key, value in record.items() if key not in leave_out}
    for key, text in texts.items():
        yield text if [*texts] == ["Feedback"] else f"{key}: {text}"


def _as_text(value: object) -> str:
    """Return a text as it is, and anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
