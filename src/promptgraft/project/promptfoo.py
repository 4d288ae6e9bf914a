"""Import of a promptfoo configuration: prompts, tests, assertions and providers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from promptgraft.errors import PromptgraftError
from promptgraft.project.imported import (
    CASES_FILE,
    OFFLINE,
    ImportedProject,
    Messages,
    Notes,
    filled,
    lines_of,
    name_of,
    placeholders,
    prompt_file,
    read_provider,
    rows_of,
    splits_of,
    text_of,
    texts_in,
    with_lines,
)
from promptgraft.project.promptfoo_asserts import Test, choices_of, judged, read_assert, row_as_test
from promptgraft.serde import Json
from promptgraft.strict.nodes import Node, Source
from promptgraft.text import listed

_PROGRAM = "code of promptfoo is not run here"
_WHY: Mapping[str, str] = {
    key: why
    for keys, why in (
        ("description tags metadata", "a project has a name only"),
        ("env", "export the variables"),
        ("derivedMetrics", "`aggregation` makes one score of all metrics"),
        ("tracing", "`trackers` of a project sends spans"),
        ("redteam", "promptgraft makes no attacks"),
        ("outputPath sharing writeLatestResults", "a run keeps its results in a folder of its own"),
        ("nunjucksFilters extensions function assertScoringFunction", _PROGRAM),
        ("transform transformVars postprocess path", _PROGRAM),
        ("provider providers prompts", "one model is asked with every prompt and test"),
        ("prefix suffix config", "write it into the prompt"),
        ("rubricPrompt factuality", "judges here have a question of their own"),
        ("storeOutputAs disableConversationVar runSerially", "cases are asked independently"),
        ("commandLineOptions delay cache showProgressBar timeoutMs", "`promptgraft` has its own"),
    )
    for key in keys.split()
}
_TOP = "prompts tests scenarios defaultTest providers targets evaluateOptions assertionTemplates"
_TEST = "description vars assert threshold metadata options providerOutput"
_OPTIONS = "provider disableVarExpansion disableDefaultAsserts"
_DATA = (".json", ".yaml", ".yml", ".jsonl")
_TABLES = (".csv", ".tsv")
_TEXTS = (".txt", ".md", ".j2")


def import_promptfoo(path: Path, *, offline: bool = False) -> ImportedProject:
    """Convert a promptfoo configuration to a project.

    Args:
        path: the configuration, in YAML or JSON.
        offline: whether the embedded offline model replaces the providers.

    Raises:
        DataFormatError: all faults, one line each.
    """
    source = with_lines(path)
    value = _resolved(source.document.value, source.document.value)
    source.document = attrs.evolve(source.document, value=value)
    return _Reader(source, offline=offline).read()


def _resolved(value: Json, whole: Json, *, depth: int = 0) -> Json:
    """Replace each ``$ref`` in a value by what it names, following at most ten in a row."""
    if isinstance(value, list):
        return [_resolved(one, whole, depth=depth) for one in value]
    if not isinstance(value, dict):
        return value
    place = value.get("$ref")
    if len(value) == 1 and isinstance(place, str) and place.startswith("#/") and depth < 10:
        found = whole
        for step in place.removeprefix("#/").split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        # An unknown reference is left as it is, so that a fault names it where it is used.
        return value if found is None else _resolved(found, whole, depth=depth + 1)
    return {key: _resolved(one, whole, depth=depth) for key, one in value.items()}


def _reads(prompts: Iterable[Messages]) -> set[str]:
    """Return the names that prompts read."""
    return {name for messages in prompts for _, text in messages for name in placeholders(text)}


class _Reader:
    """Reads one configuration and collects notes."""

    def __init__(self, source: Source, *, offline: bool) -> None:
        self._root, self._offline = source.root, offline
        self._folder = Path(source.name).parent
        self._notes = Notes()
        self._sources = [source]
        self._judges: dict[str, Json] = {}
        self._task: Json = OFFLINE

    def read(self) -> ImportedProject:
        root = self._root
        self._note_keys(root, _TOP)
        named = "targets" if "targets" in root.members() else "providers"
        self._task = self._model(root.member(named))
        prompts = self._prompts(root.member("prompts"))
        self._raise()
        texts = [text for messages in prompts.values() for _, text in messages]
        reads = sorted(_reads(prompts.values()))
        if not reads:
            what = "expected a prompt with a placeholder such as `{{question}}`, found none"
            root.member("prompts").fault(what)
        tests = list(self._tests())
        self._raise()
        cases, judging = judged(
            tests, reads, " ".join(texts), place=root.member("tests"), notes=self._notes
        )
        choices = choices_of(tests)
        if choices:
            why = f"the answer is one of {listed(choices)}, as tests with `equals` say"
            self._notes.add(root.member("tests"), f"{why}: `output` of the prompt")
        splits = dict(splits_of(cases, root.member("tests")))
        self._raise()
        judges: dict[str, Json] = {"judges": self._judges} if self._judges else {}
        return ImportedProject(
            document={
                "version": 1,
                "prompts": {name: f"prompts/{name}.md" for name in prompts},
                "dataset": {"path": CASES_FILE},
                **splits,
                **judging,
                "models": {"task": self._task, **judges},
                **self._options(root.member("evaluateOptions")),
            },
            files={
                CASES_FILE: lines_of(cases),
                **{
                    f"prompts/{name}.md": prompt_file(name, one, choices)
                    for name, one in prompts.items()
                },
            },
            notes=self._notes.lines,
        )

    def _raise(self) -> None:
        for source in self._sources:
            source.raise_all()

    def _note_keys(self, node: Node, read: str) -> None:
        """Note every key that is not read."""
        for key, member in node.members().items():
            # Nothing is dropped silently: the user decides whether the import is still what he
            # tests.
            if key not in read.split():
                self._notes.add(member, f"`{key}` is left out: {_WHY.get(key, 'it is unknown')}")

    def _options(self, node: Node) -> dict[str, Json]:
        self._note_keys(node, "maxConcurrency repeat")
        runs, workers = node.member("repeat").value, node.member("maxConcurrency").value
        repeated: dict[str, Json] = {"optimizer": {"objectives": {"num_runs": runs}}}
        given = repeated if isinstance(runs, int) and runs > 1 else {}
        return {**given, **({"workers": workers} if isinstance(workers, int) else {})}

    def _model(self, node: Node) -> Json:
        """Convert the first of several providers to a model."""
        named = node.value if isinstance(node.value, str) else ""
        if named.startswith("file://") and named.endswith(_DATA):
            node = next(map(self._opened, self._files(node)), node)
        several = node.items() or [node]
        for other in several[1:]:
            self._notes.add(other, "only the first provider is taken: a project has one model")
        if self._offline or node.value is None:
            return OFFLINE
        return read_provider(several[0], self._notes)

    def _judge(self, node: Node) -> str:
        """Return the name of the judge for a provider, or else for the task's model."""
        model = self._task if node.value is None else self._model(node)
        known = next((name for name, one in self._judges.items() if one == model), None)
        name = known or f"judge-{len(self._judges) + 1}"
        self._judges[name] = model
        return name

    def _files(self, node: Node) -> list[Path]:
        """Return the files that a path or pattern matches; a fault is noted if none do."""
        name = str(node.value).removeprefix("file://")
        if set(name) & set("*?[") and not Path(name).is_absolute():
            found = sorted(one for one in self._folder.glob(name) if one.is_file())
            if not found:
                node.fault(f"expected files, found none at {name}")
            return found
        path = Node(name, node.path, self._root.source).file()
        return [] if path is None else [path]

    def _opened(self, path: Path) -> Node:
        source = rows_of(path)
        self._sources.append(source)
        return source.root

    def _prompts(self, node: Node) -> dict[str, Messages]:
        given = node.items() or ([node] if isinstance(node.value, str) else [])
        if isinstance(node.value, dict):
            named = node.members().items()
            given = [
                Node({"id": key, "label": one.value}, one.path, one.source) for key, one in named
            ]
        found: dict[str, Messages] = {}
        for one in given:
            for name, messages in self._prompt(one):
                if found and _reads([messages]) != _reads(found.values()):
                    why = "is left out: prompts of a project have the same placeholders"
                    self._notes.add(one, f"the prompt `{name}` {why}; import it by itself")
                else:
                    found[name_of(name, found)] = messages
        if not found and node.is_right():
            node.fault("expected at least one prompt, found none that can be imported")
        return found

    def _prompt(self, node: Node) -> Iterator[tuple[str, Messages]]:
        """Yield the name and messages of each prompt of an entry."""
        self._note_keys(node, "id raw label")
        label, raw = str(node.member("label").value or ""), node.member("raw").value
        text = node.value if isinstance(node.value, str) else raw or node.member("id").value
        if not isinstance(text, str):
            node.expected("the text of a prompt, a file, or an object with `raw` or `id`")
            return
        # Bounded, because asking the system about a longer name is an error.
        is_name = "\n" not in text and len(text) < 250 and (self._folder / text).is_file()
        if not (is_name or text.startswith("file://")):
            yield label or "prompt", [("text", self._checked(text, node))]
            return
        for path in self._files(Node(text, node.path, node.source)):
            name = label or path.stem
            if path.suffix in _DATA:
                opened = self._opened(path)
                if any("role" in one.members() for one in opened.items() or [opened]):
                    yield name, list(self._chat(opened))
                else:
                    yield from (found for one in opened.items() for found in self._prompt(one))
            elif path.suffix in (*_TEXTS, ""):
                parts = re.split(r"^---\s*$", text_of(path, node), flags=re.MULTILINE)
                yield from ((name, [("text", self._checked(one, node))]) for one in parts)
            else:
                why = f"{path.name} is left out: put the text of the prompt into a file"
                self._notes.add(node, why)

    def _checked(self, text: str, node: Node) -> str:
        try:
            placeholders(text)
        except PromptgraftError as error:
            node.fault(f"{error}; templates here are those of Jinja")
            return ""
        return text

    def _chat(self, node: Node) -> Iterator[tuple[str, str]]:
        """Yield the role and text of each message of a prompt."""
        for message in node.items() or [node]:
            role, texts = message.member("role").value, texts_in(message)
            if None in texts:
                message.expected("a message with `role` and a text as `content`")
                continue
            if role not in ("system", "user"):
                self._notes.add(message, f"a message by `{role}` is sent as a part of the user's")
            yield str(role), self._checked("\n".join(map(str, texts)), message)

    def _tests(self) -> Iterator[Test]:
        default = self._root.member("defaultTest")
        if isinstance(default.value, str):
            files = self._files(default)
            default = self._opened(files[0]) if files else Node(None, default.path, default.source)
        levels: list[tuple[Node, ...]] = [
            (test,) for test in self._entries(self._root.member("tests"))
        ]
        for scenario in self._entries(self._root.member("scenarios")):
            both = (self._entries(scenario.member(name)) for name in ("config", "tests"))
            levels += itertools.product(*both)
        for inherited in levels:
            every = (default, *inherited)
            for values in self._expanded(every):
                yield self._test(every, values)

    def _entries(self, node: Node) -> Iterator[Node]:
        """Yield the objects of a list, whose items may be files with further lists."""
        for one in node.items() or ([node] if node.value else []):
            if isinstance(one.value, dict) and ("path" not in one.value or "vars" in one.value):
                yield one
            elif isinstance(one.value, dict):
                self._note_keys(one, "")
            elif not isinstance(one.value, str):
                one.expected("a test, or a file with tests")
            elif not one.value.endswith((*_TABLES, *_DATA)):
                why = f"{one.value} is left out: save its tests as CSV, JSON or YAML"
                self._notes.add(one, why)
            else:
                for path in self._files(one):
                    opened = self._opened(path)
                    rows = opened.items() or [opened]
                    yield from map(row_as_test, rows) if path.suffix in _TABLES else rows

    def _expanded(self, levels: Sequence[Node]) -> Iterator[dict[str, Json]]:
        """Yield the variables of each test; a list of values becomes a test for each."""
        values: dict[str, Json] = {}
        for level in levels:
            values |= self._values(level.member("vars"))
        fixed = any(level.member("options").member("disableVarExpansion").value for level in levels)
        several = {name: one for name, one in values.items() if isinstance(one, list) and not fixed}
        for chosen in itertools.product(*several.values()):
            yield {**values, **dict(zip(several, chosen, strict=True))}

    def _values(self, node: Node) -> dict[str, Json]:
        if not isinstance(node.value, (str, list)):
            return {name: self._variable(one) for name, one in node.members().items()}
        files = [path for one in node.items() or [node] for path in self._files(one)]
        found = [self._opened(path).members() for path in files]
        return {name: one.value for members in found for name, one in members.items()}

    def _variable(self, node: Node) -> Json:
        value = node.value
        if isinstance(value, bool):
            return str(value).lower()  # as promptfoo writes it
        if not isinstance(value, str) or not value.startswith("file://"):
            return value
        if not value.endswith((*_TEXTS, *_DATA)):
            self._notes.add(node, f"{value} is kept as it is: only texts and data are read")
            return value
        found: list[Json] = [
            self._opened(path).value if path.suffix in _DATA else text_of(path, node)
            for path in self._files(node)
        ]
        return found[0] if len(found) == 1 else found

    def _test(self, levels: Sequence[Node], given: Mapping[str, Json]) -> Test:
        options: dict[str, Node] = {}
        known: dict[str, Json] = {}
        for level in levels:
            self._note_keys(level, _TEST)
            self._note_keys(level.member("options"), _OPTIONS)
            options |= level.member("options").members()
            known |= {key: one.value for key, one in level.members().items()}
        skips = "disableDefaultAsserts" in options and options["disableDefaultAsserts"].value
        values = {
            name: filled(one, given) or one if isinstance(one, str) else one
            for name, one in given.items()
        }
        default = options.get("provider", Node(None, (), self._root.source))

        def judge(node: Node) -> str:
            return self._judge(default if node.value is None else node)

        asked = [
            one
            for level in levels[1 if skips else 0 :]
            for item in level.member("assert").items()
            for one in read_assert(item, values, self._notes, judge=judge)
        ]
        output = known.get("providerOutput")
        return Test(
            node=levels[-1],
            values=values,
            asked=asked,
            fields={name: known[name] for name in ("description", "metadata") if name in known},
            recorded=output if output is None or isinstance(output, str) else json.dumps(output),
            threshold=known.get("threshold"),
        )
