"""Prompt files in many styles, and overrides for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from promptgraft.ground.serde import HexDigest
from promptgraft.overrides.parts.body import BodySyntax
from promptgraft.overrides.parts.descriptors import SectionVisibility
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.replacements import (
    OutputFieldOverride,
    SectionOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
)
from promptgraft.overrides.parts.task_example import (
    AddedTaskExample,
    RemovedTaskExample,
    TaskExampleOverride,
    TaskStepOverride,
)
from promptgraft.overrides.resolution import bound_entry, checked_entry
from promptgraft.overrides.types import PromptOverride
from promptgraft.project.markdown import MarkdownPrompt

UNBOUND = HexDigest("")
VALUES = {"name": "Ada", "items": ["one", "two"], "n": 3}

STYLES = Path(__file__).parent / "styles"


def _styles(kind: str) -> tuple[tuple[str, str], ...]:
    """Return the endings and texts of the files of one kind."""
    paths = sorted((STYLES / kind).iterdir())
    return tuple((path.suffix, path.read_bytes().decode()) for path in paths)


OUTPUTS = _styles("outputs")
TOOLS = _styles("tools")
EXAMPLES = _styles("examples")
DOLLAR = (
    "",
    "$name",
    "It is ${name}s, $$5.",
    "\\# no",
    "```\n# code\n```",
    "  x  \n\n- a\n- b",
    "<b>\nx\n</b>",
)
JINJA = (
    "",
    "{{ name }}",
    "{{- name -}} x {{ n + 1 }}!",
    "{%- for one in items -%}\n- {{ one }}\n{%- endfor %}\n{{ name|upper }}",
    "{% raw %}{{ no }}{% endraw %} {# gone #}",
    "a {% set k = n %}{{ k }} {%- set k = 4 %} {{ k }} b",
)
FORMAT = (
    "",
    "{name}",
    '{{"team": "{name}"}}, $5.',
    "{{{name}}} {{}}",
    "```\n# code\n```\n{n}",
    "\\\\# no {{name}}",
)
PLAIN = ("", "<<name>>", "$HOME {{ y }} {% x %} $$5.", "\\# no", "```\n# code\n```", "{{name}} {#")
BODIES = {
    BodySyntax.DOLLAR: DOLLAR,
    BodySyntax.JINJA: JINJA,
    BodySyntax.FORMAT: FORMAT,
    BodySyntax.PLAIN: PLAIN,
}
TEXTS = st.text("ab #$\\{}%-=`~<>!&*:'\"|,[]?@\n\té\x85\u2028😀0", max_size=12)
SAID = st.tuples(TEXTS, st.sampled_from("a#-:é'\"{0"), TEXTS).map("".join)


@st.composite
def files(draw: st.DrawFn) -> dict[str, str]:
    """Draw the files of a prompt by name; the prompt is ``p.md``."""
    syntax = draw(st.sampled_from(BodySyntax))
    bodies = st.sampled_from(BODIES[syntax])
    ending, output = draw(st.sampled_from(OUTPUTS))
    outcome = _outcome(output)
    found: dict[str, str] = {}
    front = f"ns: a/b\nkey: k\nsyntax: {syntax.value}\n"
    if draw(st.booleans()):
        tools_ending, tools = draw(st.sampled_from(TOOLS))
        front += f"tools: p.tools{tools_ending} # here\n"
        found[f"p.tools{tools_ending}"] = tools
        if draw(st.booleans()):
            front += "examples: p.examples.yaml\n"
            _, text = draw(st.sampled_from(EXAMPLES))
            found["p.examples.yaml"] = text.replace("OUTCOME", outcome)
    if ending == ".json":
        found["p.output.json"], output = output, "output: p.output.json\n"
    whole = f"---\n{front}{output}---\n" if draw(st.integers(0, 4)) or found else ""
    whole += _markdown(draw, bodies)
    if not whole.startswith("---"):
        whole = (
            whole if syntax is BodySyntax.DOLLAR else f"---\nsyntax: {syntax.value}\n---\n{whole}"
        )
    if syntax is BodySyntax.PLAIN:
        marks = [mark for mark in ("<<name>>", "{{name}}") if mark in whole]
        whole = whole.replace(
            "syntax: plain\n", f"syntax: plain\nplaceholders: {json.dumps(marks)}\n"
        )
    found["p.md"] = whole
    return {name: _styled(draw, text) for name, text in found.items()}


def _outcome(output: str) -> str:
    if "fields" not in output and "properties" not in output:
        return "maybe so"
    return "{verdict: good, why: x}" if "Review" in output else "{verdict: bad}"


def _markdown(draw: st.DrawFn, bodies: st.SearchStrategy[str]) -> str:
    gaps = st.sampled_from(("\n", "\n\n", "\n\n\n"))
    parts = [draw(st.sampled_from(("", "\n"))), draw(bodies), "\n\n"]
    for number in range(draw(st.integers(0, 3))):
        title = f"Part {number}"
        level = draw(st.integers(1, 3))
        heads = (
            f"{'#' * level} {title}",
            f"{title}\n===",
            f"## {title} {{#p{number}}} ##",
            f"### {title} {{.hidden}}",
            f"# {{#u{number}}}",
        )
        body = draw(bodies)
        parts += [draw(st.sampled_from(heads)), draw(gaps), body, "\n\n" if body else "\n"]
    if draw(st.booleans()):
        parts += ["# Examples", draw(gaps)]
    text = "".join(parts)
    return text if text.strip() else "Just text."


def _styled(draw: st.DrawFn, text: str) -> str:
    if draw(st.booleans()):
        text = text.rstrip("\n") + draw(st.sampled_from(("", "\n", "\n\n")))
    if draw(st.integers(0, 3)) == 0:
        text = text.replace("\n", "\r\n")
    return f"\ufeff{text}" if draw(st.integers(0, 5)) == 0 else text


def write_files(folder: Path, found: dict[str, str]) -> Path:
    """Write the files of a prompt; return the Markdown file."""
    for name, text in found.items():
        (folder / name).write_bytes(text.encode())
    return folder / "p.md"


def overrides(found: MarkdownPrompt) -> st.SearchStrategy[PromptOverride]:
    """Draw an override of any parts of a prompt, as a store would hold it."""
    descriptor = found.prompt.descriptor
    kinds = [st.one_of(entry, st.none(), entry) for entry in _entries(found)]

    def override(entries: list[Entry | None]) -> PromptOverride:
        empty = PromptOverride(ns=descriptor.ns, prompt_key=descriptor.key, tag="t")
        kept = [entry for entry in entries if entry is not None]
        return empty.holding(checked_entry(descriptor, bound_entry(descriptor, e)) for e in kept)

    return st.tuples(*kinds).map(list).map(override)


def _entries(found: MarkdownPrompt) -> Iterator[st.SearchStrategy[Entry]]:
    descriptor = found.prompt.descriptor
    for section in descriptor.sections:
        if section.overridable:
            yield _section(found, section.path, section.placeholders)
    for name in VisibilityOverride.known(descriptor):
        yield st.builds(
            VisibilityOverride,
            path=st.just(tuple(name.split("/"))),
            expected_hash=st.just(UNBOUND),
            visibility=st.sampled_from([SectionVisibility.FULL, SectionVisibility.HIDDEN]),
        )
    for tool in descriptor.tools:
        params = list(tool.param_descriptions)
        said = st.dictionaries(st.sampled_from(params), SAID) if params else st.just({})
        yield st.builds(
            lambda name, text, said: ToolOverride(
                name=name, expected_hash=UNBOUND, description=text, param_descriptions=said
            ),
            st.just(tool.name),
            SAID,
            said,
        )
        for index in range(len(tool.examples)):
            yield _tool_example(tool.name, index)
    for task in descriptor.task_examples:
        yield _task_example(task.path, len(task.example.steps))
    for container in descriptor.containers:
        yield st.builds(
            lambda path, text, steps, outcome: AddedTaskExample(
                container_path=path,
                example_key="added",
                expected_hash=UNBOUND,
                objective=text,
                outcome_json=outcome,
                steps_json=steps,
            ),
            st.just(container.path),
            SAID,
            _steps(),
            st.just(_any_outcome(found)),
        )
    for field in descriptor.output_fields:
        yield st.builds(
            lambda field, text, aliases, said: OutputFieldOverride(
                field=field,
                expected_hash=UNBOUND,
                description=text,
                aliases=aliases,
                value_descriptions=said,
            ),
            st.just(field.field),
            SAID,
            st.none() | st.just((f"{field.name} alias",)) | st.just(())
            if field.name
            else st.none(),
            st.dictionaries(st.sampled_from(field.options), SAID) if field.options else st.just({}),
        )


def _section(
    found: MarkdownPrompt, path: tuple[str, ...], names: tuple[str, ...]
) -> st.SearchStrategy[Entry]:
    syntax = found.prompt.template.section(path).syntax
    spelled = {"dollar": "${%s}", "jinja": "{{ %s }}", "format": "{%s}", "plain": "%s"}[syntax]
    markers = [spelled % name for name in names]
    pieces = st.one_of(
        TEXTS,
        st.sampled_from(
            ("# h", "x\n===", "```\n# c\n```\n", "{{ name }}", "$name", "\\---", "<div>\n")
        ),
    )

    def body(texts: list[str]) -> str:
        parts = [texts[0]]
        for marker, text in zip(markers, texts[1:], strict=False):
            parts += [marker, text]
        return "".join([*parts, *texts[len(markers) + 1 :]])

    return (
        st.lists(pieces, min_size=len(markers) + 1, max_size=len(markers) + 3)
        .map(body)
        .map(lambda text: SectionOverride(path=path, expected_hash=UNBOUND, body=text))
        .filter(lambda entry: _keeps(found, entry))
    )


def _keeps(found: MarkdownPrompt, entry: SectionOverride) -> bool:
    source = found.prompt.template.section(entry.path).source
    pieces = source.parse(entry.body)
    return {*source.placeholders} <= {getattr(piece, "name", "") for piece in pieces}


def _tool_example(name: str, index: int) -> st.SearchStrategy[Entry]:
    find = name == "find"
    given = st.builds(
        lambda w, m: json.dumps({"words": w, "most": m} if find else {}), TEXTS, st.integers()
    )
    result = st.lists(TEXTS, max_size=3).map(json.dumps) if find else TEXTS.map(json.dumps)
    return st.builds(
        lambda text, given, result: ToolExampleOverride(
            tool_name=name,
            example_index=index,
            expected_hash=UNBOUND,
            description=text,
            input_json=given,
            output_json=result,
        ),
        TEXTS,
        given,
        st.none() | result,
    )


def _steps() -> st.SearchStrategy[str]:
    step = st.builds(
        lambda text, result: {
            "tool_name": "stop",
            "description": text,
            "input": {},
            "output": result,
        },
        TEXTS,
        TEXTS,
    )
    return st.lists(step, max_size=2).map(json.dumps)


def _task_example(path: tuple[str, ...], steps: int) -> st.SearchStrategy[Entry]:
    whole = st.builds(
        lambda text, steps: TaskExampleOverride(
            path=path, expected_hash=UNBOUND, objective=text, steps_json=steps
        ),
        st.none() | SAID,
        _steps(),
    )
    removed: st.SearchStrategy[Entry] = st.just(
        RemovedTaskExample(path=path, expected_hash=UNBOUND)
    )
    if not steps:
        return whole | removed
    single = st.builds(
        lambda index, text: TaskExampleOverride(
            path=path,
            expected_hash=UNBOUND,
            step_overrides={index: TaskStepOverride(step_index=index, description=text)},
        ),
        st.integers(0, steps - 1),
        TEXTS,
    )
    return whole | removed | single


def _any_outcome(found: MarkdownPrompt) -> str:
    fields = {field.field for field in found.prompt.descriptor.output_fields}
    if "Review.verdict" in fields:
        return '{"verdict": "bad", "why": "- so: #", "marks": [1, 2]}'
    return '{"verdict": "good"}' if "Answer.verdict" in fields else '"maybe so"'
