"""What is written back reads as what the override made of the prompt."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from project.markdown.prompt_files import VALUES, files, overrides, write_files
from promptgraft.errors import ConfigError
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.overrides.parts.descriptors import section_part, show_path, tool_part
from promptgraft.overrides.types import PromptOverride
from promptgraft.project.files import FileChange
from promptgraft.project.markdown import MarkdownPrompt, load_markdown_prompt
from promptgraft.prompt import Prompt, RenderedPrompt


def rendered(found: MarkdownPrompt, override: PromptOverride | None = None) -> object:
    store = InMemoryPromptOverridesStore()
    template = found.prompt.template
    if override:
        store.upsert(template.descriptor, override)
    prompt = Prompt(template, overrides_store=store, overrides_tag="t").bind(VALUES)
    return shown(prompt.render())


def shown(prompt: RenderedPrompt[object]) -> object:
    tools = [(tool.name, tool.description, tool.params_schema) for tool in prompt.tools]
    return prompt.text, tools, prompt.output_schema


def attempt(found: MarkdownPrompt, override: PromptOverride) -> tuple[tuple[FileChange, ...], str]:
    try:
        return found.source.rewritten(override), ""
    except ConfigError as error:
        return (), str(error)


def hashes(found: MarkdownPrompt) -> dict[str, str]:
    descriptor = found.prompt.descriptor
    return {
        **{section_part(section.path): section.content_hash for section in descriptor.sections},
        **{tool_part(tool.name): tool.content_hash for tool in descriptor.tools},
        **{
            f"task example {show_path(task.path)}": task.content_hash
            for task in descriptor.task_examples
        },
        **{f"output field {field.field}": field.content_hash for field in descriptor.output_fields},
        "interface": descriptor.interface_hash,
    }


@settings(
    max_examples=25,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
@given(st.data())
def test_a_rewritten_file_says_what_the_file_said_with_the_override(data: st.DataObject) -> None:
    texts = data.draw(files())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write_files(folder, texts)
        found = load_markdown_prompt(path)
        override = data.draw(overrides(found))
        wanted = rendered(found, override)
        changes, refused = attempt(found, override)
        if refused:
            event(refused.split(": ")[-1])
            assert "leaves code or HTML open" in refused or "moves or repeats" in refused
            return
        event(f"{len(changes)} files")
        for change in changes:
            assert change.path.read_bytes().decode() == change.before != change.after
            change.path.write_bytes(change.after.encode())
        written = load_markdown_prompt(path)
        assert rendered(written) == wanted
        assert written.source.rewritten(override) == ()
        touched = {entry.target for entry in override.entries()}
        kept = {part: digest for part, digest in hashes(found).items() if part not in touched}
        assert kept.items() <= hashes(written).items()
