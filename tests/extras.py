"""Each extra in an environment of its own: install, test, uninstall. `make extras`; takes minutes.

Without arguments all of them, else those that are named; `none` has no extra and runs the core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ("ground", "prompt", "overrides", "journal", "runtime", "search", "targets")
TESTS = {
    "none": " ".join(f"tests/{folder}" for folder in CORE),
    "anthropic": "tests/adapters/anthropic tests/adapters/test_base.py",
    "baml": "tests/baml",
    "bedrock": "tests/adapters/test_hosted.py",
    "dask": "tests/optimizers/test_dask.py",
    "images": "tests/content/test_thumbnails.py",
    "litellm": "tests/adapters/test_litellm.py",
    "metrics": "tests/evals/metrics",
    "mlflow": "tests/integrations/test_mlflow_runs.py",
    "oidc": "tests/server/test_oidc.py",
    "openai": "tests/adapters/openai",
    "otel": "tests/integrations/test_telemetry.py",
    "parquet": "tests/evals/test_frames.py",
    "server": "tests/database tests/jobs/test_manager.py",
    "stats": "tests/evals/test_statistics.py",
    "testing": "tests/overrides/test_local_store.py",
    "vertex": "tests/adapters/test_hosted.py",
    "wandb": "tests/integrations/test_wandb_runs.py",
    "weakincentives": "tests/integrations/test_weakincentives.py",
}
"""What concerns an extra."""

BESIDE = {
    "baml": "anthropic genai-prices jsonschema openai",
    "bedrock": "jsonschema openai",
    "mlflow": "mlflow",
    "oidc": "jsonschema oidc-provider-mock playwright",
    "openai": "anthropic jsonschema",
    "vertex": "jsonschema openai",
}
"""What tests of an extra need that it lacks: a server, a validator, the client of other hosts."""

LIGHT = """
import sys
import promptgraft
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & set(sys.argv[1:]), loaded & set(sys.argv[1:])
"""
"""`import promptgraft` loads nothing of what is named."""

FREE = (
    *("anthropic", "openai", "litellm", "botocore", "google", "baml_py", "pydantic", "distributed"),
    *("cloudpickle", "mlflow", "wandb", "opentelemetry", "pyarrow", "sqlalchemy", "starlette"),
    *("scipy", "numpy", "jsonschema", "rapidfuzz", "weakincentives", "genai_prices", "pytest"),
)


def installed(python: Path) -> set[str]:
    """Return the names of the packages of an environment."""
    listed = run(python, "-m", "pip", "list", "--format", "freeze", quiet=True)
    return {line.partition("==")[0] for line in listed.splitlines() if "==" in line}


def run(python: Path, *arguments: str, quiet: bool = False) -> str:
    """Run Python; end with its output if it fails."""
    environment = {**os.environ, "PROMPTGRAFT_EXTRAS": "some"}
    ended = subprocess.run(
        [str(python), *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{' '.join(arguments)}: ended with {ended.returncode}\n{ended.stdout}")
    return ended.stdout or ""


def try_extra(name: str) -> None:
    """Install an extra, run its tests, and uninstall it again."""
    folder = ROOT / "build" / "extras" / name
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    install = ("-m", "pip", "install", "--quiet", "--editable")
    run(python, *install, ".[testing]", "pytest-xdist")
    before = installed(python)
    if name != "none":
        run(python, *install, f".[{name}]")
    if name in BESIDE:
        run(python, "-m", "pip", "install", "--quiet", *BESIDE[name].split())
    run(python, "-c", LIGHT, *FREE)
    run(python, "-m", "pytest", "-q", "-n", "auto", "--tb=short", *TESTS[name].split())
    if added := installed(python) - before:
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", *sorted(added))
    run(python, "-c", LIGHT, *FREE)
    run(python, "-m", "promptgraft", "demo", "--quiet", "--store", str(folder / "demo"), quiet=True)


def main() -> None:
    """Try the extras that are named, or all."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = {"none", *document["project"]["optional-dependencies"]}
    if extras != set(TESTS):
        raise SystemExit(f"tests/extras.py: no tests are named for {sorted(extras ^ set(TESTS))}")
    for name in sys.argv[1:] or sorted(TESTS):
        print(f"{name}:", flush=True)
        try_extra(name)


if __name__ == "__main__":
    main()
