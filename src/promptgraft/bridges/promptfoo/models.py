"""Providers of promptfoo as models of a project."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

from promptgraft.adapters import anthropic, openai
from promptgraft.adapters.named import NO_KEY, hosted
from promptgraft.bridges.promptfoo.code import Stubs
from promptgraft.ground.environment import REFERENCE
from promptgraft.ground.serde import Json, canonical_json, looks_like_a_key, shown
from promptgraft.ground.strict.checks import Check
from promptgraft.ground.strict.kinds import snake_case
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.project.format_models import HEADER
from promptgraft.project.imported import DATA, GENERATION, OFFLINE, USUAL, Foreign, Notes

_OWN = {
    "openai": "openai",
    "anthropic": "anthropic",
    "azure": "azure",
    "azureopenai": "azure",
    "bedrock": "bedrock",
    "google": "gemini",
    "vertex": "vertex",
}
_COMPATIBLE = {  # address and variable of the key of providers that speak OpenAI's protocol
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks": ("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "github": ("https://models.github.ai/inference", "GITHUB_TOKEN"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "huggingface": ("https://router.huggingface.co/v1", "HF_TOKEN"),
    "lmstudio": ("http://localhost:1234/v1", ""),
    "localai": ("http://localhost:8080/v1", ""),
    "llama": ("http://localhost:8080/v1", ""),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "ollama": ("http://localhost:11434/v1", ""),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    "together": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "togetherai": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "vllm": ("http://localhost:8000/v1", ""),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
}
_INTERFACES = ("chat", "messages", "responses", "completion", "converse")
# Providers that answer with something else than a text, have their own prompt, or are agents.
_OTHERS = re.compile(
    r"(embedding|image|video|audio|speech|realtime|live|assistant|moderation|agent)s?\b"
    r"|(claude-agent-sdk|claude-code|codex-sdk|codex-app-server|chatkit)\b"
)
_ENV = re.compile(r"\{\{-?\s*env\.(\w+)\s*-?\}\}")
_NO_KEY = "`models` has no such key; `extra_body` sends more"
ELSEWHERE = {  # what belongs to the prompt here
    "response_format": "write it to a file, and `output: FILE.json` above the prompt",
    "tools": "write them to a file, and `tools: FILE.json` above the prompt",
}
_CLAUDE_ONLY = ("anthropic", "bedrock", "vertex")


@attrs.frozen(kw_only=True)
class Named:
    """A provider: its id, and the node of its configuration."""

    id: str
    config: Node


def named_provider(node: Node, notes: Notes) -> Named:
    """Return a provider in any of its three spellings; notes what is not read."""
    members = node.members()
    if not isinstance(node.value, dict):
        return Named(id=str(node.value), config=node.member("config"))
    if "id" not in members and len(members) == 1:
        [(name, options)] = members.items()
        return Named(id=name, config=options.member("config"))
    for key, member in members.items():
        if key not in ("id", "config", "label"):
            notes.add(member, f"`{key}` of a provider is left out: `models` has no such key")
    return Named(
        id=str(members["id"].value if "id" in members else ""), config=node.member("config")
    )


def read_provider(node: Node, notes: Notes) -> dict[str, Json] | None:
    """Convert a provider to a model of a project; None if no model here corresponds to it.

    Keys are not copied. What the model does not take is dropped with a note.
    """
    provider = named_provider(node, notes)
    kind, *rest = _ENV.sub(r"${\1}", provider.id).split(":")
    if not (kind in _OWN or kind in _COMPATIBLE) or _OTHERS.match(":".join(rest)):
        return None
    model = ":".join(rest[1:] if rest and rest[0] in _INTERFACES else rest)
    model = model or str(provider.config.member("model").value or "")
    own_provider = _OWN.get(kind, "openai")
    if not model or (
        own_provider in _CLAUDE_ONLY and "claude" not in model and own_provider != "anthropic"
    ):
        return None
    model_read: dict[str, Json] = {"provider": own_provider}
    if kind in _COMPATIBLE:
        address, variable = _COMPATIBLE[kind]
        model_read |= {"base_url": address, "api_key": f"${{{variable}}}" if variable else NO_KEY}
    model_read["model"] = model
    for key, value in _options(own_provider, model, provider.config, notes):
        model_read[key] = value
    return model_read


def _options(provider: str, model: str, config: Node, notes: Notes) -> Iterator[tuple[str, Json]]:
    same = ("model", model)
    settings = {key: node for key, node in config.members().items() if (key, node.value) != same}
    for key, member in settings.items():
        value = member.value
        if isinstance(value, str):
            value = _ENV.sub(r"${\1}", value)
        match key:
            case "apiKeyEnvar":
                yield "api_key", f"${{{value}}}"
            case "apiKey" if isinstance(value, str) and re.fullmatch(r"\$\{\w+\}", value):
                yield "api_key", value
            case "apiKey":
                notes.add(member, "`apiKey`: a key is not copied: export it")
            case "apiBaseUrl" | "apiHost":
                host = str(value)
                yield "base_url", host if "://" in host or "${" in host else f"https://{host}"
            case "headers" if "headers" in attrs.fields_dict(hosted(provider)):
                headers: dict[str, Json] = dict(_headers(member, notes))
                if headers:
                    yield key, headers
            case _ if (ours := GENERATION.get(snake_case(key))) is not None:
                if _takes(provider, model, ours, value):
                    yield ours, value
                else:
                    what = f"`{key}: {shown(value)}` is left out: `{model}` does not take it"
                    notes.add(member, what)
            case _:
                notes.add(member, f"`{key}`: left out: {ELSEWHERE.get(key, _NO_KEY)}")


def _headers(config: Node, notes: Notes) -> Iterator[tuple[str, str]]:
    """Yield the headers of a provider; one with a secret in plain text is left out with a note."""
    for name, member in config.members().items():
        value = _ENV.sub(r"${\1}", str(member.value))
        header = HEADER.read(Source.of({name: value}).root.member(name))
        if header is not None and not looks_like_a_key(REFERENCE.sub("", value)):
            yield name, value
            continue
        mend = f"export it, and write `headers: {{{name}: ${{NAME}}}}` into the model"
        notes.add(member, f"header `{name}`: a secret is not copied: {mend}")


def _takes(provider: str, model: str, option: str, value: Json) -> bool:
    """Return whether the adapter of a model takes an option with this value."""
    fields = attrs.fields_dict(hosted(provider))
    if option not in fields or (
        option in ("temperature", "top_p") and not _samples(provider, model)
    ):
        return False
    validator = fields[option].validator
    values = tuple(value) if isinstance(value, list) else value
    return not isinstance(validator, Check) or validator.fits(values) is not None


def _samples(provider: str, model: str) -> bool:
    module = anthropic if provider in _CLAUDE_ONLY else openai
    return bool(module.profile_of(model).sampling)


@attrs.define(kw_only=True)
class Models:
    """The models of a project: that of its task, and those of its judges by name.

    Attributes:
        files: the files of the import.
        stubs: takes the functions that the user has to write.
        offline: whether the embedded offline model takes the place of all.
        judges: the judges so far.
    """

    files: Foreign
    stubs: Stubs
    offline: bool
    judges: dict[str, Json] = attrs.field(factory=dict, init=False)
    _known: dict[str, Json] = attrs.field(factory=dict, init=False)
    _task: Json = attrs.field(default=OFFLINE, init=False)

    def task(self, node: Node) -> Json:
        """Return the model for the providers of a configuration, which also judges."""
        self._task = self._model(node, "task")
        return self._task

    def _model(self, node: Node, role: str) -> Json:
        """Convert the first of several providers to a model, or to a function to write."""
        if self.offline:
            return OFFLINE
        if node.value is None:
            return USUAL
        node = self._in_files(node)
        several = node.items() or [node]
        key = canonical_json(several[0].value)
        if key not in self._known:
            self._known[key] = self._converted(several, role)
        return self._known[key]

    def _converted(self, several: Sequence[Node], role: str) -> Json:
        for provider in several[1:]:
            self.files.notes.add(
                provider, "only the first provider is taken: a project has one model"
            )
        first = several[0]
        # A provider for each kind of question: the one that writes texts is the judge.
        first = self._in_files(first.member("text") if "text" in first.members() else first)
        model = read_provider(first, self.files.notes)
        if model is not None:
            return model
        provider_id = named_provider(first, self.files.notes).id
        where = self.stubs.model(role, first, f"in place of `{provider_id}`")
        what = (
            f"no model here is `{provider_id}`: write `{where}`, or name a model in `models.{role}`"
        )
        self.files.notes.add(first, what)
        return {"python": where}

    def _in_files(self, node: Node) -> Node:
        """Return the contents of the file that a provider names, or the node itself."""
        named = node.value if isinstance(node.value, str) else ""
        if not (named.startswith("file://") and named.endswith(DATA)):
            return node
        opened = (self.files.opened(path).root for path in self.files.named(node, named))
        root = next(opened, node)
        if [*root.members()] == ["providers"]:
            root = root.member("providers")
        return next(iter(root.items()), root)

    def judge(self, node: Node) -> str:
        """Return the name of the judge for a provider, or else for the task's model."""
        judge_name = f"judge_{len(self.judges) + 1}"
        model = self._task if node.value is None else self._model(node, judge_name)
        same_judge = next((name for name, judge in self.judges.items() if judge == model), None)
        name = same_judge or f"judge-{len(self.judges) + 1}"
        self.judges[name] = model
        return name
