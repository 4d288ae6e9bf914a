"""Prompts in Markdown files, and the way back for what was found to be better."""

from __future__ import annotations

from pathlib import Path

import attrs

from promptgraft.overrides.types import PromptOverride
from promptgraft.project.markdown.loading import Loaded, load_texts
from promptgraft.project.markdown.python import Python
from promptgraft.project.markdown.writing import rewritten
from promptgraft.project.sources import FileChange, PromptSource
from promptgraft.prompt.template import Prompt


@attrs.frozen
class MarkdownPrompt:
    """A prompt that stands in a Markdown file.

    Attributes:
        prompt: the prompt, without a store.
        source: its files.
    """

    prompt: Prompt[object]
    source: PromptSource


@attrs.frozen
class _MarkdownSource:
    """The Markdown file of a prompt, and the YAML files beside it."""

    _loaded: Loaded
    _python: Python

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self._loaded.texts)

    def rewritten(self, override: PromptOverride) -> tuple[FileChange, ...]:
        return rewritten(self._loaded, override, self._python)


def load_markdown_prompt(path: Path) -> MarkdownPrompt:
    """Return the prompt that a Markdown file holds, with the tools and examples beside it.

    Raises:
        DataFormatError: with every fault of all its files, one line each.
    """
    python = Python(path.parent)
    loaded = load_texts(path, {}, python)
    return MarkdownPrompt(Prompt(loaded.template), _MarkdownSource(loaded, python))
