"""From what an agent found out to an answer in the form that the prompt asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

import attrs

from promptgraft.adapters.offline.agent_calls import Analogy, NothingThereError, leaves
from promptgraft.adapters.offline.agent_names import plain_words
from promptgraft.adapters.offline.agent_patterns import Pattern, rules_of
from promptgraft.adapters.offline.learner import lesson_of
from promptgraft.adapters.offline.words import terms
from promptgraft.prompt.fields import Described, FieldInfo, fields_of, options_of
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import NOTHING_SAID, describe, shown_name, type_name
from promptgraft.serde import Json

_LONGEST_LINE = 2_000
_DEEPEST = 8


@attrs.frozen(kw_only=True)
class Answering:
    """What an answer is made of.

    Attributes:
        text: the input.
        patterns: the worked examples of the prompt.
        followed: what was done, and after which of them.
        attention: how many rule words of each option count.
    """

    text: str
    patterns: Sequence[Pattern]
    followed: Analogy
    attention: int

    @property
    def pattern(self) -> Pattern | None:
        """The worked example that was followed."""
        shown = self.followed.shown
        near = (found for found in self.patterns if found.objective == self.followed.before)
        return next(near, None) if shown or self.followed.before else None

    @property
    def evidence(self) -> str:
        """The plain words of the input and of every text in the results.

        Names are left out: they say which one, not of which kind.
        """
        return " ".join(plain_words("\n".join((self.text, *self.found()))))

    def found(self) -> Iterator[str]:
        """Yield the texts in the results, in order."""
        for made in self.followed.made:
            if made is not None:
                yield from (leaf for _, leaf in leaves(made.output) if isinstance(leaf, str))


def answer(rendered: RenderedPrompt[object], answering: Answering) -> str:
    """Return the answer as text: JSON for a class, an option for a choice, else plain text."""
    kind: Any = rendered.output_type
    outcome = answering.pattern.outcome if answering.pattern else None
    filling = _Filling(rendered, rules_of(rendered), answering)
    if options := options_of(kind):
        said = rendered.described.get(type_name(kind), NOTHING_SAID)
        return filling.choice(describe(said, options), options, ())
    if fields_of(kind):
        return json.dumps(filling.fields(kind, outcome, ()), ensure_ascii=False)
    if isinstance(outcome, str) and outcome:
        return str(filling.by_analogy(outcome) or "")
    return next(answering.found(), answering.text)


@attrs.frozen
class _Filling:
    rendered: RenderedPrompt[object]
    rules: str
    answering: Answering

    def fields(self, kind: Any, outcome: Json, path: tuple[str, ...]) -> dict[str, Json]:
        """Return the fields of a class under the names that are shown."""
        values: dict[str, Json] = {}
        for field in fields_of(kind):
            said = self.rendered.described.get(field.key, field.described)
            known = outcome.get(field.name) if isinstance(outcome, dict) else None
            value = self._value(field, said, known, path)
            if value is not None or field.required:
                values[shown_name(field.name, said)] = value
        return values

    def choice(self, said: str, options: tuple[str, ...], path: tuple[str, ...]) -> str:
        """Return the option that rules, meanings and worked examples speak for most."""
        text = "\n\n".join((self.rules, f"#\n{said}", *self._answered(path)))
        lesson = lesson_of((("", (text,)),), options, self.answering.attention)
        scores = lesson.scores(self.answering.evidence)
        if max(scores) > min(scores):
            return options[scores.index(max(scores))]
        pattern = self.answering.pattern
        known = _at(pattern.outcome, path) if pattern else None
        return known if isinstance(known, str) and known in options else options[0]

    def by_analogy(self, value: Json) -> Json:
        """Return what answers to a value of the worked example's outcome; None for nothing."""
        try:
            if not isinstance(value, str):
                return self.answering.followed.from_results(value)
            return self.answering.followed.of(value)
        except NothingThereError:
            return None if isinstance(value, str) else value

    def _value(self, field: FieldInfo, said: Described, known: Json, path: tuple[str, ...]) -> Json:
        kind = _plain(field.kind)
        place = (*path, field.name)
        if options := options_of(kind):
            return self.choice(describe(said, options), options, place)
        if fields_of(kind) and len(path) < _DEEPEST:
            return dict(self.fields(kind, known, place))
        if known is not None and known != "":
            found = self.by_analogy(known)
        else:
            found = self._leaf(f"{shown_name(field.name, said)} {said.description}", kind)
        if found is None and field.required:
            return _EMPTY.get(get_origin(kind) or kind)
        return found

    def _leaf(self, said: str, kind: Any) -> Json:
        """Return the value in the results whose keys are named in ``said``; the first of equals."""
        wanted = set(terms(said))
        best: Json = None
        most = 0
        for made in filter(None, self.answering.followed.made):
            for source in (made.output, made.input):
                for path, leaf in leaves(source):
                    keys = {stem for key in path if isinstance(key, str) for stem in terms(key)}
                    if type(leaf) is kind and len(keys & wanted) > most:
                        best, most = leaf, len(keys & wanted)
        return best

    def _answered(self, path: tuple[str, ...]) -> Iterator[str]:
        """Yield each worked example as a text with its option on the next line."""
        for pattern in self.answering.patterns:
            option = _at(pattern.outcome, path)
            if isinstance(option, str):
                results = (leaf for call in pattern.calls for _, leaf in leaves(call.output))
                texts = (pattern.objective, *(leaf for leaf in results if isinstance(leaf, str)))
                words = " ".join(plain_words("\n".join(texts)))
                yield f"{words[:_LONGEST_LINE]}\n{option}"


_EMPTY: dict[Any, Json] = {str: "", int: 0, float: 0.0, bool: False, list: [], tuple: [], dict: {}}


def _plain(kind: Any) -> Any:
    """Return the type that an optional one is made of, else the type itself."""
    parts = [part for part in get_args(kind) if part is not type(None)]
    optional = len(parts) == 1 and type(None) in get_args(kind)
    return parts[0] if optional else kind


def _at(value: Json, path: tuple[str, ...]) -> Json:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
