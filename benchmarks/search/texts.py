"""Tasks of real texts that every checkout has: tickets, and the sources of the standard library.

The texts are read when they are needed. Another Python has other sources, so scores compare only
between runs of the same Python.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import random
import re
import sys
import sysconfig
import textwrap
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs

from promptgraft import Case, MarkdownSection, PromptTemplate, TaskExamplesSection
from promptgraft.evals import metrics
from promptgraft.evals.types import Metric
from promptgraft.ground.serde import Json, digest

TRIAGE = Path(__file__).parents[2] / "examples" / "triage"
sys.path.insert(0, str(TRIAGE))

from task import TEMPLATE, Queue, Ticket, load_tickets  # noqa: E402

_LIBRARY = Path(sysconfig.get_path("stdlib"))
_ELSEWHERE = {"encodings", "pydoc_data", "site-packages", "test", "tests", "idlelib"}
_ELSEWHERE |= {"lib2to3", "tkinter", "distutils"}
_FEWEST_WORDS = 6
_MOST_CHARS = 1_500
_MOST_OF_A_LABEL = 60


Package = StrEnum(
    "Package",
    "ASYNCIO DECIMAL DOCTEST EMAIL HTTP IMAPLIB IMPORTLIB INSPECT IPADDRESS LOGGING MAILBOX "
    "MULTIPROCESSING PATHLIB TARFILE THREADING TYPING UNITTEST URLLIB XML ZIPFILE",
)
"""Where a docstring comes from; all are in every Python from 3.11 on."""

Verb = StrEnum("Verb", "ADD CONVERT CREATE FIND GET PARSE READ RETURN SET WRITE")
"""What a function does, by the first word of its docstring."""


@attrs.frozen
class Raised:
    """What a docstring says may be raised."""

    exception: str


@attrs.frozen
class Text:
    """A text, and the right answer to it."""

    text: str
    answer: str

    @functools.cached_property
    def content(self) -> str:
        """The words alone: texts of the same words are the same text."""
        return " ".join(re.findall(r"\w+", self.text.lower()))


@attrs.frozen
class Parts:
    """Texts to learn from, to compare on, and held out."""

    train: Sequence[Text]
    validation: Sequence[Text]
    held_out: Sequence[Text]


@attrs.frozen(kw_only=True)
class TextTask:
    """A task of real texts.

    Attributes:
        says: what is asked.
        load: reads all texts.
        template: the prompt that a search begins with; a text goes to ``$text``.
        changed: keys of the sections that may change.
        labels: the answers that there are; none where the answer is a name in the text.
        metrics: judge an answer.
        sizes: texts to learn from, to compare on, and at most held out.
    """

    says: str
    load: Callable[[], Sequence[Text]]
    template: PromptTemplate[Any]
    changed: tuple[str, ...]
    labels: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = (metrics.exact(),)
    sizes: tuple[int, int, int] = (120, 60, 200)

    def case(self, text: Text) -> Case:
        """Return a text as a case; its id is the digest of its content."""
        expected: Json = text.answer if self.labels else {"exception": text.answer}
        return Case(id=digest(text.content)[:16], input=text.text, expected=expected)

    def split(self, seed: int) -> Parts:
        """Return the texts shuffled and split by a seed; no two have the same content.

        Raises:
            ValueError: there are not enough texts for any to be held out.
        """
        texts = list({text.content: text for text in reversed(self.load())}.values())
        texts.sort(key=lambda text: text.content)
        random.Random(f"texts/{seed}").shuffle(texts)
        train, validation, held_out = self.sizes
        seen = train + validation
        if len(texts) <= seen:
            raise ValueError(f"{self.says}: {len(texts)} texts; expected more than {seen}")
        return Parts(texts[:train], texts[train:seen], texts[seen : seen + held_out])


@attrs.frozen
class _Documented:
    """A function or class with a docstring, or a whole module.

    Attributes:
        said: the docstring.
        below: the source below the docstring; empty of classes and modules.
    """

    path: Path
    kind: str
    said: str
    below: str = ""


@functools.cache
def _library() -> Sequence[_Documented]:
    """Return what has a docstring in the standard library, in order."""
    found: list[_Documented] = []
    for path in sorted(_LIBRARY.rglob("*.py")):
        short = path.relative_to(_LIBRARY)
        if _ELSEWHERE.isdisjoint(short.parts):
            # Some files are wrong on purpose, or in another encoding.
            with contextlib.suppress(SyntaxError, ValueError):
                found.extend(_read(short, path.read_text("utf-8")))
    return found


def _read(path: Path, source: str) -> Iterator[_Documented]:
    tree, lines = ast.parse(source), source.split("\n")
    yield _Documented(path, "module", ast.get_docstring(tree) or "")
    for node in _statements(tree):
        if isinstance(node, ast.ClassDef) and (said := ast.get_docstring(node)):
            yield _Documented(path, "class", said)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            said := ast.get_docstring(node)
        ):
            below = lines[node.body[1].lineno - 1 : node.end_lineno] if node.body[1:] else []
            yield _Documented(path, "function", said, "\n".join(below))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what `ast.walk` does, but for expressions, which hold no docstring."""
    waiting = deque[ast.AST]([tree])
    while waiting:
        node = waiting.popleft()
        yield node
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            waiting.extend(getattr(node, block, ()))


def _capped(texts: Iterator[Text]) -> list[Text]:
    """Return the first texts of each answer, shortened; none is a part of another one."""
    kept: dict[str, Text] = {}
    of_answer: Counter[str] = Counter()
    for text in (Text(one.text[:_MOST_CHARS], one.answer) for one in texts):
        is_short = len(text.content.split()) < _FEWEST_WORDS
        if not (is_short or text.content in kept or of_answer[text.answer] >= _MOST_OF_A_LABEL):
            of_answer[text.answer] += 1
            kept[text.content] = text
    everything = "\n".join(kept)
    return [text for content, text in kept.items() if everything.count(content) == 1]


def _tickets() -> list[Text]:
    """Return the tickets of ``examples/triage``."""
    texts = []
    for name in ("train.jsonl", "test.jsonl"):
        for example in load_tickets(TRIAGE / name):
            [ticket] = example.params
            assert isinstance(ticket, Ticket)
            said = f"Plan: {ticket.plan}\nSubject: {ticket.subject}\n\n{ticket.message}"
            texts.append(Text(said, Queue(example.label).value))
    return texts


def _package(path: Path) -> str:
    return path.parts[0].removesuffix(".py").removeprefix("_py")


@functools.cache
def _docstrings() -> Sequence[Text]:
    """Return docstrings of functions and classes, with the package that they are of."""
    packages = {package.value for package in Package}
    return _capped(
        Text(one.said, _package(one.path))
        for one in _library()
        if one.kind != "module" and _package(one.path) in packages
    )


@functools.cache
def _bodies() -> Sequence[Text]:
    """Return sources of functions without name and docstring, with the verb of the docstring."""
    verbs = {verb.value for verb in Verb}
    return _capped(
        Text(textwrap.dedent(one.below), verb)
        for one in _library()
        if one.below
        and (verb := one.said.split()[0].strip(",.:;").lower().removesuffix("s")) in verbs
    )


_RAISED = re.compile(
    r"\b(?:raises?|raising|throws?)(?: an?| the)?\s+`{0,2}(?P<after>[A-Z]\w*[a-z]\w*)"
    r"|(?P<before>[A-Z]\w*[A-Z]\w*)`{0,2}(?: exception)? (?:is|will be|are) (?:also )?raised"
)


@functools.cache
def _raising() -> Sequence[Text]:
    """Return the paragraphs of docstrings that say what is raised, with the first name of it."""
    return _capped(
        Text(" ".join(paragraph.split()), name["after"] or name["before"])
        for one in _library()
        if one.kind != "module"
        for paragraph in re.split(r"\n\s*\n", one.said)
        if ">>>" not in paragraph and (name := _RAISED.search(paragraph))
    )


def _prompt(
    key: str, output_type: type[Any], asked: str, *sections: MarkdownSection
) -> PromptTemplate[Any]:
    return PromptTemplate[Any](
        ns="benchmarks",
        key=key,
        output_type=output_type,
        sections=(
            MarkdownSection(title="Task", key="task", template=asked),
            *sections,
            MarkdownSection(title="Text", key="text", template="$text", overridable=False),
        ),
    )


def _rules(lines: Iterator[str]) -> MarkdownSection:
    return MarkdownSection(title="Rules", key="rules", template="\n".join(lines).replace("$", "$$"))


def _about(package: Package) -> str:
    """Return the first line that a package says of itself, or its name."""
    homes = {Path(f"{package}.py"), Path(f"_py{package}.py"), Path(package, "__init__.py")}
    said = (one.said for one in _library() if one.kind == "module" and one.path in homes)
    return next(filter(None, said), package).split("\n")[0]


def _tickets_task() -> TextTask:
    text = MarkdownSection(title="Text", key="text", template="$text", overridable=False)
    return TextTask(
        says="which of 10 queues does a support ticket go to?",
        load=_tickets,
        template=attrs.evolve(TEMPLATE, sections=(*TEMPLATE.sections[:-1], text)),
        changed=("queues", "conventions"),
        labels=tuple(queue.value for queue in Queue),
    )


def _docstrings_task() -> TextTask:
    return TextTask(
        says="which of 20 packages of the standard library has this docstring?",
        load=_docstrings,
        template=_prompt(
            "docstrings",
            Package,
            "Which package of the Python standard library does a docstring belong to?",
            _rules(f"- {package}: {_about(package)}" for package in Package),
        ),
        changed=("rules",),
        labels=tuple(package.value for package in Package),
    )


def _sources_task() -> TextTask:
    return TextTask(
        says="with which of 10 verbs does the docstring of this function body begin?",
        load=_bodies,
        template=_prompt(
            "sources",
            Verb,
            "With which verb does the description of a function of Python begin?",
            _rules(f"- {verb}: functions that {verb} something" for verb in Verb),
        ),
        changed=("rules",),
        labels=tuple(verb.value for verb in Verb),
    )


def _raises_task() -> TextTask:
    examples = TaskExamplesSection(
        title="Examples", key="examples", template="Texts that were answered rightly:"
    )
    return TextTask(
        says="which exception does this paragraph of a docstring say is raised first?",
        load=_raising,
        template=_prompt(
            "raises",
            Raised,
            "Which exception does the text say is raised? Answer with the first.",
            examples,
        ),
        changed=("task",),
        metrics=(metrics.json_match(),),
        sizes=(60, 30, 200),
    )


TASKS: Mapping[str, Callable[[], TextTask]] = {
    "tickets": _tickets_task,
    "docstrings": _docstrings_task,
    "sources": _sources_task,
    "raises": _raises_task,
}
"""What makes each task, by name."""
