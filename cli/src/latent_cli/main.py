"""``latent``: commands, and how their errors end.

A command's module is imported when the command is called, so that ``latent --help`` is instant.
"""

from __future__ import annotations

import difflib
import keyword
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

COMMANDS: Final = {
    "up": "Start gateway and worker on embedded services, in one process.",
    "gateway": "Start a gateway of its own, on servers.",
    "worker": "Start a worker of its own, on servers.",
    "migrate": "Bring the database to this release's schema.",
    "container": "Create, list, describe, change, close and delete containers.",
    "token": "Create, list and revoke tokens.",
    "audit": "Print who changed what, newest first.",
    "ingest": "Bring files and folders into a container.",
    "search": "Find passages in one or several containers.",
    "open": "Show the page of a hit: its image, in whatever this desktop opens images with.",
    "jobs": "List, show, watch, cancel and requeue jobs.",
    "documents": "List and delete documents of a container.",
    "inspect": "Look at chunks as they are stored, one or many, and at their sizes.",
    "pages": "Export the page images of documents.",
    "export": "Write a container into one file.",
    "import": "Take a container in from a file.",
    "backup": "Make, list, fetch, verify, restore and delete backups.",
    "mcp": "Speak MCP on stdin and stdout, for agents that start a command.",
    "eval": "Measure retrieval by golden queries or a judged set, against gates.",
    "refresh": "Change a container's embedder, or make its vectors or chunks anew.",
    "doctor": "Compare the stores and tell every difference.",
    "config": "Print the settings, with secrets masked.",
}
"""Name to what it is for: the first sentence of the command's own help (a test compares them)."""


def module_of(command: str) -> str:
    """The module of a command; one that Python has a meaning for ends with an underscore."""
    return f"latent_cli.commands.{command}{'_' if keyword.iskeyword(command) else ''}"


class LazyGroup(TyperGroup):
    """Knows its commands by the table and imports the one that is called."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            module = import_module(module_of(cmd_name))
            return typer.main.get_command(module.app)
        near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
        return ctx.fail(
            f"no command '{cmd_name}'" + (f"; did you mean '{near[0]}'?" if near else "")
        )

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@dataclass
class Invocation:
    """What concerns the whole call."""

    debug: bool = False


app = typer.Typer(
    cls=LazyGroup,
    name="latent",
    add_completion=True,  # --install-completion and --show-completion
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"latent {version('latent-cli')}")
        raise typer.Exit


@app.callback()
def latent(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the release."
        ),
    ] = False,
) -> None:
    """Containers of documents that agents can search.

    Start with `latent up`. Exit codes: 0 done, 1 failed, 2 not understood,
    3 gateway not reached, 4 a job failed or doctor found differences.
    """
    ctx.obj.debug = debug


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """One call of ``latent``; its exit code. Errors are one line on stderr."""
    invocation = Invocation()
    try:
        result = app(
            arguments or ["--help"], prog_name="latent", obj=invocation, standalone_mode=False
        )
    except Exception as exc:  # noqa: BLE001 - the outermost frame: what is not caught here is a traceback
        if invocation.debug:
            traceback.print_exc()
        return _report(exc, as_json="--json" in arguments)
    return result if isinstance(result, int) else 0


def _report(exc: Exception, *, as_json: bool) -> int:
    from latent_cli.exits import explain

    return explain(exc, as_json=as_json)
