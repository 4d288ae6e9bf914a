"""``promptgraft jobs approvals``: protected tags, and the requests to move them."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from promptgraft.cli import options
from promptgraft.cli.output import Screen, echo, print_json
from promptgraft.ground.serde import unstructure
from promptgraft.service.commands.options import JobsPlace, place_options, projects_option

_number_argument = click.argument("number", metavar="NUMBER", type=options.at_least(1))
_comment_option = click.option("--comment", default="", help="A comment on the request.")


@click.group(
    "approvals",
    epilog=options.examples(
        "jobs approvals protect production",
        "jobs approvals list",
        "jobs approvals approve 7 --server https://jobs.example.org",
    ),
)
def approvals_command() -> None:
    """Protect tags of a project, and decide on requests to move them.

    For a protected tag, `jobs apply` and `jobs promote` make a request, which two people have to
    approve; making it is the first approval.
    """


@approvals_command.command("list", epilog=options.examples("jobs approvals list --json"))
@projects_option
@place_options
@options.json_option
def list_command(*, projects: tuple[str, ...], place: JobsPlace, as_json: bool) -> None:
    """List the protected tags of a project, and its requests, the newest first."""
    project = place.project(projects)
    with place.opened(projects) as jobs:
        tags, requests = jobs.protections(project), jobs.requests(project)
    if as_json:
        print_json({"protections": unstructure(tags), "requests": unstructure(requests)})
        return
    screen = Screen()
    screen.line(f"protected tags of {project}: {', '.join(row.tag for row in tags) or 'none'}")
    if requests:
        rows = [
            (
                str(request.number),
                str(request.state),
                f"{request.move.kind} {request.move.prompt} to {request.move.tag}",
                f"{datetime.fromtimestamp(request.entries[0].time, UTC):%Y-%m-%d %H:%MZ}",
                ", ".join(request.approved_by) or "nobody",
            )
            for request in requests
        ]
        screen.table([("request", "state", "move", "asked", "approved by"), *rows])


def _add_change(what: str, about: str, state: str) -> None:
    """Add a command that changes whether a tag is protected."""

    @approvals_command.command(
        what, help=about, epilog=options.examples(f"jobs approvals {what} production")
    )
    @click.argument("tag", type=options.tag)
    @projects_option
    @place_options
    def change_command(tag: str, *, projects: tuple[str, ...], place: JobsPlace) -> None:
        project = place.project(projects)
        with place.opened(projects) as jobs:
            {"protect": jobs.protect, "unprotect": jobs.unprotect}[what](project, tag)
        echo(f"tag {tag} is {state}")


_add_change("protect", "Protect TAG of a project.", "protected")
_add_change("unprotect", "End the protection of TAG.", "no longer protected")


def _add_decision(what: str, about: str, example: str) -> None:
    """Add a command that decides on a request."""

    @approvals_command.command(what, help=about, epilog=options.examples(example))
    @_number_argument
    @_comment_option
    @projects_option
    @place_options
    def decide_command(
        number: int, *, comment: str, projects: tuple[str, ...], place: JobsPlace
    ) -> None:
        with place.opened(projects) as jobs:
            decide = {"approve": jobs.approve, "decline": jobs.decline, "withdraw": jobs.withdraw}
            request = decide[what](number, comment=comment)
        people = f", approved by {', '.join(request.approved_by)}" if request.approved_by else ""
        echo(f"request {number} is {request.state}{people}")


_add_decision(
    "approve", "Approve a request; the last approval moves its tag.", "jobs approvals approve 7"
)
_add_decision(
    "decline",
    "Decline a request; --comment gives the reason.",
    'jobs approvals decline 7 --comment "the test set is worn"',
)
_add_decision("withdraw", "Withdraw your own request.", "jobs approvals withdraw 7")
