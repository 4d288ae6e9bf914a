"""New descriptions, examples and names in the YAML of a prompt."""

from __future__ import annotations

from collections.abc import Iterator

from promptgraft.errors import ConfigError
from promptgraft.parts.descriptors import OutputFieldDescriptor
from promptgraft.parts.effective import EffectiveField, EffectiveParts
from promptgraft.parts.examples import ToolCall, WorkedExample
from promptgraft.project.markdown.front_matter import DEFAULT_NAME
from promptgraft.project.markdown.loading import EXAMPLES, TOOLS, Loaded
from promptgraft.project.markdown.values import nested_name
from promptgraft.project.markdown.yaml_edits import Splice, YamlEdits
from promptgraft.serde import Json, parse_json
from promptgraft.strict.nodes import Node


def output_splices(loaded: Loaded, parts: EffectiveParts) -> Iterator[Splice]:
    """Yield the changes to what the front matter says of the answer.

    Raises:
        ConfigError: the answer is a Python type.
    """
    descriptor = loaded.template.descriptor
    source = EffectiveParts.of_source(descriptor).fields
    changed = [
        field
        for field in descriptor.output_fields
        if parts.fields[field.field] != source[field.field]
    ]
    front = loaded.outline.front
    if not changed or front is None:
        return
    places = dict(_places(loaded))
    edits = YamlEdits(loaded.outline.text[front.start : front.end])
    for field in changed:
        if field.field not in places:
            said = f"output field `{field.field}` is written in Python; change it there"
            raise ConfigError(loaded.front.line(("output",), said))
        _edit_field(edits, places[field.field], field, parts.fields[field.field])
    for splice in edits.splices:
        yield Splice(splice.start + front.start, splice.end + front.start, splice.text)


def _places(loaded: Loaded) -> Iterator[tuple[str, Node]]:
    """Yield each field of the answer that the front matter describes, by its key."""
    output = loaded.front.root.member("output")
    if "choices" in output.members():
        yield loaded.template.descriptor.output_fields[0].field, output
    else:
        yield from _fields(output, DEFAULT_NAME)


def _fields(owner: Node, name: str) -> Iterator[tuple[str, Node]]:
    own = owner.member("name").value
    name = own if isinstance(own, str) else name
    for field, node in owner.member("fields").members().items():
        yield f"{name}.{field}", node
        yield from _fields(node, nested_name(name, field))


def _edit_field(
    edits: YamlEdits, place: Node, field: OutputFieldDescriptor, now: EffectiveField
) -> None:
    edits.change((*place.path, "description"), field.description, now.description)
    edits.change((*place.path, "aliases"), list(field.aliases), list(now.aliases))
    before: dict[str, Json] = {option: field.values.get(option) for option in field.options}
    after: dict[str, Json] = {option: now.values.get(option) for option in field.options}
    edits.change((*place.path, "choices"), before, after)


def with_tools(loaded: Loaded, parts: EffectiveParts) -> str:
    """Return the file of tools as an override leaves it."""
    beside = loaded.beside[TOOLS]
    edits = YamlEdits(beside.text)
    for index, tool in enumerate(loaded.template.descriptor.tools):
        now = parts.tools[tool.name]
        here = (TOOLS, index)
        edits.change((*here, "description"), tool.description, now.description)
        for name, text in tool.param_descriptions.items():
            place = (*here, "parameters", name, "description")
            edits.change(place, text, now.param_descriptions[name])
        for at, (before, after) in enumerate(zip(tool.examples, now.examples, strict=True)):
            edits.change((*here, "examples", at), _call(before), _call(after))
    return edits.edited()


def with_examples(loaded: Loaded, parts: EffectiveParts) -> str:
    """Return the file of worked examples as an override leaves it."""
    beside = loaded.beside[EXAMPLES]
    edits = YamlEdits(beside.text)
    items: list[tuple[Json, Json]] = []
    for found in loaded.template.descriptor.task_examples:
        before = _example(found.path[-1], found.example, overridable=found.overridable)
        now = parts.examples[found.path[:-1]].get(found.path[-1])
        after = _example(found.path[-1], now, overridable=found.overridable) if now else None
        items.append((before, after))
    known = {found.path for found in loaded.template.descriptor.task_examples}
    added: list[Json] = [
        {
            name: said
            for name, said in _example(key, example, overridable=True).items()
            if said != []
        }
        for key, example in parts.examples[beside.section].items()
        if (*beside.section, key) not in known
    ]
    edits.edit_list((EXAMPLES,), items, added=added)
    return edits.edited()


def _call(call: ToolCall) -> dict[str, Json]:
    return {
        "description": call.description,
        "input": parse_json(call.input_json, where="input"),
        "output": parse_json(call.output_json, where="output"),
    }


def _example(key: str, example: WorkedExample, *, overridable: bool) -> dict[str, Json]:
    steps: list[Json] = [{"tool": step.tool_name, **_call(step)} for step in example.steps]
    return {
        "key": key,
        "objective": example.objective,
        "steps": steps,
        "outcome": parse_json(example.outcome_json, where="outcome"),
        **({} if overridable else {"frozen": True}),
    }
