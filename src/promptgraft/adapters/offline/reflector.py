"""Improves the parts of a prompt based on failures, as a reflection model would."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

import attrs

from promptgraft.adapters.offline.learner import ATTENTION, learn, names_of
from promptgraft.adapters.offline.questions import (
    AT_MOST,
    MARK,
    Blocks,
    Case,
    Field,
    Question,
    prompts_in,
    read_question,
)
from promptgraft.adapters.offline.words import (
    Call,
    Nearness,
    form_of,
    invented,
    leaves,
    names_in,
    object_in,
    plain_words,
    read_json,
    replaced,
    term,
)
from promptgraft.adapters.offline.writer import WORDS_PER_FAILURE, WORDS_PER_RULE, Tried, rewrite
from promptgraft.ground.serde import Json
from promptgraft.ground.text import fenced, on_one_line
from promptgraft.overrides.parts.examples import json_line

_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_DESCRIPTION = "description"
_LONGEST_OBJECTIVE = 400
_LONGEST_TEXT = 300
_MOST_ITEMS = 3
_KEY_WORDS = 3
_TURNED = {"full": "hidden", "summary": "hidden"}
_PIECES = re.compile(r"(?m)^(?=\*\*P\d)")
_KIND = re.compile(r"(?:.*#)?(section|summary|tool|output field) ")


@attrs.frozen
class Habits:
    """How the embedded model writes: the options of ``OfflineAdapter``."""

    words_per_failure: int = WORDS_PER_FAILURE
    words_per_rule: int = WORDS_PER_RULE
    attention: int = ATTENTION

    def refused(self, times: int) -> Habits:
        """Return the habits after so many refusals: each halves the words of a failure."""
        return attrs.evolve(self, words_per_failure=max(1, self.words_per_failure >> times))


_HABITS = Habits()


@attrs.frozen
class Better:
    """Replies to one question."""

    question: Question
    habits: Habits

    def section(self) -> str:
        """Return the rules with words from the failures added, field by field."""
        rules = self.question.current
        for field in self.question.fields:
            if field.options:
                rules = self._ruled(field, rules, refused=self.question.refused)
        return rules

    def tool(self) -> str:
        """Return the descriptions with what is typical of the inputs that the tool is right for.

        These are words, and made-up names of the kinds that occur only in those inputs.
        """
        name = self.question.part.removeprefix("tool ")
        right = [case for case in self.question.cases if case.right]
        other_forms = [form_of(case.input) for case in right if case.right[0].tool != name]
        forms_taken = frozenset[str]().union(*other_forms)
        missed = [
            case.input
            for case in right
            if case.right[0].tool == name and (not case.called or case.called[0].tool != name)
        ]
        samples = [
            sample
            for text in missed
            for sample in invented(text).values()
            if not form_of(sample) & forms_taken
        ]
        counts = Counter(
            word for text in missed for word in plain_words(text) if term(word) not in forms_taken
        )
        words = [
            word for word, _ in counts.most_common(self.habits.words_per_failure * len(missed))
        ]
        return self._with_words([*samples, *words])

    def field(self) -> str:
        """Return the descriptions of a field: meanings of options, or where its value is found."""
        name = self.question.part.rpartition(".")[2].removeprefix("output field ")
        schema = object_in(self.question.current)
        for field in self.question.fields:
            meanings = {option: f"value {option}" for option in field.options}
            # A field under another name is recognized by its options.
            if field.name != name and not (meanings and schema.keys() >= set(meanings.values())):
                continue
            if not meanings:
                return self._with_words(_places(self.question.cases, field))
            rules = "\n".join(
                f"- {option}: {' '.join(str(schema[key]).split())}"
                for option, key in meanings.items()
                if schema.get(key)
            )
            learned: dict[str, list[str]] = {key: [] for key in meanings.values()}
            for line in self._ruled(field, rules).split("\n"):
                names = names_of(field.options)
                opening = names.opening(line)
                named = (opening.choice,) if opening else names.named_in(line)
                if named:
                    text = opening.rest if opening else line.removeprefix("- ")
                    learned[meanings[field.options[named[-1]]]].append(text.strip())
            return json_line({**schema, **{key: " ".join(all_) for key, all_ in learned.items()}})
        return self.question.current

    def tool_example(self) -> str:
        """Return an example call: the right call of a failed example, generalized."""
        for case in self._worth_showing():
            for call in case.right:
                if call.tool in self.question.tools[:1] and call.output is not None:
                    general = _Renamed(case)
                    return json_line(general.call(call, general.objective()))
        return self.question.current

    def task_example(self, *, keyed: bool = False) -> str:
        """Return a worked example: what would have been right for a failure, generalized."""
        case = next(self._worth_showing(), None)
        if case is None:
            other_examples = self.question.others if keyed else ()
            return next(iter(other_examples), self.question.current)
        general = _Renamed(case)
        calls = [call for call in case.right if call.output is not None]
        steps: list[Json] = [
            {
                "tool": call.tool,
                **general.call(call, f"use {call.tool} with what was {'found' if i else 'asked'}"),
            }
            for i, call in enumerate(calls)
        ]
        key = [word for word in plain_words(case.input) if word.isascii()][:_KEY_WORDS]
        reply: dict[str, Json] = {
            **({"key": "-".join(key) or "example"} if keyed else {}),
            "objective": general.objective(),
            "steps": steps,
            "outcome": general.outcome(self.question.fields),
        }
        return json_line(reply)

    def visibility(self) -> str:
        """Return the one part to hide or to show with which most of the cases are answered right.

        Of several such parts it is the longest, with all that is below it.
        """
        states = {name: str(value) for name, value in object_in(self.question.current).items()}
        field = next((field for field in self.question.fields if field.options), None)
        if field is None:
            return self.question.current
        right = self._right_with(states, field)
        counts = {}
        for name, state in states.items():
            turned = _TURNED.get(state, "full")
            counts[name, turned] = (
                self._right_with({**states, name: turned}, field),
                self._size(name),
            )
        (name, turned), (count, _) = max(counts.items(), key=itemgetter(1))
        return json_line({name: turned}) if count > right else self.question.current

    def _size(self, name: str) -> int:
        path = _path_of(name)
        parts = self.question.parts.items()
        return sum(len(text) for part, text in parts if _is_within(_path_of(part), path))

    def _right_with(self, states: Mapping[str, str], field: Field) -> int:
        """Return how many cases rules and worked examples answer, if parts are shown like this."""
        hidden = [_path_of(name) for name, value in states.items() if value == "hidden"]
        texts = []
        for name, text in self.question.parts.items():
            path = _path_of(name)
            if any(_is_within(path, above) for above in hidden):
                continue
            objective, arrow, outcome = text.rpartition(" → ")
            if arrow and name.startswith("task example "):
                answer = read_json(outcome)
                option = answer.get(field.name) if isinstance(answer, dict) else answer
                texts.append(f"{' '.join(plain_words(objective))}\n{option}")
            else:
                texts.append(text)
        lesson = learn("\n\n".join(texts), field.options, self.habits.attention)
        right = 0
        for case in self.question.cases:
            scores = lesson.scores(case.evidence if field.name else case.input)
            right += field.options[scores.index(max(scores))] == case.wanted.get(field.name)
        return right

    def _ruled(self, field: Field, rules: str, *, refused: str | None = None) -> str:
        """Return rules about one choice, improved by its right and wrong answers."""
        tried: list[Tried] = []
        for case in self.question.cases:
            given_value = case.given.get(field.name)
            if case.score is not None:
                text = case.evidence if field.name else case.input
                right_value = str(case.wanted.get(field.name))
                tried.append(
                    Tried(text, right_value, None if given_value is None else str(given_value))
                )
        return rewrite(
            rules,
            tried,
            field.options,
            neighbours=self.question.neighbours,
            max_chars=self.question.max_chars,
            refused=refused,
            words_per_failure=self.habits.words_per_failure,
            words_per_rule=self.habits.words_per_rule,
            attention=self.habits.attention,
        )

    def _with_words(self, words: Iterable[str]) -> str:
        """Return the current texts with new words added to the description."""
        current = self.question.current
        schema = object_in(current)
        terms_known = {
            term(word) for name in schema for word in plain_words(f"{name}: {schema[name]}")
        }
        new = [
            word
            for word in dict.fromkeys(words)
            if term(word) not in terms_known and word not in current
        ]
        before = str(schema.get(_DESCRIPTION) or "").rstrip(" .")
        if new:
            schema[_DESCRIPTION] = ", ".join((before, *new) if before else new)
        return json_line(schema)

    def _worth_showing(self) -> Iterator[Case]:
        """Yield failed cases whose right calls are known, least similar to other examples first.

        After a refusal the first of them is skipped. Without tools an expected answer suffices.
        """
        calls_nothing = not self.question.tools
        cases = [
            case
            for case in self.question.cases
            if case.failed and (case.right or (calls_nothing and case.wanted != case.given))
        ]
        objectives = [
            str(object_in(example).get("objective", example)) for example in self.question.others
        ]
        nearness = Nearness([*objectives, *(case.input for case in cases)])

        def rank(case: Case) -> tuple[float, float]:
            _, near = nearness.nearest(case.input, objectives)
            # Rounded, so that the last digits of a float do not decide the order.
            return round(near, 6), case.score or 0.0

        yield from sorted(cases, key=rank)[self.question.refused is not None :]


def _places(cases: Sequence[Case], field: Field) -> Iterator[str]:
    """Yield the keys under which the right calls find the values of a field."""
    for case in cases:
        places = case.wanted.get(field.name)
        for call in reversed(case.right) if case.failed else ():
            for path, leaf in (*leaves(call.output), *leaves(call.input)):
                if leaf == places and places != "":
                    yield from (key for key in path if isinstance(key, str))


def _path_of(name: str) -> str:
    return name.rpartition(" ")[2]


def _is_within(path: str, above: str) -> bool:
    return f"{path}/".startswith(f"{above}/")


class _Renamed:
    """A case with made-up names in place of the real ones."""

    def __init__(self, case: Case) -> None:
        self._case = case
        values = [value for value in case.wanted.values() if isinstance(value, str)]
        named = "\n".join((case.input, *(f"`{value}`" for value in values if value)))
        options = set(values) - {name.value for name in names_in(case.input)}
        # An expected value is an option, which must stay as it is, unless it is spelled like a
        # path.
        paths = {name.value for name in names_in(named) if name.kind == "path"}
        self._names = {
            name: counterpart
            for name, counterpart in invented(named).items()
            if name not in options or name in paths
        }

    def objective(self) -> str:
        """Return the generalized input: with made-up names, or as plain words only."""
        request = on_one_line(self._case.input)
        general = self._text(request, _LONGEST_OBJECTIVE)
        return general if general != request else " ".join(plain_words(request)) or "anything"

    def call(self, call: Call, description: str) -> dict[str, Json]:
        """Return a call with a description."""
        return {
            "description": description,
            "input": self._value(call.input),
            "output": self._value(call.output),
        }

    def outcome(self, fields: Sequence[Field]) -> Json:
        """Return the right answer; options stay as they are."""
        if not any(field.name for field in fields):
            return str(self._case.wanted.get("", self._case.output))
        options = {field.name for field in fields if field.options}
        return {
            name: value if name in options else self._value(value)
            for name, value in self._case.wanted.items()
        }

    def _value(self, value: Json) -> Json:
        match value:
            case str():
                return self._text(value, _LONGEST_TEXT)
            case list():
                return [self._value(item) for item in value[:_MOST_ITEMS]]
            case dict():
                return {key: self._value(item) for key, item in value.items()}
        return value

    def _text(self, text: str, longest: int) -> str:
        return _UNUSABLE.sub("", replaced(text, self._names))[:longest]


REPLIES: Mapping[str, Callable[[Better], str]] = {
    "reflect-section": Better.section,
    "reflect-section-published": Better.section,
    "reflect-tool": Better.tool,
    "reflect-tool-example": Better.tool_example,
    "reflect-task-example": Better.task_example,
    "generate-task-example": lambda better: better.task_example(keyed=True),
    "reflect-output-field": Better.field,
    "reflect-visibility": Better.visibility,
}
"""Functions that reply to a question about one part, by its key."""


ALL_PARTS = "reflect-prompt"
"""The key of the question about all parts of a prompt."""

MarkedPart: TypeAlias = tuple[str, str, Question]
"""The mark, the kind and the question of a part."""

QUESTIONS = frozenset({*REPLIES, ALL_PARTS})
"""The keys of the reflection prompts that the model answers."""

NOTHING_LEARNED = "the embedded offline model learned nothing: "


def reflect(key: str, text: str, habits: Habits = _HABITS) -> str:
    """Return the reply to a reflection prompt: one block with a better text, or with JSON.

    If nothing was learned, the block holds the current text, and the line above it says why.

    Raises:
        ConfigError: the prompt does not show the current text.
    """
    question = read_question(text)
    if key == ALL_PARTS:
        # The refused reply does not say which edit was at fault: add fewer words everywhere.
        fewer = habits.refused(question.refused is not None)
        questions = {prompt: read_question(text, prompt) for prompt in prompts_in(text)}
        of_prompts = questions or {"": question}
        return _edit_all([[*_parts(text, of_prompts[name], name)] for name in of_prompts], fewer)
    better = REPLIES[key](Better(question, habits))
    why = _why_nothing(question) if better == question.current else ""
    return why + block_of(key, better)


def _edit_all(prompts: Sequence[Sequence[MarkedPart]], habits: Habits) -> str:
    """Return the reply to the question about all parts of prompts: one block with edits."""
    edits = [edit for parts in prompts for edit in _edits(parts, habits)]
    mark, _, part = prompts[0][0]
    why = "" if edits else _why_nothing(part)
    edits = edits or [{"part": mark, "text": part.current}]
    return why + block_of(ALL_PARTS, json.dumps({"edits": edits}, ensure_ascii=False))


def _edits(parts: Sequence[MarkedPart], habits: Habits) -> Iterator[Json]:
    """Yield the edits of a prompt.

    Of the sections, only the one whose text names most of the options is edited. Tools and output
    fields get the same reply as to a question about them alone.
    """
    [question, *_] = [part for _, _, part in parts]
    names = names_of(tuple(option for field in question.fields for option in field.options))
    named = {
        mark: len(names.named_in(part.current))
        for mark, kind, part in parts
        if kind in ("section", "summary")
    }
    blamed = max(named, key=lambda mark: named[mark], default="")
    for mark, kind, part in parts:
        better = Better(part, habits)
        new = better.tool() if kind == "tool" else better.field() if kind == "output field" else ""
        if mark == blamed:
            new = better.section()
        if new and new != part.current:
            new = _without_unusable(new)
            edited: Json = new if mark == blamed else object_in(new)
            yield {"part": mark, "reason": "failures belong to it", "text": edited}


def _parts(text: str, question: Question, prompt: str = "") -> Iterator[MarkedPart]:
    """Yield the parts that are shown, of a graph those of one prompt."""
    prefix = prompt and f"{prompt}#"
    block = Blocks(text).titled("current text")
    texts = dict(reversed(block.fenced))
    pieces = {match: piece for piece in _PIECES.split(block.prose) if (match := MARK.match(piece))}
    matches = {match[1]: match for match in pieces if match[2].startswith(prefix)}
    for mark, match in matches.items():
        kind, at_most = _KIND.match(match[2]), AT_MOST.search(pieces[match])
        neighbours = (texts.get(label.lower(), "") for label in matches if label != mark)
        part = attrs.evolve(
            question,
            part=match[2][kind.start(1) :] if kind else match[2],
            current=texts.get(mark.lower(), ""),
            neighbours="\n\n".join((*neighbours, question.neighbours)),
            max_chars=int(at_most[1]) if at_most else None,
            refused=None,
        )
        yield mark, kind[1] if kind else "section", part


def block_of(key: str, content: str) -> str:
    """Return the block of the reply to a question, by its key."""
    language = "instruction" if key.startswith("reflect-section") else "json"
    fence, _, rest = fenced(_without_unusable(content)).partition("\n")
    return f"{fence}{language}\n{rest}"


def _without_unusable(text: str) -> str:
    """Return a text without the characters that no part may contain."""
    return _UNUSABLE.sub("", text).replace("\r", "")


def _why_nothing(question: Question) -> str:
    """Return the line that says why the examples of a question teach nothing."""
    scored = [case for case in question.cases if case.score is not None]
    why = "nothing new tells the failed inputs apart, or there is no room for it"
    if not scored:
        why = "no example has a score"
    elif not any(case.failed for case in scored):
        why = "no example has failed"
    elif not question.fields:
        why = "the answers are free text; it only learns labels and short fields"
    elif not any(case.wanted or case.right for case in scored if case.failed):
        why = "no feedback names an expected answer; it only learns labels and short fields"
    return f"{NOTHING_LEARNED}{why}\n\n"
