"""Questions about the code of a small shop, and the agent's prompt that answers them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import attrs

from promptgraft import (
    GepaExample,
    MarkdownSection,
    Prompt,
    PromptResponse,
    PromptTemplate,
    ProviderAdapter,
    RolloutFeedback,
    Session,
)
from promptgraft.adapters.base import ToolInvoked, evaluated
from promptgraft.ground.serde import parse_json, unstructure
from promptgraft.ground.strict import structure
from promptgraft.prompt import (
    Described,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)
from promptgraft.runtime import SessionProtocol

HERE = Path(__file__).parent


class Category(Enum):
    """What is wrong."""

    INJECTION = "injection"
    ACCESS = "access"
    LEAK = "leak"
    SLOW = "slow"
    MEMORY = "memory"


class Severity(Enum):
    """How bad it is."""

    CRITICAL = "critical"
    MODERATE = "moderate"
    MINOR = "minor"


@attrs.frozen
class Finding:
    """The answer."""

    category: Annotated[Category, Described("What is wrong.")]
    severity: Annotated[Severity, Described("How bad it is.")]
    file: Annotated[str, Described("The path of the file.")]


@attrs.frozen
class Question:
    """What a developer asks."""

    text: str


@attrs.frozen
class Query:
    """Parameters of ``search_code``."""

    query: Annotated[str, Described("What to look for.")]
    limit: Annotated[int, Described("Hits at most.")] = 5


@attrs.frozen
class Hit:
    """One line of code."""

    file: str
    line: int
    text: str


@attrs.frozen
class Hits:
    """What ``search_code`` returns."""

    hits: tuple[Hit, ...]


@attrs.frozen
class FilePath:
    """Parameters of ``read_file``."""

    path: Annotated[str, Described("The file.")]


@attrs.frozen
class FileText:
    """What ``read_file`` returns."""

    path: str
    text: str


@attrs.frozen
class _Source:
    path: str
    text: str


@functools.cache
def corpus() -> dict[str, str]:
    """Return the text of each file of the shop, by path."""
    file = HERE / "corpus.json"
    found = structure(
        parse_json(file.read_bytes(), where=str(file)), tuple[_Source, ...], where=str(file)
    )
    return {source.path: source.text for source in found}


def search_code(params: Query) -> Hits:
    """Return the first lines that hold the query, in the order of the files."""
    hits = [
        Hit(path, number, line.strip())
        for path, text in sorted(corpus().items())
        for number, line in enumerate(text.split("\n"), start=1)
        if params.query and params.query in line
    ]
    return Hits(tuple(hits[: max(0, params.limit)]))


def read_file(params: FilePath) -> FileText:
    """Return a file.

    Raises:
        FileNotFoundError: there is none.
    """
    if params.path not in corpus():
        raise FileNotFoundError(f"there is no file `{params.path}`")
    return FileText(params.path, corpus()[params.path])


SEARCH = Tool[Query, Hits](
    name="search_code",
    description="Searches.",
    params_type=Query,
    result_type=Hits,
    handler=search_code,
    examples=(
        ToolExample(
            description="Find the function `parse_date`",
            input=Query("parse_date", 1),
            output=Hits((Hit("tools/all.py", 3, "from tools.dates import parse_date"),)),
        ),
        ToolExample(
            description="Find open work",
            input=Query("TODO", 1),
            output=Hits((Hit("tools/dates.py", 9, "# TODO: leap years"),)),
        ),
    ),
)

READ = Tool[FilePath, FileText](
    name="read_file",
    description="Reads.",
    params_type=FilePath,
    result_type=FileText,
    handler=read_file,
)


def _step(tool: str, why: str, params: object, result: object) -> TaskStep:
    return TaskStep(
        tool_name=tool, example=ToolExample(description=why, input=params, output=result)
    )


SECURITY = TaskExamplesSection(
    title="Security questions",
    key="security",
    summary="Worked examples on what strangers can do.",
    examples=(
        TaskExample(
            key="attacker",
            objective="What could an attacker do with the function `read_note`?",
            steps=(
                _step(
                    "search_code",
                    "find the function",
                    Query("read_note"),
                    Hits((Hit("notes/all.py", 4, "from notes.reading import read_note"),)),
                ),
            ),
            outcome=Finding(Category.INJECTION, Severity.CRITICAL, "notes/all.py"),
        ),
    ),
)

PERFORMANCE = TaskExamplesSection(
    title="Performance questions",
    key="performance",
    summary="Worked examples on time and memory.",
    examples=(
        TaskExample(
            key="hold-up",
            objective="Does the function `list_notes` hold up with many notes?",
            steps=(
                _step(
                    "search_code",
                    "find the function",
                    Query("list_notes"),
                    Hits((Hit("notes/all.py", 5, "from notes.listing import list_notes"),)),
                ),
            ),
            outcome=Finding(Category.SLOW, Severity.MODERATE, "notes/all.py"),
        ),
        TaskExample(
            key="slows-down",
            objective="What slows the module notes/sorting.py down?",
            steps=(
                _step(
                    "read_file",
                    "see the module",
                    FilePath("notes/sorting.py"),
                    FileText("notes/sorting.py", "def sort_notes(): ..."),
                ),
            ),
            outcome=Finding(Category.SLOW, Severity.MODERATE, "notes/sorting.py"),
        ),
    ),
)

TEMPLATE = PromptTemplate[Finding](
    ns="examples/code",
    key="search",
    name="Questions about code",
    output_type=Finding,
    sections=(
        MarkdownSection(
            title="Role",
            key="role",
            template=(
                "You answer questions of developers about the code of a shop. Use the tools, name "
                "the worst problem that you find, and say in which file it is."
            ),
            tools=(SEARCH, READ),
        ),
        MarkdownSection(
            title="Guidelines",
            key="guidelines",
            template="""\
- injection: foreign text is taken for code
- access: somebody may do what he should not
- leak: something is revealed
- slow: it takes too long
- memory: it takes too much room
- critical: very bad
- moderate: bad
- minor: not so bad""",
        ),
        SECURITY,
        PERFORMANCE,
        MarkdownSection(
            title="Question",
            key="question",
            template="$text",
            overridable=False,
            params_type=Question,
        ),
    ),
)


@attrs.frozen
class Truth:
    """What is right, and how to find it out.

    Attributes:
        category: what is wrong.
        severity: how bad it is.
        file: where it is.
        query: what to search for first; None where the question names the file.
    """

    category: Category
    severity: Severity
    file: str
    query: str | None


@attrs.frozen
class _Row:
    id: str
    text: str
    category: Category
    severity: Severity
    file: str
    query: str | None


def load_questions(path: Path) -> tuple[GepaExample, ...]:
    """Read questions from a file with one JSON object a line.

    Raises:
        DataFormatError: naming file and line.
    """
    examples: list[GepaExample] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        where = f"{path}:{number}"
        row = structure(parse_json(line, where=where), _Row, where=where)
        truth = Truth(row.category, row.severity, row.file, row.query)
        examples.append(GepaExample(id=row.id, params=(Question(row.text),), label=truth))
    return tuple(examples)


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score each field of an answer: 0.4 for file and category each, 0.2 for severity."""
    truth, found = example.label, response.output
    if not isinstance(truth, Truth) or not isinstance(found, Finding):
        return RolloutFeedback(score=0.0, feedback="the answer is no finding")
    checks = (
        ("category", 0.4, truth.category.value, found.category.value),
        ("severity", 0.2, truth.severity.value, found.severity.value),
        ("file", 0.4, truth.file, found.file),
    )
    lines = [
        f"{name}: `{given}` is right"
        if given == expected
        else f"{name}: expected `{expected}`, found `{given}`"
        for name, _, expected, given in checks
    ]
    if truth.file not in files_read(session):
        lines.append(f"`{truth.file}` was not read; the log shows calls that lead there")
    points = sum(share for _, share, expected, given in checks if expected == given)
    return RolloutFeedback(
        score=round(points, 6), feedback="\n".join(lines), eval_trace=reference_log(truth)
    )


def files_read(session: SessionProtocol) -> set[str]:
    """Return the files that were read during an evaluation."""
    params = [call.params for call in session.select_all(ToolInvoked)]
    return {given.path for given in params if isinstance(given, FilePath)}


def reference_log(truth: Truth) -> str:
    """Return the calls that lead to the answer, in the form in which traces show calls."""
    calls: list[tuple[str, object, object]] = []
    if truth.query is not None:
        query = Query(truth.query)
        calls.append(("search_code", query, search_code(query)))
    path = FilePath(truth.file)
    calls.append(("read_file", path, read_file(path)))
    return "\n".join(
        f"[{name}]\n  params: {_line(params)}\n  result: {_line(result)}"
        for name, params, result in calls
    )


def _line(value: object) -> str:
    return json.dumps(unstructure(value), ensure_ascii=False)


def score(
    prompt: Prompt[Finding], examples: Sequence[GepaExample], adapter: ProviderAdapter
) -> float:
    """Return the mean score of ``prompt`` on ``examples``, 0 to 1."""
    total = 0.0
    for example in examples:
        session = Session()
        response = evaluated(adapter, prompt.bind(*example.params), session=session)
        total += feedback(example, response, session).score
    return total / len(examples)
