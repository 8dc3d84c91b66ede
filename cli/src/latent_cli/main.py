"""``latent``: the table of commands and the handling of their errors.

The module of a command is imported when the command is called, which keeps ``latent --help`` fast.
"""

from __future__ import annotations

import difflib
import keyword
import os
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from latent_core import __version__
from latent_core.runtime.imports import quick_imports

COMMANDS: Final = {
    "up": "Start gateway and worker on embedded services, in one process.",
    "service": "Run `latent up` as a service that starts when you log in (systemd or launchd).",
    "console": "Print a new one-time link to the console.",
    "gateway": "Start only a gateway, on external servers.",
    "worker": "Start only a worker, on external servers.",
    "migrate": "Bring the database to this release's schema.",
    "adopt": "Make this database the one that may write to the installation's collections and bucket.",
    "container": "Create, list, describe, change and delete containers.",
    "samples": "Create the container `samples` and fill it with the handbook of a lighthouse museum.",
    "token": "Create, list and revoke tokens, and see what they did.",
    "connect": "Connect an agent to a container: write its configuration, with a token for this container only.",
    "disconnect": "Undo `latent connect`: restore the agent's files and revoke its token.",
    "audit": "Print who changed what, newest first.",
    "ingest": "Ingest files and folders into a container.",
    "sources": "List the folders that are synced into a container, and forget one.",
    "remember": "Add a note to a container.",
    "recall": "Print pinned and recent notes for the start of an agent's session.",
    "search": "Find passages in one or several containers.",
    "ask": "Answer a question from containers, with citations that open the page.",
    "open": "Open the page image of a hit in the default viewer.",
    "jobs": "List, show, watch, cancel and requeue jobs.",
    "documents": "List, download, delete and restore documents of a container.",
    "inspect": "Show stored chunks and their sizes.",
    "pages": "Find pages, export images, PDFs and extractions of pages, show which PDFs are processed, and process them.",
    "extract": "Have a language model describe pages of documents.",
    "summarise": "Have a language model write summaries of documents.",
    "drop-generated": "Remove what a language model wrote about documents: summaries, extraction (of pages) or captions.",
    "understanding": "Show how far summaries and page extractions are, and what they cost.",
    "export": "Export a container to one file.",
    "import": "Import a container from a file.",
    "backup": "Create, list, fetch, verify, restore and delete backups.",
    "restore": "Restore a backup of a whole installation.",
    "mcp": "Serve MCP on stdin and stdout for agents that start a command.",
    "eval": "Measure retrieval quality with golden queries or a judged set.",
    "eval-runs": "List the evaluation runs of a container, show one, or compare two query by query.",
    "golden": "List, add, remove, import and export the golden queries of a container.",
    "queries": "List what was searched for in a container, most frequent first.",
    "refresh": "Change a container's embedder or rebuild its vectors or chunks.",
    "models": "Install models of a hub on this machine, and test models before a container uses them.",
    "doctor": "Compare the stores and report every difference.",
    "config": "Print the settings, each with the place that it comes from; secrets are masked.",
}
"""Command to its purpose: the first sentence of the command's help (a test compares them)."""


def module_of(command: str) -> str:
    """The module of a command. A Python keyword gets a trailing underscore, a dash becomes one."""
    name = command.replace("-", "_")
    return f"latent_cli.commands.{name}{'_' if keyword.iskeyword(command) else ''}"


class LazyGroup(TyperGroup):
    """Lists commands from the table and imports only the called one."""

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            with quick_imports():
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
    """Options of the whole call."""

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
        typer.echo(f"latent {__version__}")
        raise typer.Exit


@app.callback()
def latent(
    ctx: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an error.")
    ] = False,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the release."
        ),
    ] = False,
) -> None:
    """Manage and search containers of documents.

    Start with `latent up`. Exit codes: 0 done, 1 failed, 2 invalid command,
    3 gateway unreachable, 4 a job failed or doctor found differences.
    """
    ctx.obj.debug = debug


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


UNUSED: Final = "httpx._main"
"""The HTTP client's own command line: importing it takes as long as the client itself (rich, click, pygments)."""

NO_PLUGINS: Final = ("PYDANTIC_DISABLE_PLUGINS", "__all__")
"""None of ours uses them, and looking for some reads the metadata of all installed packages."""


def run(arguments: list[str]) -> int:
    """Run one call of ``latent`` and return its exit code. An error is one line on stderr."""
    os.environ.setdefault(*NO_PLUGINS)  # noqa: TID251 - set for a library, not read
    sys.modules.setdefault(UNUSED, None)  # type: ignore[arg-type]  # documented: the import then fails
    invocation = Invocation()
    try:
        result = app(
            arguments or ["--help"], prog_name="latent", obj=invocation, standalone_mode=False
        )
    except Exception as exc:  # noqa: BLE001 - the outermost frame: an uncaught error would print a traceback
        if invocation.debug:
            traceback.print_exc()
        return _report(exc, as_json="--json" in arguments)
    return result if isinstance(result, int) else 0


def _report(exc: Exception, *, as_json: bool) -> int:
    from latent_cli.exits import explain

    return explain(exc, as_json=as_json)
