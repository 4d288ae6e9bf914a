"""A function of a BAML project, with the declarations, texts and tests that belong to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import attrs

from promptgraft.bridges.baml.parts import Part, parts_of
from promptgraft.bridges.baml.scanner import BamlFile, Declaration, TokenKind, words_of
from promptgraft.bridges.baml.tests import BamlTest, tests_in
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.environment import check_package
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.text import listed

_TYPES = ("class", "enum", "type")
_NEVER_NEEDED = ("test", "generator")
_NO_TEXT = (TokenKind.WORD, TokenKind.MARK, TokenKind.SPACE, TokenKind.BREAK)
_VARIABLE = re.compile(r"\benv\.(\w+)")
_RETRIES = re.compile(r"^[ \t]*retry_policy[ \t]+\w+", re.MULTILINE)
PASSING_FILE = "promptgraft_passing.baml"
PASSED_TO = "PROMPTGRAFT_PASSED_TO"
"""The environment variable with the address that calls of a flow are passed to."""
ASK = "PromptgraftAsk_"
"""The prefix of the functions that send the messages of a call on, by its own client."""
PASSED = "PromptgraftPassed_"
"""The prefix of the clients that pass calls of a flow on."""
_MESSAGE = """class PromptgraftMessage {
  role string
  content string
}
"""
_PASSING = """client<llm> %s%s {
  provider openai-generic
  options {
    base_url env.%s
    model "%s"
  }
}
function %s%s(messages: PromptgraftMessage[]) -> string {
  client %s
  prompt #"
    {%%- for message in messages %%}{{ _.role(message.role) }}{{ message.content }}{%% endfor -%%}
  "#
}
"""
KEYS_OF = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "azure-openai": ("AZURE_OPENAI_API_KEY",),
    "google-ai": ("GOOGLE_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openai-responses": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
}
"""The environment variables that BAML reads if a client has no key, by provider."""


@attrs.frozen(kw_only=True)
class BamlFunction:
    """A function with everything that it needs.

    Attributes:
        name: the function.
        files: all files of the project, sorted by path.
        folder: the folder of the files.
        with_inputs: whether descriptions and aliases of types that its arguments have may change.
    """

    name: str
    files: tuple[BamlFile, ...] = attrs.field(repr=False)
    folder: Path
    with_inputs: bool = False

    @cached_property
    def _named(self) -> Mapping[str, tuple[BamlFile, Declaration]]:
        return {
            block.name: (file, block)
            for file in self.files
            for block in file.declarations
            if block.kind not in _NEVER_NEEDED
        }

    @property
    def block(self) -> Declaration:
        """The declaration of the function."""
        return self._named[self.name][1]

    @cached_property
    def asked(self) -> Mapping[str, Declaration]:
        """The functions that a model answers: itself, or those that a flow calls."""
        functions = {
            name: block for name, (_, block) in self._named.items() if block.kind == "function"
        }
        if functions[self.name].prompt is not None:
            return {self.name: functions[self.name]}
        # Names in a prompt are text, not calls.
        calling = {name: block for name, block in functions.items() if block.prompt is None}
        flows = _reached([self.name], calling)
        called = {word for name in flows for word in functions[name].words}
        return {
            name: block
            for name, block in functions.items()
            if name in called and block.prompt is not None
        }

    @property
    def is_flow(self) -> bool:
        """Whether it is written in BAML's expression language and calls others."""
        return self.block.prompt is None

    @cached_property
    def needed(self) -> frozenset[str]:
        """The names of all declarations that it may use, itself included."""
        blocks = {name: block for name, (_, block) in self._named.items()}
        return _reached([self.name], blocks)

    @cached_property
    def types(self) -> Mapping[str, Declaration]:
        """The types of the project by name."""
        return {name: block for name, (_, block) in self._named.items() if block.kind in _TYPES}

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The texts that may change, the prompts first."""
        blocks = [self._named[name] for name in self._named if name in self.needed]
        returned = self._types(" ".join(block.output for block in self.asked.values()))
        input_types = self._types(" ".join(self.block.inputs.values()))
        types = [
            named_block
            for named_block in blocks
            if named_block[1].kind in ("class", "enum")
            and named_block[1].name in returned
            and (self.with_inputs or named_block[1].name not in input_types)
        ]
        templates = [
            named_block for named_block in blocks if named_block[1].kind == "template_string"
        ]
        return tuple(parts_of([self._named[name] for name in self.asked], templates, types))

    def _types(self, written: str) -> frozenset[str]:
        """Return the names of the declared types that a type consists of."""
        return _reached(words_of(written) & self.types.keys(), self.types)

    @cached_property
    def tests(self) -> tuple[BamlTest, ...]:
        """Its tests, in the order of the files."""
        tests_declared = (test for file in self.files for test in tests_in(file))
        return tuple(test for test in tests_declared if self.name in test.functions)

    @cached_property
    def client(self) -> str:
        """The client that answers it, such as ``openai/gpt-6-luna``; several of a flow."""
        clients = dict.fromkeys(block.word("client") for block in self.asked.values())
        return ", ".join(clients)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that its clients need."""
        names = dict.fromkeys(
            name
            for client in self.client.split(", ")
            for name in KEYS_OF.get(client.partition("/")[0], ())
        )
        for name in self.needed:
            _, block = self._named[name]
            # A server at another address may need no key.
            if block.kind == "client" and block.words.isdisjoint(("api_key", "base_url")):
                names |= dict.fromkeys(KEYS_OF.get(block.word("provider"), ()))
            # Without texts and comments, which may mention a variable that no client reads.
            named = "".join(token.text for token in block.tokens if token.kind in _NO_TEXT)
            names |= dict.fromkeys(_VARIABLE.findall(named))
        return tuple(sorted(names))

    def sources(
        self, texts: Mapping[str, str], *, tests: Collection[BamlTest] = ()
    ) -> dict[str, str]:
        """Return the files with new texts and without declarations that the function does not need.

        BAML takes a millisecond to compile a declaration. Line breaks of removed declarations are
        kept, so that line numbers stay the same. Tests are kept only if they are given, with the
        other functions that they test.
        """
        tests_kept = {(test.file, test.name) for test in tests}
        blocks = {name: block for name, (_, block) in self._named.items()}
        function_names = [name for test in tests for name in test.functions if name in blocks]
        needed = _reached([self.name, *function_names], blocks) if tests else self.needed
        used = {self._named[name][0].path for name in needed} | {path for path, _ in tests_kept}
        sources = {
            file.path.relative_to(self.folder).as_posix(): edited(
                file.source,
                [
                    *self._changes(file, texts),
                    *_left_out(file, needed, tests_kept),
                    *(self._passed_on(file) if self.is_flow else ()),
                ],
            )
            for file in self.files
            if file.path in used
        }
        return {**sources, **({PASSING_FILE: self._passing} if self.is_flow else {})}

    def _passed_on(self, file: BamlFile) -> Iterator[Edit]:
        """Yield the edits that have the functions of a flow answered by us."""
        for name in self.asked:
            holder, block = self._named[name]
            if holder is file:
                start, end = block.value_range("client")
                yield start, end, f"{PASSED}{name}"

    @property
    def _passing(self) -> str:
        """The clients that pass calls of a flow to us, and functions that send them on."""
        return _MESSAGE + "".join(
            _PASSING % (PASSED, name, PASSED_TO, name, ASK, name, file.source[slice(*place)])
            for name in self.asked
            for file, block in [self._named[name]]
            for place in [block.value_range("client")]
        )

    def rewritten(self, texts: Mapping[str, str]) -> dict[Path, str]:
        """Return the new text of each file that ``texts`` change."""
        return {
            file.path: edited(file.source, changes)
            for file in self.files
            if (changes := self._changes(file, texts))
        }

    def alone(self, texts: Mapping[str, str]) -> str:
        """Return a single file with the declarations that the function needs."""
        return self._written(self.needed, texts)

    def declared(self, texts: Mapping[str, str]) -> str:
        """Return the signature, with the types that it consists of as ``texts`` describe them."""
        blocks = self.asked.values()
        used = self._types(
            " ".join(kind for block in blocks for kind in (block.output, *block.inputs.values()))
        )
        flow = self._written([self.name], texts) if self.is_flow else ""
        signatures = "".join(map(_signature, blocks))
        return "\n".join(filter(None, (flow, signatures, self._written(used, texts))))

    def _written(self, names: Collection[str], texts: Mapping[str, str]) -> str:
        """Return the source of declarations with new texts."""
        blocks = (block for name, block in self._named.items() if name in names)
        written = (
            edited(
                # No edit lies before the block, so it still begins at its place.
                file.source[: block.end],
                [
                    change
                    for change in self._changes(file, texts)
                    if block.start <= change[0] < block.end
                ],
            )[block.start :]
            for file, block in blocks
        )
        return "".join(f"{text.rstrip()}\n\n" for text in written).removesuffix("\n")

    def _changes(self, file: BamlFile, texts: Mapping[str, str]) -> list[Edit]:
        line_break = "\r\n" if "\r\n" in file.source else "\n"
        return [
            (part.literal.start, part.literal.end, written)
            for part in self.parts
            if part.file == file.path
            and (written := part.edited(texts.get(part.key, part.text), line_break))
        ]


def _signature(block: Declaration) -> str:
    inputs = ", ".join(f"{name}: {kind}" for name, kind in block.inputs.items())
    return f"function {block.name}({inputs}) -> {block.output}\n"


Edit: TypeAlias = tuple[int, int, str]
"""The start and end of a range in a file, and its replacement."""


def edited(source: str, edits: Iterable[Edit]) -> str:
    """Apply edits that do not overlap."""
    pieces, at = list[str](), 0
    # In order and in one pass: an edit would move the places of all later ones.
    for start, end, text in sorted(edits):
        pieces += [source[at:start], text]
        at = end
    return "".join([*pieces, source[at:]])


def _left_out(
    file: BamlFile, needed: Collection[str], tests: Collection[tuple[Path, str]]
) -> Iterator[Edit]:
    """Yield removals of unneeded declarations, and of ``retry_policy``: we retry ourselves."""
    for block in file.declarations:
        if block.kind == "test" and (file.path, block.name) in tests:
            continue
        if block.kind in _NEVER_NEEDED or block.name not in needed:
            gone = file.source[block.start : block.end]
            yield (block.start, block.end, "\n" * gone.count("\n"))
        elif block.kind == "client":
            for retry in _RETRIES.finditer(file.source, block.start, block.end):
                yield (*retry.span(), "")


def _reached(first: Iterable[str], blocks: Mapping[str, Declaration]) -> frozenset[str]:
    reached, waiting = set[str](), list(first)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(blocks[name].words & blocks.keys())
    return frozenset(reached)


def tested_functions(folder: Path, patterns: Collection[str]) -> tuple[str, ...]:
    """Return the functions that need a model and have a test that matches a pattern, in order.

    All tests match if there are no patterns.
    """
    paths = sorted(path for path in folder.rglob("*.baml") if path.is_file())
    files = [BamlFile(path, _read(path)) for path in paths]
    tested = {
        name
        for file in files
        for test in tests_in(file)
        for name in test.functions
        if _matches(patterns, name, test.name)
    }
    functions = (
        BamlFunction(name=declaration.name, files=tuple(files), folder=folder)
        for file in files
        for declaration in file.declarations
        if declaration.kind == "function" and declaration.name in tested
    )
    return tuple(function.name for function in functions if function.asked)


def load_function(name: str, folder: Path, *, with_inputs: bool = False) -> BamlFunction:
    """Return a function of a BAML project, without compiling it.

    Raises:
        ConfigError: BAML is missing or too old, there is no such folder or function, or the
            function has no prompt and calls none that has one.
        DataFormatError: a file is not UTF-8.
    """
    for package, oldest in (("baml-py", "0.226"), ("pydantic", "2"), ("stamina", "25.2")):
        check_package(package, oldest, extra="baml", what="a BAML project")
    if not folder.is_dir():
        raise ConfigError(f"expected a folder of BAML files, found none at {folder}")
    paths = sorted(path for path in folder.rglob("*.baml") if path.is_file())
    files = tuple(BamlFile(path, _read(path)) for path in paths)
    functions = {
        declaration.name: declaration
        for file in files
        for declaration in file.declarations
        if declaration.kind == "function"
    }
    if name not in functions:
        there = [name for name, block in functions.items() if block.prompt]
        near = did_you_mean(name, there) or f"; there: {listed(there) if there else 'none'}"
        raise ConfigError(f"no function `{name}` in {folder}{near}")
    function = BamlFunction(name=name, files=files, folder=folder, with_inputs=with_inputs)
    if not function.asked:
        raise ConfigError(
            f'function `{name}` in {folder} has no `prompt #"..."#` and calls no function that has '
            "one; name one that a model answers"
        )
    return function


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataFormatError(f"{path}: expected UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def chosen_tests(function: BamlFunction, patterns: Iterable[str]) -> tuple[BamlTest, ...]:
    """Return the tests of a function that match a pattern; all tests if there are no patterns.

    A pattern is ``FUNCTION::TEST``, ``FUNCTION::``, ``::TEST`` or either name, with ``*`` for any
    characters, as for ``baml-cli test --include``.

    Raises:
        ConfigError: there are none.
    """
    patterns_wanted = tuple(patterns)
    tests_chosen = tuple(
        test for test in function.tests if _matches(patterns_wanted, function.name, test.name)
    )
    if not tests_chosen:
        condition = f" that matches {listed(patterns_wanted)}" if patterns_wanted else ""
        raise ConfigError(f"function `{function.name}` in {function.folder} has no test{condition}")
    return tests_chosen


def _matches(patterns: Collection[str], function: str, test: str) -> bool:
    return not patterns or any(_fits(pattern, function, test) for pattern in patterns)


def _fits(pattern: str, function: str, test: str) -> bool:
    first, colons, second = pattern.partition("::")
    if not colons:
        return fnmatchcase(function, pattern) or fnmatchcase(test, pattern)
    return fnmatchcase(function, first or "*") and fnmatchcase(test, second or "*")
