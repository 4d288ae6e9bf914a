"""Two graphs that write recaps of games, answered as far as their texts go."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import attrs

from promptgraft import Deadline, MarkdownSection, Prompt, PromptResponse, PromptTemplate
from promptgraft.adapters.base import answered
from promptgraft.graphs import Graph, Node, Run
from promptgraft.runtime import SessionProtocol


@attrs.frozen
class Draft:
    text: str


def template(key: str, text: str, *, ns: str = "candidate") -> PromptTemplate[Any]:
    sections = [
        MarkdownSection(title="Task", key="task", template=text),
        MarkdownSection(title="Draft", key="draft", template="$text", overridable=False),
    ]
    return PromptTemplate[Any](ns=ns, key=key, sections=sections)


class Writer:
    """Answers with its prompt's key and the draft; ``review`` passes after so many words of it."""

    identity = "writer"

    def evaluate(
        self, prompt: Prompt[Any], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[Any]:
        rendered = prompt.render(session)
        [draft] = [one.text for one in rendered.sections if one.path == ("draft",)]
        if rendered.key == "review":
            said = "pass" if draft.count("polish") > _revisions(draft) else "revise"
        else:
            said = f"{rendered.key}({draft})"
        return answered(rendered, said, session=session)


def _revisions(draft: str) -> int:
    asked = re.search(r"revisions=(\d+)", draft)
    return int(asked[1]) if asked else 0


def merged(*parts: str) -> Draft:
    return Draft(" ".join(parts))


def article(run: Run, game: Draft) -> str:
    """Title, introduction and highlight side by side; polished until the review passes."""
    facts: Draft = run.do("prepare", Draft, game.text)
    parts = run.together(
        lambda branch: branch.ask("title", facts),
        lambda branch: branch.ask("introduction", facts),
        lambda branch: branch.ask("highlight", facts),
    )
    draft: Draft = run.do("merge", merged, *parts)
    while True:
        draft = Draft(run.ask("polish", draft))
        if run.ask("review", draft) == "pass":
            return str(run.do("publish", str, draft.text))


ARTICLE = Graph(
    "candidate",
    flow=article,
    nodes=[
        Node("prepare"),
        Node("title", template("title", "Generate a Chinese recap title")),
        Node("introduction", template("introduction", "Write the game background")),
        Node("highlight", template("highlight", "Extract key possessions")),
        Node("merge"),
        Node("polish", template("polish", "Polish the recap structure and wording")),
        Node("review", template("review", "Review factual consistency")),
        Node("publish"),
    ],
    edges=[
        ("prepare", "title"),
        ("prepare", "introduction"),
        ("prepare", "highlight"),
        ("title", "merge"),
        ("introduction", "merge"),
        ("highlight", "merge"),
        ("merge", "polish"),
        ("polish", "review"),
        ("review", "polish"),
        ("review", "publish"),
    ],
)


AGENTS = ("headline", "highlights", "stats_angle", "recap_writer", "sports_editor")


def recap(run: Run, game: Draft) -> str:
    """Three drafts side by side, joined, written out and edited."""
    facts = run.do("prepare_game_input", Draft, game.text)
    parts = run.together(*(partial(_asked, name, facts) for name in AGENTS[:3]))
    joined = run.do("join_recap_parts", merged, *parts)
    body = Draft(run.ask("recap_writer", joined))
    return str(run.ask("sports_editor", body))


def _asked(name: str, facts: Draft, branch: Run) -> str:
    return str(branch.ask(name, facts))


RECAP = Graph(
    "sports/recap",
    flow=recap,
    nodes=[Node(name, template(name, f"Be the {name}.", ns="sports/recap")) for name in AGENTS],
)
