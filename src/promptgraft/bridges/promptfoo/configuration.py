"""Import of a promptfoo configuration: prompts, tests, assertions and providers."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from promptgraft.bridges.promptfoo.asserts import Asserting, row_as_test
from promptgraft.bridges.promptfoo.cases import Test, choices_of, judged
from promptgraft.bridges.promptfoo.code import Stubs, code_reference
from promptgraft.bridges.promptfoo.models import Models
from promptgraft.bridges.promptfoo.prompts import (
    WRITE_HERE,
    PromptfooPrompts,
    Read,
    as_jinja,
    reads,
    unwritten_text,
)
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.ground.text import listed
from promptgraft.ground.work import Unit
from promptgraft.project import imported

_PROGRAM = "code of promptfoo is not run here"
_WHY: Mapping[str, str] = {
    key: why
    for keys, why in (
        ("$schema version description tags metadata", "a project has a name only"),
        ("env", "only prompts take its values; export the variables"),
        ("assert", "promptfoo itself reads it under `defaultTest` only"),
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
_TOP = (
    "prompts tests scenarios defaultTest providers targets evaluateOptions assertionTemplates env"
)
_TEST = "description vars assert threshold metadata options providerOutput"
_OPTIONS = "provider disableVarExpansion disableDefaultAsserts"
_ELSEWHERE = re.compile(r"https?://|huggingface://|az://|s3://|gs://|sharepoint:")
_SHEET = re.compile(r"\.(xlsx?|ods)(#.*)?$", re.IGNORECASE)
_NO_TEXTS = re.compile(
    r"\.(png|jpe?g|gif|webp|bmp|svg|mp3|wav|ogg|mp4|mov|pdf|docx?)$", re.IGNORECASE
)
_ADDRESS = re.compile(r"data:|https?://|\{\{")
_LONGEST_CHAIN = 10  # references that lead to references; a circle ends here


_KEYS = {"prompts", "providers", "targets", "tests", "scenarios", "redteam"}


class PromptfooImporter(imported.Importer):
    """Converts configurations of promptfoo."""

    source = "a configuration of promptfoo"
    takes = ("offline", "root")

    @classmethod
    def recognizes(cls, path: Path, value: Json) -> float:
        return 1 if isinstance(value, dict) and _KEYS & value.keys() else 0

    @classmethod
    def convert(
        cls, path: Path, options: imported.ImportOptions, notes: imported.Notes
    ) -> imported.ImportedProject:
        root = None if options["root"] is None else Path(options["root"])
        if root is not None and not root.is_dir():
            raise ConfigError(f"--root: expected a folder, found none at {root}")
        files = imported.Foreign.of(path, root=root, notes=notes)
        return import_promptfoo(files, offline=options["offline"])


def import_promptfoo(files: imported.Foreign, *, offline: bool = False) -> imported.ImportedProject:
    """Convert a promptfoo configuration to a project.

    Args:
        files: the files around the configuration, which is in YAML or JSON.
        offline: whether the embedded offline model replaces the providers.

    Raises:
        DataFormatError: all faults, one line each.
    """
    source = files.source
    value = _resolved(source.document.value, files, source)
    source.document = attrs.evolve(source.document, value=value)
    return _PromptfooReader(files, offline=offline).read()


def _is_code(value: Json) -> bool:
    return (
        isinstance(value, str) and value.startswith("file://") and code_reference(value) is not None
    )


def _resolved(whole: Json, files: imported.Foreign, source: Source) -> Json:
    """Replace each ``$ref`` in a value by what it names, following at most ten in a row."""
    where = source.line((), "nested `$ref`")

    def resolved(value: Json, depth: int) -> Json:
        files.budget.spend("iterations", 1, where, "write fewer of them")
        if isinstance(value, list):
            return [resolved(item, depth) for item in value]
        if not isinstance(value, dict):
            return value
        place = value.get("$ref")
        is_reference = len(value) == 1 and isinstance(place, str) and place.startswith("#/")
        if is_reference and isinstance(place, str) and depth < _LONGEST_CHAIN:
            text = whole
            for step in place.removeprefix("#/").split("/"):
                text = text.get(step) if isinstance(text, dict) else None
            # An unknown one is left as it is, so that a fault names it where it is used.
            return value if text is None else resolved(text, depth + 1)
        return {key: resolved(item, depth) for key, item in value.items()}

    return resolved(whole, 0)


_FREE_TEXT = (
    "--offline: the embedded model serves free text in dry runs only: set `task: "
    f"{imported.USUAL_NAME}` under `models`, and `promptgraft optimize --dry-run` needs no key"
)


class _PromptfooReader:
    """Reads one configuration and collects notes."""

    def __init__(self, files: imported.Foreign, *, offline: bool) -> None:
        self._files, self._root = files, files.source.root
        self._notes = files.notes
        self._stubs = Stubs(metrics=files.free("metrics.py"), models=files.free("models.py"))
        self._cases = files.free(imported.CASES_FILE)
        self._models = Models(files=files, stubs=self._stubs, offline=offline)
        self._asserting = Asserting(files=files, stubs=self._stubs, judge=self._models.judge)

    def read(self) -> imported.ImportedProject:
        root = self._root
        self._note_keys(root, _TOP)
        named = "targets" if "targets" in root.members() else "providers"
        task = self._models.task(root.member(named))
        prompts = self._prompts(root.member("prompts"))
        self._images = frozenset[str]().union(*(prompt.images for prompt in prompts.values()))
        self._files.raise_all()
        place = root.member("scenarios" if "scenarios" in root.members() else "tests")
        tests = list(self._tests())
        self._files.raise_all()
        tests = tests or self._no_tests(place)
        variables = sorted({name for test in tests for name in test.values})
        written = {name: self._written(prompt, variables) for name, prompt in prompts.items()}
        texts = [text for messages in written.values() for _, text in messages]
        read = sorted(reads(written.values()) - {WRITE_HERE})
        if not read:
            self._note_same_question(variables, " ".join(texts))
        cases, judging = judged(
            tests,
            read,
            " ".join(texts),
            images=self._images,
            place=place,
            asserting=self._asserting,
        )
        choices = self._choices(tests, place, task)
        few = imported.questions_in(cases) < 2
        splits = dict(imported.splits_of(cases, place, self._notes))
        if task == imported.USUAL and root.member(named).value is None:
            self._notes.add(root.member(named), imported.NO_MODEL)
        self._files.raise_all()
        paths = {name: self._files.free(f"prompts/{name}.md") for name in written}
        judges: dict[str, Json] = {"judges": self._models.judges} if self._models.judges else {}
        return imported.ImportedProject(
            document={
                "version": 1,
                "prompts": dict[str, Json](paths),
                "dataset": self._dataset(read),
                **splits,
                **judging,
                "models": {"task": task, **judges},
                **self._options(root.member("evaluateOptions")),
            },
            files={
                self._cases: imported.lines_of(cases),
                **{
                    paths[name]: imported.prompt_file(name, file, choices)
                    for name, file in written.items()
                },
                **self._stubs.files,
            },
            notes=self._notes.lines,
            unwritten=(
                *(paths[name] for name, prompt in prompts.items() if prompt.why),
                *self._stubs.names,
                *((self._cases,) if few else ()),
            ),
        )

    def _note_same_question(self, variables: Sequence[str], text: str) -> None:
        what = "no prompt has a placeholder such as `{{question}}`: all cases ask the same"
        single = [f"{{{name}}}" for name in variables if f"{{{name}}}" in text]
        also = f"; {listed(single)} is plain text in promptfoo, too" if single else ""
        self._notes.add(self._root.member("prompts"), f"{what}{also}")

    def _choices(self, tests: Sequence[Test], place: Node, task: Json) -> list[str]:
        """Return the answers to choose from, with a note; without any, the answer is free text."""
        choices = choices_of(tests)
        if choices:
            why = f"the answer is one of {listed(choices)}, as tests with `equals` say"
            self._notes.add(place, f"{why}: `output` of the prompt")
        elif task == imported.OFFLINE:
            self._notes.add(self._root.member("prompts"), _FREE_TEXT)
        return choices

    def _note_keys(self, node: Node, read: str) -> None:
        """Note every key that is not read."""
        for key, member in node.members().items():
            # Nothing is dropped silently: the user decides whether the import is still what he
            # tests.
            if key not in read.split():
                self._notes.add(member, f"`{key}` is left out: {_WHY.get(key, 'it is unknown')}")

    def _dataset(self, read: Sequence[str]) -> dict[str, Json]:
        # A prompt that reads `input` would otherwise take the column of that name for it.
        fields: dict[str, Json] = {"fields": {"input": "input"}} if "input" in read else {}
        return {"path": self._cases, **fields}

    def _options(self, node: Node) -> dict[str, Json]:
        self._note_keys(node, "maxConcurrency repeat")
        runs, workers = node.member("repeat").value, node.member("maxConcurrency").value
        repeated: dict[str, Json] = {"optimizer": {"objectives": {"num_runs": runs}}}
        repeats = repeated if isinstance(runs, int) and runs > 1 else {}
        is_count = isinstance(workers, int) and workers > 0
        return {**repeats, **({"workers": workers} if is_count else {})}

    def _prompts(self, node: Node) -> dict[str, Read]:
        values = self._root.member("env").members()
        environment = {name: str(value.value) for name, value in values.items()}
        prompts = PromptfooPrompts(files=self._files, environment=environment).read(node)
        if not prompts and node.is_right():
            node.fault("expected at least one prompt, found none that can be imported")
        return prompts

    def _written(self, prompt: Read, variables: Sequence[str]) -> list[tuple[str, str]]:
        if not prompt.why:
            return prompt.messages
        names = [name for name in variables if name.isidentifier() and name.isascii()]
        return [("text", unwritten_text(prompt.why, names))]

    def _tests(self) -> Iterator[Test]:
        default = self._default()
        levels: list[tuple[Node, ...]] = [
            (test,) for test in self._entries(self._root.member("tests"))
        ]
        for scenario in self._entries(self._root.member("scenarios")):
            configs, tests = (
                list(self._entries(scenario.member(name))) for name in ("config", "tests")
            )
            self._spend(scenario, len(configs) * len(tests))
            levels += itertools.product(configs, tests)
        for inherited in levels:
            every = (default, *inherited)
            for values, missing in self._expanded(every):
                yield self._test(every, values, missing)

    def _spend(self, node: Node, cases: int) -> None:
        where = node.source.line(node.path, "").rstrip(": ")
        self._files.budget.spend("cases", cases, where, "shorten its lists")

    def _default(self) -> Node:
        default = self._root.member("defaultTest")
        if not isinstance(default.value, str):
            return default
        opened = (
            self._files.opened(file).root for file in self._files.named(default, default.value)
        )
        return next(opened, Node(None, default.path, default.source))

    def _no_tests(self, place: Node) -> list[Test]:
        """Return the default alone, which says how to score the cases that are to be written."""
        self._notes.add(place, f"there are no tests: write a line of {self._cases} for each case")
        default = self._test((self._default(),), {}, frozenset())
        return [attrs.evolve(default, is_case=False)]

    def _entries(self, node: Node) -> Iterator[Node]:
        """Yield the objects of a list, whose items may be files with further lists."""
        for entry in node.items() or ([node] if node.value else []):
            if isinstance(entry.value, dict) and (
                "path" not in entry.value or "vars" in entry.value
            ):
                yield entry
            elif isinstance(entry.value, dict):
                what = f"`{entry.value['path']}` makes tests, and {_PROGRAM}"
                self._notes.add(entry, f"{what}: write them as lines of {self._cases}")
            elif not isinstance(entry.value, str):
                entry.expected("a test, or a file with tests")
            else:
                yield from self._of_file(entry, entry.value)

    def _of_file(self, node: Node, name: str) -> Iterator[Node]:
        if code_reference(name):
            what = f"`{name}` makes tests, and {_PROGRAM}"
            self._notes.add(node, f"{what}: write them as lines of {self._cases}")
        elif _ELSEWHERE.match(name):
            what = f"`{name}` is not fetched: save it beside the configuration as CSV or JSONL"
            self._notes.add(node, f"{what}, and name that file in `tests`")
        elif _SHEET.search(name):
            self._notes.add(node, f"`{name}` is a workbook: save the sheet as CSV and name that")
        elif not name.endswith((*imported.TABLES, *imported.DATA)):
            self._notes.add(node, f"{name} is left out: save its tests as CSV, JSON or YAML")
        else:
            for path in self._files.named(node, name):
                opened = self._files.opened(path).root
                rows = opened.items() or ([opened] if opened.value else [])
                yield from map(row_as_test, rows) if path.suffix in imported.TABLES else rows

    def _expanded(self, levels: Sequence[Node]) -> Iterator[tuple[dict[str, Json], frozenset[str]]]:
        """Yield the variables of each test; a list of texts becomes a test for each."""
        values: dict[str, Json] = {}
        missing: set[str] = set()
        for level in levels:
            values |= self._values(level.member("vars"), missing)
        fixed = any(level.member("options").member("disableVarExpansion").value for level in levels)
        # Like promptfoo, which keeps other lists as one value.
        several = {
            name: value
            for name, value in values.items()
            if isinstance(value, list) and value and isinstance(value[0], str) and not fixed
        }
        self._spend(levels[-1].member("vars"), math.prod(map(len, several.values())))
        for chosen in itertools.product(*several.values()):
            yield {**values, **dict(zip(several, chosen, strict=True))}, frozenset(missing)

    def _values(self, node: Node, missing: set[str]) -> dict[str, Json]:
        if not isinstance(node.value, (str, list)):
            values: dict[str, Json] = {}
            for name, member in node.members().items():
                missing.discard(name)
                if _is_code(member.value):
                    what = f"`{name}` comes from code: write its values in {self._cases}"
                    self._notes.add(member, f"{what}, in place of {member.value}")
                    missing.add(name)
                values[name] = (
                    self._image(member) if name in self._images else self._variable(member)
                )
            return values
        files = [
            path
            for item in node.items() or [node]
            for path in self._files.named(item, str(item.value))
        ]
        return {
            name: self._image(member) if name in self._images else member.value
            for path in files
            for name, member in self._files.opened(path).root.members().items()
        }

    def _image(self, node: Node) -> Json:
        """Return the path, seen from the project, or the address of an image."""
        value = node.value
        if isinstance(value, list):
            return [self._image(item) for item in node.items()]
        if not isinstance(value, str) or _ADDRESS.match(value):
            return value
        if not value.startswith("file://"):
            return f"data:;base64,{value}"  # as promptfoo fills it into an address
        folder = self._files.path.resolve().parent
        for path in self._files.named(node, value):
            if path.resolve().is_relative_to(folder):
                return str(path.resolve().relative_to(folder))
            node.fault(f"{path}: expected an image in {folder} or below; copy it there")
        return None

    def _variable(self, node: Node) -> Json:
        value = node.value
        if isinstance(value, bool):
            return str(value).lower()  # as promptfoo writes it
        if not isinstance(value, str) or not value.startswith("file://") or _is_code(value):
            return value
        if _NO_TEXTS.search(value):
            self._notes.add(node, f"{value} is kept as it is: only texts and data are read")
            return value
        values: list[Json] = [
            self._files.opened(path).root.value
            if path.suffix in imported.DATA
            else self._files.text(path, node)
            for path in self._files.named(node, value)
        ]
        return values[0] if len(values) == 1 else values

    def _test(
        self, levels: Sequence[Node], variables: Mapping[str, Json], missing: frozenset[str]
    ) -> Test:
        options: dict[str, Node] = {}
        members: dict[str, Json] = {}
        for level in levels:
            self._note_keys(level, _TEST)
            self._note_keys(level.member("options"), _OPTIONS)
            options |= level.member("options").members()
            members |= {key: member.value for key, member in level.members().items()}
        skips = "disableDefaultAsserts" in options and options["disableDefaultAsserts"].value
        values = {
            name: self._filled(value, variables, levels[-1]) for name, value in variables.items()
        }
        default = options.get("provider", Node(None, (), self._root.source))
        asserting = attrs.evolve(
            self._asserting,
            judge=lambda node: self._models.judge(default if node.value is None else node),
        )
        asserts = [
            entry
            for level in levels[1 if skips else 0 :]
            for item in level.member("assert").items()
            for entry in asserting.read(item, values)
        ]
        output = members.get("providerOutput")
        return Test(
            node=levels[-1],
            values=values,
            missing=missing,
            asked=asserts,
            fields={name: members[name] for name in ("description", "metadata") if name in members},
            recorded=output if output is None or isinstance(output, str) else json.dumps(output),
            threshold=members.get("threshold"),
        )

    def _filled(self, value: Json, variables: Mapping[str, Json], node: Node) -> Json:
        """Return a variable with the others filled in."""
        if not isinstance(value, str) or ("{{" not in value and "{%" not in value):
            return value
        from promptgraft.prompt.sandbox import bounded

        with bounded() as work:
            text = imported.filled(as_jinja(value).text, variables)
        where = node.source.line(node.path, "").rstrip(": ")
        # One step of a loop takes as long as many characters.
        unit: Unit = "iterations" if "{%" in value else "characters"
        self._files.budget.spend(unit, work[0], where, "shorten its loops")
        return text or value
