"""Prompts in Markdown files, with tools, examples and answers in YAML."""

from __future__ import annotations

from pathlib import Path

import attrs

from promptgraft.ground.files import as_path
from promptgraft.overrides.types import PromptOverride
from promptgraft.project.files import FileChange
from promptgraft.project.markdown.loading import Loaded, load_texts, sent_differently
from promptgraft.project.python_source import PythonSource
from promptgraft.prompt.template import Prompt

__all__ = ["MarkdownPrompt", "load_markdown_prompt"]


@attrs.frozen
class MarkdownPrompt:
    """A prompt from a Markdown file, without a store, and its files."""

    prompt: Prompt[object]
    source: MarkdownSource


@attrs.frozen
class MarkdownSource:
    """The Markdown file of a prompt and the YAML files beside it."""

    _loaded: Loaded
    _python: PythonSource

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self._loaded.texts)

    def sent_differently(self) -> str:
        """How the text that models get differs from the file, in words; empty if it does not."""
        return sent_differently(self._loaded)

    def rewritten(self, override: PromptOverride) -> tuple[FileChange, ...]:
        """Return the file changes that apply ``override``, without writing them.

        The new files are read back and compared with the overridden prompt; a difference is
        refused with a ``ConfigError``.
        """
        # Only for winners that go into their source.
        from promptgraft.project.markdown.writing import rewritten

        return rewritten(self._loaded, override, self._python)


def load_markdown_prompt(path: str | Path) -> MarkdownPrompt:
    """Read a prompt from a Markdown file, with the tools and examples beside it.

    Raises:
        DataFormatError: all faults of all its files, one line each.
    """
    path = as_path(path)
    python = PythonSource(path.parent)
    loaded = load_texts(path, {}, python)
    return MarkdownPrompt(Prompt(loaded.template), MarkdownSource(loaded, python))
