"""Graphs of prompts: a flow in plain Python and its nodes; texts and steps of plain code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import attrs

from promptgraft.adapters.base import (
    PromptResponse,
    ProviderAdapter,
    adapter_identity,
    check_adapter,
)
from promptgraft.errors import CallerError, ConfigError
from promptgraft.evals.types import Message, Step
from promptgraft.graphs.describing import (
    Edge,
    GraphDescription,
    NodeDescription,
    PartDescription,
    edges_of,
)
from promptgraft.graphs.flow import GraphRunner, InnerFlow
from promptgraft.graphs.run import Opened, Run, under_way
from promptgraft.ground.functions import function_identity, function_name
from promptgraft.ground.serde import Json, did_you_mean, digest, shown
from promptgraft.ground.strict.checks import COUNT, integer
from promptgraft.ground.text import listed
from promptgraft.overrides.parts.descriptors import section_part
from promptgraft.overrides.parts.validation import check_key, check_ns
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.prompt.texts import Placeholders, TextsPrompt, single_texts
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, SessionProtocol
from promptgraft.targets.part import PartOf, PromptPart, View, named_in
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.part_names import INSTRUCTION
from promptgraft.targets.prompts import PromptSet, StandIn, address_of, no_adapter, parts_of
from promptgraft.targets.texts import as_errors


def _as_prompt(prompt: PromptTemplate[Any] | Prompt[Any] | None) -> Prompt[Any] | None:
    return Prompt(prompt) if isinstance(prompt, PromptTemplate) else prompt


@attrs.frozen
class Node:
    """One place in a graph.

    Attributes:
        name: its name in the flow; an identifier, unique in its graph.
        prompt: its prompt or template, which nodes may share; None for a function that the flow
            calls with ``run.do``.
        adapter: answers it; None for the adapter of the run.
        parts: the parts of the prompt that may change; by default every section with overridable
            text. An empty tuple freezes the prompt.
        graph: a graph in place of a prompt. Its nodes become nodes of the outer graph, under names
            such as ``desk/facts``; the adapter answers those without one.

    Raises:
        ConfigError: an argument is invalid.
        InvalidIdentifierError: ``name`` is not an identifier.
    """

    name: str
    prompt: Prompt[Any] | None = attrs.field(default=None, converter=_as_prompt)
    adapter: ProviderAdapter | None = attrs.field(default=None, kw_only=True)
    parts: Sequence[PromptPart] | None = attrs.field(default=None, kw_only=True)
    graph: Graph | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_key(self.name, "node")
        prompt_object: object = self.prompt
        if prompt_object is not None and not isinstance(prompt_object, Prompt):
            raise ConfigError(
                f"node `{self.name}`: expected a PromptTemplate or a Prompt, "
                f"found {shown(prompt_object)}"
            )
        graph_object: object = self.graph
        if graph_object is not None and not isinstance(graph_object, Graph):
            raise ConfigError(f"node `{self.name}`: expected a Graph, found {shown(graph_object)}")
        if graph_object is not None and (self.prompt is not None or self.parts is not None):
            raise ConfigError(
                f"node `{self.name}`: has a graph, so leave out prompt and parts; `targets` of the "
                "graph select parts"
            )
        if self.adapter is not None:
            check_adapter(self.adapter, f"node `{self.name}`: adapter")


def _as_nodes(values: Iterable[Node]) -> tuple[Node, ...]:
    nodes = tuple(values) if isinstance(values, (list, tuple)) else (values,)
    for node in nodes:
        if not isinstance(node, Node):
            raise ConfigError(f"nodes: expected a list of Node, found {shown(node)}")
    return nodes


def _as_edges(values: Iterable[Edge] | None) -> tuple[Edge, ...] | None:
    if values is None:
        return None
    edges = tuple(values)
    for edge in edges:
        match edge:
            case (str(), str()):
                continue
        raise ConfigError(f"edges: expected pairs of names of nodes, found {shown(edge)}")
    return tuple((start, end) for start, end in edges)


@attrs.frozen
class Graph(PromptSet):
    """Prompts and the flow in plain Python that uses them; runs accept it in place of a prompt.

    Attributes:
        name: its name in runs, in the form of a namespace, such as ``support/tickets``.
        flow: ``flow(run, *params)``, plain or ``async``, called with a :class:`Run` (an
            :class:`AsyncRun` if it is ``async``) and the ``params`` of the example. It returns a
            text, an object or a ``PromptResponse``, and must be thread-safe.
        nodes: the nodes; those without a prompt or a graph may be left out.
        targets: names of the parts that may change, as :meth:`describe` gives them; by default all
            that the nodes open.
        edges: pairs of node names, the only edges that the flow may take; by default any. The
            edges inside the graph of a node are its own.
        candidate_errors: exceptions of the flow that count as the fault of the texts, such as those
            of a parser: the example scores 0, and the reflector is shown the reason.
        max_steps: limit on the steps of an answer, those of inner graphs included; an answer that
            exceeds it scores 0.
        max_step_chars: longest input, output or error of a step that records keep.

    Raises:
        ConfigError: an argument is invalid; two nodes have the same name, or different prompts with
            the same namespace and key; an edge leads to no node.
        InvalidIdentifierError: ``name`` is not a namespace.
    """

    name: str
    flow: Callable[..., Any] = attrs.field(kw_only=True)
    nodes: tuple[Node, ...] = attrs.field(kw_only=True, converter=_as_nodes)
    targets: Sequence[str] | None = attrs.field(default=None, kw_only=True)
    edges: tuple[Edge, ...] | None = attrs.field(default=None, converter=_as_edges, kw_only=True)
    candidate_errors: tuple[type[Exception], ...] = attrs.field(
        default=(), converter=as_errors, kw_only=True
    )
    max_steps: int = attrs.field(default=64, validator=COUNT, kw_only=True)
    max_step_chars: int = attrs.field(default=2_000, validator=integer(100), kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_ns(self.name)
        if not callable(self.flow):
            raise ConfigError(f"flow: expected a function, found {shown(self.flow)}")
        names = [node.name for node in self.nodes]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"nodes: two nodes have the name `{name}`")
        self._check_prompts()
        self._check_targets()
        for edge in self.edges or ():
            for name in edge:
                if name not in names:
                    raise ConfigError(
                        f"edges: {' -> '.join(edge)}: there is no node {name!r}"
                        f"{did_you_mean(name, names)}; nodes: {listed(names)}"
                    )

    def _check_prompts(self) -> None:
        if not self.prompts:
            raise ConfigError("nodes: expected at least one with a prompt, found none")
        first: dict[str, str] = {}
        for name, prompt in self.prompts.items():
            twin = first.setdefault(address_of(prompt), name)
            prompt_of_twin = self.prompts[twin]
            if (
                prompt_of_twin.template is not prompt.template
                or prompt_of_twin.params != prompt.params
            ):
                raise ConfigError(
                    f"nodes: `{twin}` and `{name}` have different prompts with the namespace and "
                    f"key `{address_of(prompt)}`; give one of them another key"
                )

    def _check_targets(self) -> None:
        if self.targets is None:
            return
        names = [part.name for part in self.open_parts]
        for name in self.targets:
            if name not in names:
                raise ConfigError(
                    f"targets: no part `{name}` may change{did_you_mean(name, names)}; "
                    f"there: {listed(names)}"
                )
        if not self.targets:
            raise ConfigError(f"targets: expected at least one part, found none; {listed(names)}")

    @classmethod
    def around(
        cls,
        function: Callable[..., Any],
        *,
        texts: Mapping[str, str],
        name: str = "",
        placeholders: Placeholders = (),
        **options: Any,
    ) -> Graph:
        """Return the graph of a function that reads its texts with :func:`text`.

        Args:
            function: ``function(*params)``, plain or ``async``, called with the ``params`` of the
                example. Blocks inside ``with step(...)`` are recorded.
            texts: the texts by node name. Every character is literal.
            name: name of the graph; by default that of the function.
            placeholders: strings to be kept by every text that contains them, or the strings of
                each text by name.
            options: ``edges``, ``candidate_errors``, ``max_steps`` and ``max_step_chars``.
        """
        # A namespace has no capitals and begins with a letter or digit.
        name = name or function_name(function).rpartition(".")[2].lower().strip("_")
        adapter = NotAsked(function)
        nodes = [
            Node(node, prompt, adapter=adapter)
            for node, prompt in single_texts(texts, ns=name, placeholders=placeholders).items()
        ]
        return cls(name, flow=PlainFlow(function), nodes=nodes, **options)

    @property
    def all_nodes(self) -> Mapping[str, Node]:
        """Its nodes, and those of inner graphs under names such as ``desk/facts``."""
        nodes: dict[str, Node] = {}
        for node in self.nodes:
            nodes[node.name] = node
            inner_nodes = node.graph.all_nodes.items() if node.graph is not None else ()
            for name, inner in inner_nodes:
                adapter = inner.adapter or node.adapter
                nodes[f"{node.name}/{name}"] = attrs.evolve(inner, adapter=adapter)
        return nodes

    @property
    def graphs(self) -> Mapping[str, Graph]:
        """The inner graphs, by node name."""
        nodes = self.all_nodes.items()
        return {name: node.graph for name, node in nodes if node.graph is not None}

    @property
    def prompts(self) -> Mapping[str, Prompt[Any]]:
        """The prompts, by node name."""
        nodes = self.all_nodes.items()
        return {name: node.prompt for name, node in nodes if node.prompt is not None}

    @property
    def by_address(self) -> Mapping[str, Prompt[object]]:
        prompts_by_address = {address_of(prompt): prompt for prompt in self.prompts.values()}
        return dict(sorted(prompts_by_address.items()))

    @property
    def parts(self) -> tuple[PartOf, ...]:
        parts, targets = self.open_parts, self.targets
        for graph in self.graphs.values():
            if graph.targets is not None:
                closed = {part.name for part in graph.open_parts}.difference(graph.targets)
                parts = tuple(part for part in parts if part.name not in closed)
        return tuple(part for part in parts if targets is None or part.name in targets)

    @property
    def open_parts(self) -> tuple[PartOf, ...]:
        """The parts that the nodes open, whatever the targets."""
        # Nodes with the same prompt share its parts; the last one that selects parts decides.
        named: dict[str, Sequence[PromptPart] | None] = {}
        for node in self.all_nodes.values():
            if node.prompt is not None:
                address = address_of(node.prompt)
                named[address] = node.parts if node.parts is not None else named.get(address)
        ordered = dict.fromkeys(address_of(prompt) for prompt in self.prompts.values())
        parts = parts_of(self.name, [(self.by_address[at], named[at]) for at in ordered])
        alone = {at: [part for part in parts if part.address == at] for at in ordered}
        return tuple(
            attrs.evolve(part, label=INSTRUCTION)
            if isinstance(part.part, SectionModule) and len(alone[part.address]) == 1
            else part
            for part in parts
        )

    def opening(self, parts: Collection[str]) -> Graph:
        own_parts = tuple(part.name for part in self.parts if part.name in parts)
        return attrs.evolve(self, targets=own_parts) if own_parts else self

    @property
    def function(self) -> Callable[..., Any]:
        return self.flow

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(self.all_nodes)

    @property
    def details(self) -> Mapping[str, Json]:
        graphs: dict[str, Json] = {
            name: {"flow": function_identity(graph.flow), "edges": _edge_lines(graph.edges)}
            for name, graph in self.graphs.items()
        }
        return {
            "nodes": {name: address_of(prompt) for name, prompt in self.prompts.items()},
            "edges": _edge_lines(self.edges),
            # Left out if empty, as before there were inner graphs: older journals must be found.
            **({"graphs": graphs} if graphs else {}),
            "node_models": {
                name: adapter_identity(adapter) for name, adapter in self.adapters.items()
            },
            "max_steps": self.max_steps,
        }

    @property
    def adapters(self) -> Mapping[str, ProviderAdapter]:
        nodes = self.all_nodes.items()
        return {
            name: node.adapter
            for name, node in nodes
            if node.adapter is not None and node.prompt is not None
        }

    def answered_by(self, adapter: ProviderAdapter) -> Graph:
        # Nodes without an adapter of their own keep using that of the run.
        nodes = [
            attrs.evolve(
                node,
                adapter=node.adapter and adapter,
                graph=node.graph and node.graph.answered_by(adapter),
            )
            for node in self.nodes
        ]
        return attrs.evolve(self, nodes=nodes)

    def describe(self, traces: Iterable[Sequence[Step]] = ()) -> GraphDescription:
        """Return nodes, edges and parts, under their names in runs.

        Args:
            traces: steps of answers, for example from records. If no edges are declared, the edges
                taken in them are returned, and nodes that occur only there are included.
        """
        return _described(self, traces)

    def answer(
        self,
        *params: object,
        adapter: ProviderAdapter | None = None,
        store: PromptOverridesStore | None = None,
        tag: str = DEFAULT_TAG,
        session: SessionProtocol | None = None,
        deadline: Deadline | None = None,
    ) -> PromptResponse[Any]:
        """Answer with the texts in force.

        Args:
            params: the parameters of the flow.
            adapter: answers the nodes that have no adapter of their own.
            store: the overrides; None for the prompts as defined.
            tag: the tag of the overrides.
            session: receives a :class:`Step` for each step, among other events.
            deadline: the time limit; None for no limit.

        Raises:
            ConfigError: a node has no adapter.
            FlowError: the flow raised an exception, or left the graph.
            CandidateError, ProviderError, LimitReachedError: from the adapter.
        """
        prompts = self.by_address
        if store is not None:
            prompts = {
                at: attrs.evolve(prompt, overrides_store=store, overrides_tag=tag)
                for at, prompt in prompts.items()
            }
        session = Session() if session is None else session
        case = session.tags.get("case", "")
        return self.flow_on(adapter).answer(
            prompts, params, case=case, session=session, deadline=deadline
        )

    def stand_in(self) -> GraphPrompt:
        template = _texts_of(self, self.by_address).template
        return GraphPrompt(template, takes_inputs=True, plays_turns=True, graph=self)

    def flow_on(self, adapter: ProviderAdapter | None) -> GraphRunner:
        nodes = {}
        for name, node in self.all_nodes.items():
            if node.prompt is not None:
                answering = node.adapter or adapter
                if answering is None:
                    raise no_adapter(f"what answers node `{name}`")
                nodes[name] = address_of(node.prompt), answering
        graphs = self.graphs
        edges = {f"{name}/": graph.edges for name, graph in graphs.items()} | {"": self.edges}
        return GraphRunner(
            graph=self.name,
            function=self.flow,
            nodes=nodes,
            parts=self.parts,
            graphs={
                name: InnerFlow(graph.flow, graph.candidate_errors)
                for name, graph in graphs.items()
            },
            edges={
                prefix: frozenset((f"{prefix}{start}", f"{prefix}{end}") for start, end in declared)
                for prefix, declared in edges.items()
                if declared is not None
            },
            candidate_errors=self.candidate_errors,
            max_steps=self.max_steps,
        )


def text(node: str) -> str:
    """Return the text of a node in the current answer.

    Raises:
        FlowError: the graph has no such node.
        CallerError: called outside of an answer.
    """
    run = under_way.get()
    if run is None:
        raise CallerError(
            f"text({node!r}): no graph answers here; have the function called by a run or by "
            "`Graph.answer`"
        )
    return run.text(node)


def history() -> tuple[Message, ...]:
    """Return the messages before the one that is answered now; empty outside of a conversation."""
    run = under_way.get()
    return () if run is None else run.history


@contextmanager
def step(node: str, *, input: object = None) -> Iterator[Opened]:  # noqa: A002 - what it is
    """Return a context that records a step; set its ``output`` inside.

    A step inside another one precedes the result of the outer one. Outside of an answer, nothing is
    recorded.

    Args:
        node: its node; if the node has a text, the step counts as made with it.
        input: its input: a text, or any other value.

    Raises:
        FlowError, CandidateError: the step is not allowed.
    """
    run = under_way.get()
    if run is None:
        yield Opened("", node, (), "")
        return
    with run.step(node, params=() if input is None else (input,)) as (opened, _):
        if opened.node in run.settings.nodes:
            opened.parts = run.settings.nodes[opened.node].parts
        yield opened


@attrs.frozen
class PlainFlow:
    """A plain function as the flow of a graph; picklable if the function is."""

    function: Callable[..., Any]

    @property
    def plain(self) -> Callable[..., Any]:
        """The function that is called without the run, whose signature counts."""
        return self.function

    def __call__(self, run: Run, *params: object) -> Any:
        return self.function(*params)


@attrs.frozen
class NotAsked:
    """The adapter of nodes whose texts a function reads itself; never called."""

    function: Callable[..., Any]

    @property
    def identity(self) -> str:
        """File and name of the function."""
        return f"function {function_name(self.function)}"

    def evaluate(self, prompt: object, *, session: object, deadline: object = None) -> NoReturn:
        """Refuse: the function reads its texts with :func:`text`.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{self.identity} reads its texts itself; call `text`, not `run.ask`")


def _described(graph: Graph, traces: Iterable[Sequence[Step]] = ()) -> GraphDescription:
    """Return the description of a graph; see :meth:`Graph.describe`."""
    declared = all(each.edges is not None for each in (graph, *graph.graphs.values()))
    traced = () if declared else edges_of(traces)
    edges = traced or _flat_edges(graph)
    unknown = [name for edge in edges for name in edge if name not in graph.node_names]
    return GraphDescription(
        name=graph.name,
        nodes=(
            *(_node(graph, name, node) for name, node in graph.all_nodes.items()),
            *(
                NodeDescription(
                    id=f"{graph.name}/{name}", kind="function", prompt="", model="", parts=()
                )
                for name in dict.fromkeys(unknown)
            ),
        ),
        edges=tuple((f"{graph.name}/{start}", f"{graph.name}/{end}") for start, end in edges),
        declared=declared,
    )


def _edge_lines(edges: Iterable[Edge] | None) -> Json:
    return None if edges is None else [" -> ".join(edge) for edge in sorted(edges)]


def _flat_edges(graph: Graph) -> list[Edge]:
    """Return the declared edges of a graph, which lead into inner graphs and out of them."""
    begins: dict[str, list[str]] = {}
    edges: list[Edge] = []
    for node in graph.nodes:
        if node.graph is None or node.graph.edges is None:
            continue
        inner, prefix = _flat_edges(node.graph), f"{node.name}/"
        edges += [(f"{prefix}{start}", f"{prefix}{end}") for start, end in inner]
        starts, ends = {start for start, _ in inner}, {end for _, end in inner}
        names = node.graph.node_names
        begins[node.name] = [f"{prefix}{name}" for name in names if name not in ends]
        # Its answer is a step of the node, after those inside.
        edges += [(f"{prefix}{name}", node.name) for name in names if name not in starts]
    return [
        *((start, place) for start, end in graph.edges or () for place in begins.get(end) or [end]),
        *edges,
    ]


def _node(graph: Graph, name: str, node: Node) -> NodeDescription:
    prompt = node.prompt
    kind = "function" if node.graph is None else "graph"
    return NodeDescription(
        id=f"{graph.name}/{name}",
        kind=kind if prompt is None else "prompt",
        prompt="" if prompt is None else address_of(prompt),
        model="" if node.adapter is None else adapter_identity(node.adapter),
        parts=() if prompt is None else tuple(_parts(graph, prompt)),
    )


def _parts(graph: Graph, prompt: Prompt[object]) -> Iterator[PartDescription]:
    address, view = address_of(prompt), View.of_source(prompt.template)
    own_parts = [part for part in graph.parts if part.address == address]
    for part in own_parts:
        text = "" if part.is_new else part.part.text(view)
        yield PartDescription(id=part.name, type=part.kind, text=text, may_change=True)
    changing = {part.part for part in own_parts}
    for section in prompt.descriptor.sections:
        module = SectionModule(section.path)
        if module not in changing and (text := module.text(view)):
            name = named_in(address, section_part(section.path))
            yield PartDescription(id=name, type=module.kind, text=text, may_change=False)


@attrs.frozen
class GraphPrompt(StandIn):
    """Stands for the prompts of a graph: one prompt with the texts of all nodes.

    It is bound to the input of a case.
    """

    graph: Graph = attrs.field(kw_only=True)

    @property
    def prompts(self) -> Mapping[str, Prompt[object]]:
        """The prompts of the graph with the overrides of this one, by ``namespace/key``."""
        if self.overrides_store is None:
            return self.graph.by_address
        return {
            at: attrs.evolve(
                prompt, overrides_store=self.overrides_store, overrides_tag=self.overrides_tag
            )
            for at, prompt in self.graph.by_address.items()
        }

    def asked_on(self, adapter: ProviderAdapter | None) -> ProviderAdapter:
        return GraphAdapter(self.graph, adapter)

    def render(self, session: SessionProtocol | None = None) -> RenderedPrompt[object]:
        return _texts_of(self.graph, self.prompts).render(session)

    def with_placeholders(self) -> RenderedPrompt[object]:
        return _texts_of(self.graph, self.prompts).with_placeholders()


def _texts_of(graph: Graph, prompts: Mapping[str, Prompt[object]]) -> TextsPrompt:
    """Return the texts of a graph's nodes as one prompt; ``prompts`` are by their addresses."""
    ns, _, key = graph.name.rpartition("/")
    template = PromptTemplate[object](ns=ns or key, key=key, sections=_sections_of(graph, prompts))
    return TextsPrompt(template)


def _sections_of(graph: Graph, prompts: Mapping[str, Prompt[object]]) -> Iterator[MarkdownSection]:
    """Yield a section for each node with a text, and for each graph one with those inside."""
    for node in graph.nodes:
        if node.graph is not None or node.prompt is not None:
            yield MarkdownSection(
                title=node.name,
                key=node.name,
                template=prompts[address_of(node.prompt)].with_placeholders().text
                if node.prompt is not None
                else "",
                syntax="plain",
                children=() if node.graph is None else tuple(_sections_of(node.graph, prompts)),
            )


@attrs.frozen
class GraphAdapter:
    """Answers a :class:`GraphPrompt`; picklable if its flow and its adapters are.

    Attributes:
        adapter: answers the nodes that have no adapter of their own; None if all have one.
    """

    kept_whole: ClassVar[bool] = False

    graph: Graph
    adapter: ProviderAdapter | None
    _flow: GraphRunner = attrs.field(init=False, repr=False, eq=False)

    @_flow.default
    def _flow_of_graph(self) -> GraphRunner:
        return self.graph.flow_on(self.adapter)

    def check_prompt(self, rendered: RenderedPrompt[object]) -> None:
        """Raise a ``ConfigError`` if the adapter of a node cannot answer its prompt."""
        # The text of all nodes, which is what is rendered, goes to none of them.
        self._flow.check_nodes(self.graph.by_address)

    @property
    def identity(self) -> str:
        """The graph, with everything that determines its answers."""
        models = [
            adapter
            for adapter in (self.adapter, *self.graph.adapters.values())
            if adapter is not None
        ]
        names = ", ".join(dict.fromkeys(map(adapter_identity, models)))
        graph_digest = digest([dict(self.graph.details), function_identity(self.graph.flow)])
        return f"graph {self.graph.name} {graph_digest[:12]} on {names}"

    def evaluate(
        self, prompt: Prompt[Any], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[Any]:
        """Answer with the graph.

        Raises:
            ConfigError: ``prompt`` is not a :class:`GraphPrompt`.
            FlowError, CandidateError, ProviderError, LimitReachedError: see :meth:`Graph.answer`.
        """
        if not isinstance(prompt, GraphPrompt):
            raise ConfigError(f"{self.identity}: expected a GraphPrompt, found {shown(prompt)}")
        tags = session.tags
        return self._flow.answer(
            prompt.prompts,
            prompt.params,
            case=tags.get("case") or tags.get("example", ""),
            session=session,
            deadline=deadline,
        )
