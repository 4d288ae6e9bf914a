"""Prompts of a promptfoo configuration: texts, files, chats, and functions that make them.

Their templates are of nunjucks, which differs from Jinja in a few words inside of tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.bridges.promptfoo.code import code_reference, python_prompt
from promptgraft.bridges.promptfoo.models import ELSEWHERE
from promptgraft.errors import PromptgraftError
from promptgraft.evals.case_reader import file_part
from promptgraft.ground.files import is_file
from promptgraft.ground.foreign_yaml import read_foreign_yaml
from promptgraft.ground.serde import Json, parse_json
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.ground.text import visible_line
from promptgraft.ground.work import WorkBudget
from promptgraft.ground.yaml_text import YamlDocument
from promptgraft.project import imported

# An open tag extends to the end of the text; else each of its characters would be tried again.
_TAG = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)", re.DOTALL)
_TEXT = re.compile(r"""("(?:\\.|[^"\\])*(?:"|\Z)|'(?:\\.|[^'\\])*(?:'|\Z))""", re.DOTALL)
_ENVIRONMENT = re.compile(r"""\{\{-?\s*env(?:\.(\w+)|\[["'](\w+)["']\])[^{}]*\}\}""")
_FILTER = re.compile(r"\|\s*([A-Za-z_]\w*)(?:\([^()]*\))?")
_REWRITES = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        ("!==", "!="),
        ("===", "=="),
        (r"\.length\b(?!\s*\()", "|length"),
        (r"\belseif\b", "elif"),
        (r"\b(?:null|undefined)\b", "none"),
        (r"\.toUpperCase\(", ".upper("),
        (r"\.toLowerCase\(", ".lower("),
        (r"\.trim\(", ".strip("),
        (r"\.startsWith\(", ".startswith("),
        (r"\.endsWith\(", ".endswith("),
    )
)


@attrs.frozen(kw_only=True)
class Converted:
    """A template of Jinja.

    Attributes:
        text: the template.
        dropped: filters that Jinja does not have; they are code of the other tool.
        unset: variables of the environment that are left empty.
    """

    text: str
    dropped: tuple[str, ...]
    unset: tuple[str, ...]


def as_jinja(template: str, environment: Mapping[str, str] | None = None) -> Converted:
    """Convert a template of nunjucks.

    ``environment`` holds the values of ``{{ env.NAME }}``; those of this process are not read.
    """
    if "{{" not in template and "{%" not in template:
        return Converted(text=template, dropped=(), unset=())
    from promptgraft.prompt.sandbox import sandbox

    filters, values = sandbox().filters, environment or {}
    dropped: list[str] = []
    unset: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in values:
            unset.append(name)
        return values.get(name, "")

    def filtered(match: re.Match[str]) -> str:
        if match[1] in filters:
            return match[0]
        dropped.append(match[1])
        return ""

    def tag(match: re.Match[str]) -> str:
        # Every second piece is a text in quotes, which stays as it is.
        pieces = _TEXT.split(match[0])
        for at in range(0, len(pieces), 2):
            for pattern, new in _REWRITES:
                pieces[at] = pattern.sub(new, pieces[at])
            pieces[at] = _FILTER.sub(filtered, pieces[at])
        return "".join(pieces)

    text = _TAG.sub(tag, _ENVIRONMENT.sub(value, template))
    unique = (tuple(dict.fromkeys(names)) for names in (dropped, unset))
    return Converted(text=text, **dict(zip(("dropped", "unset"), unique, strict=True)))


TEXTS = (".txt", ".md", ".j2", ".jinja", ".njk", ".prompt")
WRITE_HERE = "write_this_prompt"
"""A placeholder that no case has, so that `check` names a prompt that is not written yet."""

_MANAGED = re.compile(r"(langfuse|portkey|helicone)://")
_A_FILE = re.compile(r"[^\s{}]+\.(txt|md|json|jsonl|yaml|yml|csv|j2|njk)")
_LONGEST_NAME = 250
_PLACE_OF_IMAGE = re.compile(r"\s*(?:data:[^,{]*,)?\{\{-?\s*(\w+)\s*-?\}\}\s*")
_DUMPED = re.compile(r":\s*\{\{-?\s*([\w.]+)\s*\|\s*(?:dump|tojson)\s*-?\}\}")


def reads(prompts: Iterable[imported.Messages]) -> set[str]:
    """Return the names that prompts read."""
    return {
        name for messages in prompts for _, text in messages for name in imported.placeholders(text)
    }


@attrs.frozen(kw_only=True)
class Read:
    """A prompt.

    Attributes:
        messages: role and text of each message; none if the user has to write it.
        images: the placeholders that stand for images.
        why: why the user has to write it.
    """

    name: str
    messages: imported.Messages = attrs.field(hash=False)
    images: frozenset[str] = frozenset()
    why: str = ""


@attrs.frozen(kw_only=True)
class PromptfooPrompts:
    """Reads prompts; ``environment`` holds the values of `{{ env.NAME }}`."""

    files: imported.Foreign
    environment: Mapping[str, str] = attrs.field(hash=False)

    def read(self, node: Node) -> dict[str, Read]:
        """Return the prompts by name, or the only one that the user has to write."""
        by_name: dict[str, Read] = {}
        unwritten: dict[str, Read] = {}
        for entry in _entries(node):
            for prompt in self._prompt(entry):
                names = {*by_name, *unwritten}
                if prompt.why:
                    unwritten[imported.name_of(prompt.name, list(names))] = prompt
                    self.files.notes.add(entry, prompt.why)
                elif by_name and reads([prompt.messages]) != reads(
                    p.messages for p in by_name.values()
                ):
                    why = "is left out: prompts of a project have the same placeholders"
                    text = f"the prompt `{prompt.name}` {why}; import it by itself"
                    self.files.notes.add(entry, text)
                else:
                    by_name[imported.name_of(prompt.name, list(names))] = prompt
        # A prompt that cannot be asked would stop the import of the others, so it is left out.
        return by_name or dict(list(unwritten.items())[:1])

    def _prompt(self, node: Node) -> Iterator[Read]:
        """Yield the prompts of an entry."""
        for key, member in {**node.members(), **node.member("config").members()}.items():
            if key not in ("id", "raw", "label") and not (key == "config" and member.members()):
                why = ELSEWHERE.get(key, "a prompt has no such key")
                self.files.notes.add(member, f"`{key}` is left out: {why}")
        label, raw = str(node.member("label").value or ""), node.member("raw").value
        text = node.value if isinstance(node.value, str) else raw or node.member("id").value
        if not isinstance(text, str):
            node.expected("the text of a prompt, a file, or an object with `raw` or `id`")
        elif code := code_reference(text):
            yield self._made_by_code(node, code, label)
        elif _MANAGED.match(text):
            why = f"`{text}` is kept by a service, which the import does not ask"
            yield Read(name=label or "prompt", messages=[], why=f"{why}: {_unwritten()}")
        elif self._is_file(text):
            for path in self.files.named(node, text):
                yield from self._file(path, node, label)
        else:
            yield self._of_text(label or "prompt", text, node)

    def _is_file(self, text: str) -> bool:
        if text.startswith("file://"):
            return True
        # Bounded, because asking the system about a longer name is an error.
        is_short = "\n" not in text and len(text) < _LONGEST_NAME
        return is_short and bool(_A_FILE.fullmatch(text) or is_file(self.files.path.parent / text))

    def _file(self, path: Path, node: Node, label: str) -> Iterator[Read]:
        name = label or path.stem
        if code := code_reference(str(path)):
            yield self._made_by_code(node, code, label)
        elif path.suffix in imported.TABLES:
            for row in self.files.opened(path).root.items():
                yield from self._prompt(
                    Node({"raw": row.member("prompt").value}, row.path, row.source)
                )
        elif path.suffix in imported.DATA:
            yield from self._data(path, node, name)
        elif path.suffix in (*TEXTS, ""):
            for part in re.split(r"^---\s*$", self.files.text(path, node), flags=re.MULTILINE):
                if part.strip():
                    yield self._of_text(name, part, node)
        else:
            why = f"{path.name} is no text: {_unwritten()}"
            yield Read(name=name, messages=[], why=why)

    def _data(self, path: Path, node: Node, name: str) -> Iterator[Read]:
        text = self.files.text(path, node)
        if path.suffix == ".json" and "{" in text:
            # The file is a template, which becomes JSON only when it is rendered.
            yield self._of_text(name, text, node)
            return
        opened = self.files.opened(path).root
        if any("role" in item.members() for item in opened.items() or [opened]):
            yield self._of_chat(name, opened)
        else:
            for item in opened.items():
                yield from self._prompt(item)

    def _made_by_code(self, node: Node, code: tuple[str, str], label: str) -> Read:
        file, function = code
        name = label or function or Path(file).stem
        what = f"`{file}{':' if function else ''}{function}` is a function, which is not run here"
        if file.endswith(".py") and self.files.has(node, file):
            for path in self.files.named(node, file):
                text = python_prompt(self.files.text(path, node), function)
                if text is not None:
                    self.files.notes.add(node, f"{what}: the text that it returns is the prompt")
                    return Read(name=name, messages=text)
        return Read(name=name, messages=[], why=f"{what}: {_unwritten()}")

    def _of_text(self, name: str, text: str, node: Node) -> Read:
        prompt = self._chat_or_text(name, text, node)
        if any(text.strip() for _, text in prompt.messages) or not node.is_right():
            return prompt
        return Read(name=name, messages=[], why=f"`{name}` holds no text: {_unwritten()}")

    def _chat_or_text(self, name: str, text: str, node: Node) -> Read:
        """Return the messages of a chat in JSON or YAML, or the text as one."""
        value = _as_chat(text, self.files.budget)
        if value is None:
            if text.lstrip().startswith("[") and '"role"' in text:
                what = "its messages are made by a template: they are sent as one text of the user"
                self.files.notes.add(node, what)
            return Read(name=name, messages=[("text", self._checked(text, node))])
        chat = Source(node.source.name, YamlDocument(value, {}, {}))
        prompt = self._of_chat(name, Node(value, node.path, chat), at=node)
        if all(role == "system" for role, _ in prompt.messages):
            what = "a message by `system` alone is sent as the user's, which models need"
            self.files.notes.add(node, what)
        return prompt

    def _of_chat(self, name: str, node: Node, at: Node | None = None) -> Read:
        """Return the role and text of each message of a chat."""
        messages: imported.Messages = []
        images = set[str]()
        for message in node.items() or [node]:
            role, place = message.member("role").value, message if at is None else at
            texts = []
            for part in imported.parts_of(message):
                image = _image(part)
                if image is not None:
                    images.add(image)
                    texts.append(f"{{{{ {image} }}}}")
                elif isinstance(text := part.get("text"), str):
                    texts.append(text)
                else:
                    what = "a part of a message that is no text and no image is left out"
                    self.files.notes.add(place, what)
            if role not in ("system", "user"):
                self.files.notes.add(
                    place, f"a message by `{role}` is sent as a part of the user's"
                )
            messages.append((str(role), self._checked("\n".join(texts), place)))
        return Read(name=name, messages=messages, images=frozenset(images))

    def _checked(self, text: str, node: Node) -> str:
        """Return a template of nunjucks as one of Jinja; a fault is noted if it does not parse."""
        converted = as_jinja(text, self.environment)
        for name in converted.dropped:
            what = f"the filter `{name}` is left out: code is not run here; apply it to the cases"
            self.files.notes.add(node, what)
        for name in converted.unset:
            self.files.notes.add(node, f"`env.{name}` is left empty: write its value there")
        try:
            imported.placeholders(converted.text)
        except PromptgraftError as error:
            node.fault(f"{error}; templates here are those of Jinja")
            return ""
        return converted.text


def _image(part: Mapping[str, Json]) -> str | None:
    """Return the placeholder that a part shows as an image; None if it shows none."""
    file = file_part(part)
    if file is None or not file.is_image:
        return None
    place = _PLACE_OF_IMAGE.fullmatch(file.address or file.data)
    return None if place is None else place[1]


def _unwritten() -> str:
    return "write its text in the prompt file"


def unwritten_text(why: str, variables: Iterable[str]) -> str:
    """Return the text of a prompt that the user has to write, with the variables of the tests."""
    what = re.sub(r"#\}|\{#", "", visible_line(why))
    names = "\n\n".join(f"{{{{ {name} }}}}" for name in variables)
    head = f"{{# {what}: put it in the place of the next line. #}}{{{{ {WRITE_HERE} }}}}"
    return f"{head}\n\n{names}"


def _entries(node: Node) -> list[Node]:
    if isinstance(node.value, dict):
        named = node.members().items()
        return [
            Node({"id": key, "label": value.value}, value.path, value.source)
            for key, value in named
        ]
    if node.value is None:
        return [Node("{{prompt}}", node.path, node.source)]
    return node.items() or ([node] if isinstance(node.value, str) else [])


def _as_chat(text: str, budget: WorkBudget) -> Json:
    """Return the messages that a text spells in JSON or YAML; None if it is a plain text."""
    bare = text.strip()
    if bare.startswith(("[", "{")) and '"role"' in bare:
        # `"content": {{ text | dump }}` is JSON only when it is rendered.
        for spelling in (bare, _DUMPED.sub(r': "{{ \1 }}"', bare)):
            try:
                value = parse_json(spelling, where="")
            except PromptgraftError:
                continue
            if _is_chat(value):
                return value
        return None
    if re.match(r"-\s+role:", bare):
        document = read_foreign_yaml(bare, lambda *_: None, budget)
        if document is not None and _is_chat(document.value):
            return document.value
    return None


def _is_chat(value: Json) -> bool:
    messages = value if isinstance(value, list) else [value]
    return bool(messages) and all(
        isinstance(message, dict) and "role" in message for message in messages
    )
