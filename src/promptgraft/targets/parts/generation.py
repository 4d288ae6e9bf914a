"""A new task example."""

from __future__ import annotations

import attrs

from promptgraft.parts.added_example import AddedTaskExample
from promptgraft.parts.descriptors import SectionPath, show_path
from promptgraft.parts.entry import UNBOUND, Entry
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.parts.part import PromptModule
from promptgraft.targets.parts.task_example import added_example, proposed_example
from promptgraft.targets.parts.view import View
from promptgraft.targets.replies import fresh_key, write_task_example
from promptgraft.targets.types import MetaPrompt, ModuleDescription


@attrs.frozen
class GenerationModule(PromptModule):
    """A section of task examples, as something that one more example may be written for."""

    container_path: SectionPath

    is_example = True
    is_new = True

    @property
    def kind(self) -> str:
        return "generated example"

    @property
    def name(self) -> str:
        return f"new task example in {show_path(self.container_path)}"

    @property
    def blank(self) -> AddedTaskExample:
        return AddedTaskExample(
            container_path=self.container_path,
            example_key="new",
            expected_hash=UNBOUND,
            objective="",
            outcome_json="",
            steps_json="",
        )

    def has_room(self, view: View) -> bool:
        return len(view.task_examples(self.container_path)) < view.max_task_examples

    def describe(self, view: View) -> ModuleDescription:
        section = view.template.section(self.container_path)
        examples = view.shown_examples(self.container_path)
        return self.described(
            view,
            meta_prompt=MetaPrompt.GENERATION,
            title=section.title,
            text=section.summary or "",
            schema=view.tool_schemas(),
            siblings=[write_task_example(example, key=key) for key, example in examples.items()],
            without=self.container_path,
        )

    def read(self, view: View, text: str) -> AddedTaskExample:
        read = proposed_example(view, text)
        key = fresh_key(read.key, taken_keys(view, self.container_path))
        return added_example(view, self.container_path, key, read)

    def check_entry(self, view: View, entry: Entry) -> None:
        """Refuse a task example that is there already, under whatever key."""
        if not isinstance(entry, AddedTaskExample):
            return
        content = entry.example.content_hash
        for container in view.descriptor.containers:
            for key, example in view.task_examples(container.path).items():
                if example.content_hash == content:
                    raise InvalidProposalError(
                        RejectionReason.DUPLICATE,
                        f"the same example is there already, as "
                        f"`{show_path((*container.path, key))}`; write one that shows something "
                        "else",
                    )


def taken_keys(view: View, container: SectionPath) -> set[str]:
    """Return the keys that a new task example of a section cannot have."""
    source = view.descriptor.container(container)
    return {*view.task_examples(container), *(source.taken if source else ())}
