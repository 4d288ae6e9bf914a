"""The main commands with the lowest versions that pyproject.toml allows: ``make lowest``.

For each Python that promptgraft supports and this machine has. Those that it lacks are named.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "examples/projects/classify"

COMMANDS = (
    ("--version",),
    ("init", "new"),
    ("check",),
    ("plan",),
    ("eval",),
    ("optimize", "--budget", "400"),
    ("runs",),
    ("show", "latest"),
    ("report", "latest"),
    ("resume", "latest"),
)
"""In the folder of a project, in this order."""

SERVED = {
    "openai": (
        "/v1/chat/completions",
        {
            "choices": [
                {"finish_reason": "stop", "message": {"role": "assistant", "content": "roads"}}
            ]
        },
    ),
    "anthropic": (
        "/v1/messages",
        {
            "type": "message",
            "role": "assistant",
            "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "roads"}],
        },
    ),
}
"""Path and reply of a model that always gives the same answer, by the SDK that asks it."""

_PASSED = (0, 1)
"""A search may find nothing better, and an evaluation may stay below what was required."""


def versions() -> list[str]:
    """Return the versions of Python that pyproject.toml names, such as ``3.11``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.rpartition(" :: ")[2] for line in project["classifiers"]]
    return [name for name in named if name.startswith("3.")]


def run(*command: str | Path, allowed: Sequence[int] = (0,), cwd: Path = ROOT) -> None:
    """Run a command; end with its output if it fails."""
    ended = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    if ended.returncode not in allowed:
        output = f"{ended.stdout}{ended.stderr}".strip()
        raise SystemExit(f"{' '.join(map(str, command))}: ended with {ended.returncode}\n{output}")


def installer() -> str:
    """Return the path of uv, which can resolve the lowest versions."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if (uv := shutil.which("uv", path=beside)) is None:
        raise SystemExit("uv is not installed; it is in the group `dev` of pyproject.toml")
    return uv


def find_interpreter(uv: str, version: str) -> str:
    """Return the path of a Python of this machine; empty if there is none."""
    command = [uv, "python", "find", "--no-python-downloads", "--no-project", version]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    return ended.stdout.strip() if ended.returncode == 0 else ""


class Models(BaseHTTPRequestHandler):
    """Both models of ``SERVED``."""

    def do_POST(self) -> None:
        """Reply as the model of the path does."""
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(dict(SERVED.values())[self.path]).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def ask_models(promptgraft: Path, project: Path) -> None:
    """Evaluate a project with a model behind each SDK."""
    file = project / "promptgraft.yaml"
    offline = file.read_text("utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for sdk in SERVED:
            base = f"http://127.0.0.1:{server.server_port}" + ("/v1" if sdk == "openai" else "")
            model = f"{{provider: {sdk}, model: own, base_url: '{base}', api_key: none}}"
            file.write_text(offline.replace("{provider: offline}", model, 1), "utf-8")
            run(promptgraft, "eval", "--min-pass-rate", "0.1", cwd=project)
        server.shutdown()


def try_lowest(uv: str, interpreter: str, folder: Path) -> None:
    """Install the lowest versions for one Python, and run the commands."""
    environment = folder / "environment"
    run(uv, "venv", "--quiet", "--python", interpreter, environment)
    python, lowest = environment / "bin/python", ("--resolution", "lowest-direct")
    source = f"{ROOT}[{','.join(SERVED)}]"
    run(uv, "pip", "install", "--quiet", "--system-certs", "--python", python, *lowest, source)
    project = shutil.copytree(PROJECT, folder / "project")
    for command in COMMANDS:
        run(environment / "bin/promptgraft", *command, allowed=_PASSED, cwd=project)
    ask_models(environment / "bin/promptgraft", project)


def main() -> None:
    """Try each version of Python."""
    uv = installer()
    for version in versions():
        interpreter = find_interpreter(uv, version)
        if not interpreter:
            print(f"Python {version}: absent, not tried", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix="promptgraft-lowest-") as folder:
            try_lowest(uv, interpreter, Path(folder))
        count = len(COMMANDS) + len(SERVED)
        print(f"Python {version}: {count} commands with the lowest versions", flush=True)


if __name__ == "__main__":
    main()
