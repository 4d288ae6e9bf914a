"""A task example, mutated."""

from __future__ import annotations

import attrs

from promptgraft.parts.added_example import AddedTaskExample
from promptgraft.parts.descriptors import SectionPath
from promptgraft.parts.entry import UNBOUND
from promptgraft.parts.examples import one_line
from promptgraft.parts.task_example import TaskExampleOverride
from promptgraft.serde import Json, parse_json
from promptgraft.targets.parts.part import PromptModule
from promptgraft.targets.parts.view import View
from promptgraft.targets.replies import TaskExampleText, read_task_example, write_task_example
from promptgraft.targets.types import MetaPrompt, ModuleDescription


@attrs.frozen
class TaskExampleModule(PromptModule):
    """One task example, of the source or added."""

    path: SectionPath

    is_example = True

    @property
    def blank(self) -> TaskExampleOverride:
        return TaskExampleOverride(path=self.path, expected_hash=UNBOUND)

    def describe(self, view: View) -> ModuleDescription:
        section, key = self.path[:-1], self.path[-1]
        examples = view.shown_examples(section)
        own = examples.pop(key)
        return self.described(
            view,
            meta_prompt=MetaPrompt.TASK_EXAMPLE,
            title=key,
            text=write_task_example(own),
            schema=view.tool_schemas(),
            siblings=[write_task_example(example, key=name) for name, example in examples.items()],
            without=section,
        )

    def read(self, view: View, text: str) -> TaskExampleOverride | AddedTaskExample:
        read = proposed_example(view, text)
        if view.descriptor.task_example(self.path) is None:
            return added_example(view, self.path[:-1], self.path[-1], read)
        return attrs.evolve(
            self.blank,
            objective=read.objective,
            outcome_json=view.own_outcome(read.outcome_json),
            steps_json=_steps_json(read),
        )


def proposed_example(view: View, text: str) -> TaskExampleText:
    """Return the task example that was proposed.

    Raises:
        InvalidProposalError: it cannot be read.
    """
    outcome_is_text = view.template.output_type in (None, str)
    return read_task_example(text, outcome_is_text=outcome_is_text)


def added_example(
    view: View, container: SectionPath, key: str, read: TaskExampleText
) -> AddedTaskExample:
    """Return the override that adds what was proposed to a section.

    Raises:
        InvalidProposalError: two names in the outcome are those of one field.
    """
    return AddedTaskExample(
        container_path=container,
        example_key=key,
        expected_hash=UNBOUND,
        objective=read.objective,
        outcome_json=view.own_outcome(read.outcome_json),
        steps_json=_steps_json(read),
    )


def _steps_json(read: TaskExampleText) -> str:
    steps: list[Json] = [
        {
            "tool_name": step.tool_name,
            "description": step.description,
            "input": parse_json(step.input_json, where="input"),
            "output": parse_json(step.output_json, where="output"),
        }
        for step in read.steps
    ]
    return one_line(steps)
