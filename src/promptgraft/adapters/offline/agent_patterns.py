"""What a prompt shows an agent: worked examples and calls of tools, read as a model reads them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.offline.agent_names import form_of
from promptgraft.errors import DataFormatError
from promptgraft.parts.examples import ToolCall
from promptgraft.prompt.rendered import RenderedPrompt, RenderedSection
from promptgraft.serde import Json, parse_json

_EXAMPLE = "Example: "
_OBJECTIVE = "Objective: "
_OUTCOME = "Outcome: "
_CALLS = re.compile(r"(?m)^Example calls of `")
_STEP = re.compile(r"\d{1,6}\. `([^`]{1,64})`: (.*)")


@attrs.frozen(kw_only=True)
class Call:
    """A call of a tool that the prompt shows.

    Attributes:
        tool: name of the tool.
        description: when or why one would make it.
        input: the parameters.
        output: the result.
    """

    tool: str
    description: str
    input: Json
    output: Json


@attrs.frozen(kw_only=True)
class Pattern:
    """A worked example.

    Attributes:
        objective: what was asked.
        calls: the calls, in order.
        outcome: the answer; a text where it is no JSON.
    """

    objective: str
    calls: tuple[Call, ...]
    outcome: Json


def read_patterns(rendered: RenderedPrompt[object]) -> tuple[Pattern, ...]:
    """Return the worked examples in the text of a prompt, in reading order."""
    return tuple(read_pattern(section.text) for section in rendered.sections if is_pattern(section))


def is_pattern(section: RenderedSection) -> bool:
    """Tell whether a section is a worked example."""
    return section.title.startswith(_EXAMPLE) and section.text.startswith(_OBJECTIVE)


def read_pattern(text: str) -> Pattern:
    """Read a worked example; what is no call of a tool, with JSON, is passed over."""
    body, _, outcome = text.rpartition(f"\n{_OUTCOME}")
    objective, _, steps = body.partition("\n\nSteps:\n")
    return Pattern(
        objective=objective.removeprefix(_OBJECTIVE),
        calls=tuple(_read_calls(steps)),
        outcome=read_json(outcome),
    )


def _read_calls(text: str) -> Iterator[Call]:
    tool, description, given = "", "", ""
    for line in text.split("\n"):
        if found := _STEP.fullmatch(line):
            tool, description, given = found[1], found[2], ""
        elif line.startswith("   input: "):
            given = line.removeprefix("   input: ")
        elif line.startswith("   output: ") and tool and given:
            output = read_json(line.removeprefix("   output: "))
            yield Call(tool=tool, description=description, input=read_json(given), output=output)
            tool = ""


def shown_call(call: ToolCall) -> Call:
    """Return an example call of a tool, read."""
    return Call(
        tool=call.tool_name,
        description=call.description,
        input=read_json(call.input_json),
        output=read_json(call.output_json),
    )


def read_json(text: str) -> Json:
    """Return JSON, or the text itself where it is none."""
    try:
        return parse_json(text, where="text")
    except DataFormatError:
        return text


def rules_of(rendered: RenderedPrompt[object]) -> str:
    """Return the prompt's own words, as Markdown: no values, no worked examples, no calls."""
    blocks = []
    for section in rendered.sections:
        if not is_pattern(section):
            pieces = (
                segment.text if segment.placeholder is None else " " for segment in section.segments
            )
            blocks.append(f"# {section.title}\n{_CALLS.split(''.join(pieces), maxsplit=1)[0]}")
    return "\n\n".join(blocks)


def input_of(rendered: RenderedPrompt[object]) -> str:
    """Return what stands in for the placeholders of a prompt."""
    return "\n".join(
        segment.text
        for section in rendered.sections
        for segment in section.segments
        if segment.placeholder is not None
    )


@attrs.frozen
class Nearness:
    """Tells how near texts are to one another by form: cosine over words, the rare ones more.

    A word that is in ``n`` of ``N`` texts weighs ``ln(1 + N / n)``. Words of an input that no
    text has are passed over: nothing is known of them.

    Attributes:
        weights: for each word its weight.
    """

    weights: Mapping[str, float]

    def between(self, text: str, other: str) -> float:
        """Return how near ``text`` is to ``other``, 0 to 1."""
        first, second = form_of(text) & self.weights.keys(), form_of(other) & self.weights.keys()
        shared = self._square(first & second)
        return shared / math.sqrt(self._square(first) * self._square(second)) if shared else 0.0

    def nearest(self, text: str, others: Sequence[str]) -> tuple[int, float]:
        """Return position and nearness of the nearest of ``others``; -1 when there is none."""
        values = [self.between(text, other) for other in others]
        best = max(values, default=0.0)
        return (values.index(best), best) if best > 0 else (-1, 0.0)

    def _square(self, words: Iterable[str]) -> float:
        # Sums of floats depend on their order, and that of a set on the process.
        return sum(self.weights[word] ** 2 for word in sorted(words))


def nearness_over(texts: Sequence[str]) -> Nearness:
    """Return the nearness that a collection of texts gives rise to."""
    counts = Counter(word for text in texts for word in form_of(text))
    total = len(texts)
    return Nearness({word: math.log(1 + total / count) for word, count in counts.items()})
