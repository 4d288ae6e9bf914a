"""Prompts in Markdown files, with tools, examples and answers in YAML."""

from promptgraft.project.markdown.prompts import MarkdownPrompt, load_markdown_prompt

__all__ = ["MarkdownPrompt", "load_markdown_prompt"]
