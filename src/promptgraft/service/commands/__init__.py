"""The commands of the service, found by entry point and imported when they are used."""

from promptgraft.cli.adding import LateCommand

__all__ = ["JOBS", "SERVE", "TOKENS", "WORKER"]

_HERE = "promptgraft.service.commands"

JOBS = LateCommand(
    f"{_HERE}.jobs:jobs_command",
    "Submit and manage optimization jobs in a database or on a server.",
)
WORKER = LateCommand(f"{_HERE}.serve:worker_command", "Run the jobs of a project.")
SERVE = LateCommand(f"{_HERE}.serve:serve_command", "Serve jobs over HTTP, with a dashboard.")
TOKENS = LateCommand(
    f"{_HERE}.serve:tokens_command", "Create, list and revoke the tokens of a server."
)
