"""A program for another optimizer, as its users have them: sums in words, two prompt files.

The agent ends with ``Answer: 11 apples`` once its skill says so, and shows its steps once the
system prompt asks for them. A server stands in for judges and reflection model.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from servers.behaviour import Answer, Asked
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat

THINGS = ("apples", "pears", "coins", "books", "stones", "shells", "stamps", "lamps")
TAUGHT = {"skill": "End with `Answer:`, the number and the unit.", "system_prompt": "Show steps."}
PROGRAM = '''\
"""A program for another optimizer; only its import is changed."""

import re
from pathlib import Path

from promptgraft.bridges.agent_optimizer import AgentOptimizer, TargetPrompt

HERE = Path(__file__).parent
SYSTEM_PROMPT_PATH = HERE / "agent" / "prompts" / "system.md"
SKILL_PATH = HERE / "agent" / "prompts" / "skill.md"


async def call_agent(query: str) -> str:
    system, skill = SYSTEM_PROMPT_PATH.read_text(), SKILL_PATH.read_text()
    first, second = map(int, re.findall(r"\\d+", query))
    unit = re.search(r"How many (\\w+)", query)[1]
    steps = f"{first} + {second}. " if "steps" in system else ""
    if "Answer:" in skill:
        return f"{steps}Answer: {first + second} {unit}"
    return f"{steps}It is {first + second}."


target = (
    TargetPrompt()
    .add_path("system_prompt", str(SYSTEM_PROMPT_PATH))
    .add_path("skill", str(SKILL_PATH))
)


async def main(timestamp: str = "now", **options):
    return await AgentOptimizer.optimize(
        config_path=str(HERE / "optimizer.json"),
        call_agent=call_agent,
        target_prompt=target,
        train_dataset_path=str(HERE / "train.evalset.json"),
        validation_dataset_path=str(HERE / "val.evalset.json"),
        output_dir=str(HERE / "runs" / timestamp),
        **{"update_source": False, "verbose": 1, **options},
    )
'''
RUBRICS = {
    "numeric_correct": "Answer value matches the reference",
    "reasoning_clear": "Reasoning steps are clear",
    "units_present": "Answer has the unit",
}


def configuration() -> dict[str, Any]:
    """Return an ``optimizer.json`` with every key of a first program."""
    model = {
        "model_name": "${TRPC_AGENT_MODEL_NAME}",
        "base_url": "${TRPC_AGENT_BASE_URL}",
        "api_key": "${TRPC_AGENT_API_KEY}",
    }
    rubrics = [
        {"id": name, "content": {"text": text}, "type": "FINAL_RESPONSE_QUALITY"}
        for name, text in RUBRICS.items()
    ]
    return {
        "evaluate": {
            "metrics": [
                {
                    "metric_name": "final_response_avg_score",
                    "threshold": 1.0,
                    "criterion": {
                        "final_response": {"text": {"match": "contains", "case_insensitive": True}}
                    },
                },
                {
                    "metric_name": "llm_rubric_response",
                    "threshold": 0.66,
                    "criterion": {"llm_judge": {"judge_model": model, "rubrics": rubrics}},
                },
            ],
            "num_runs": 1,
        },
        "optimize": {
            "eval_case_parallelism": 2,
            "stop": {"required_metrics": "all"},
            "algorithm": {
                "name": "gepa_reflective",
                "seed": 42,
                "reflection_lm": {**model, "generation_config": {"max_tokens": 4096}},
                "candidate_selection_strategy": "pareto",
                "module_selector": "round_robin",
                "reflection_minibatch_size": 3,
                "skip_perfect_score": False,
                "max_metric_calls": 60,
                "max_iterations_without_improvement": 8,
            },
        },
    }


def eval_set(name: str, numbers: range, *, camel: bool) -> dict[str, Any]:
    """Return an EvalSet in one of the two dialects."""

    def case(number: int) -> dict[str, Any]:
        thing, more = THINGS[number % len(THINGS)], number + 3
        said = f"Mia has {number} {thing} and finds {more} more. How many {thing} is that?"
        user = {"role": "user", "parts": [{"text": said}]}
        final = {"role": "model", "parts": [{"text": f"Answer: {number + more} {thing}"}]}
        session = {"app_name": "sums", "user_id": "u", "state": {}}
        turn = {"invocation_id": f"i{number}", "user_content": user, "final_response": final}
        return {"eval_id": f"{name}-{number}", "conversation": [turn], "session_input": session}

    whole = {"eval_set_id": name, "name": name, "eval_cases": [case(one) for one in numbers]}
    return _in_camel(whole) if camel else whole


def _in_camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub(r"_(\w)", lambda m: m[1].upper(), k): _in_camel(v) for k, v in value.items()}
    return [_in_camel(one) for one in value] if isinstance(value, list) else value


def write_program(folder: Path, **changes: Any) -> Path:
    """Write the whole program; ``changes`` are settings of its algorithm."""
    given = configuration()
    given["optimize"]["algorithm"].update(changes)
    files = {
        "optimizer.json": json.dumps(given, indent=2),
        "train.evalset.json": json.dumps(eval_set("train", range(1, 6), camel=True)),
        "val.evalset.json": json.dumps(eval_set("val", range(11, 14), camel=False)),
        "agent/prompts/system.md": "You help with sums. Be friendly.\n",
        "agent/prompts/skill.md": "Add the numbers up.\n",
        "run_optimization.py": PROGRAM,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


def reply(asked: Asked) -> Answer:
    """Judge rubrics, or teach a part what it lacks."""
    text = "\n".join(asked.texts)
    if "Rubric `" in text:
        said = re.findall(r"(?m)^(.*(?:Answer: \d+ \w+|It is \d+\.))\s*$", text)[-1]
        met = {
            "numeric_correct": True,
            "reasoning_clear": "+" in said,
            "units_present": "Answer:" in said,
        }
        rows = [
            {"id": name, "reason": "as it is", "met": "yes" if met[name] else "no"}
            for name in re.findall(r"Rubric `(\w+)`", text)
        ]
        return Answer(text=json.dumps({"rubrics": rows}))
    current = re.findall(r"```\w*\n(.*?)\n```", text.partition("The part is:")[2], re.DOTALL)[0]
    part = "system_prompt" if "friendly" in current else "skill"
    return Answer(text=f"```instruction\n{current}\n{TAUGHT[part]}\n```")


def serving() -> LoopbackServer:
    """Return a server for judges and reflection model."""
    return LoopbackServer(OpenAIChat(), brain=reply)


def variables(server: LoopbackServer) -> dict[str, str]:
    """Return what the configuration takes from the environment."""
    return {
        "TRPC_AGENT_MODEL_NAME": MODEL,
        "TRPC_AGENT_BASE_URL": server.base_url,
        "TRPC_AGENT_API_KEY": KEY,
    }
