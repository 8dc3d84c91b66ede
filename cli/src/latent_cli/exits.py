"""Exit codes of ``latent`` and the one-line error message."""

from __future__ import annotations

import sys
from typing import Final

from typer import Abort, TyperException

from latent_cli.output import emit, safe
from latent_client.errors import GatewayUnreachable
from latent_core.domain.errors import Invalid, Issue, IssueCode, LatentError, Unavailable

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
"""The command or its arguments are invalid."""
UNREACHABLE: Final = 3
FOUND: Final = 4
"""A job failed or was cancelled, doctor found differences, or a sync withheld deletions."""
MISSING: Final = "Missing command"
"""Of a group of commands that is called without one."""


def code_of(error: LatentError) -> int:
    match error:
        case GatewayUnreachable():
            return UNREACHABLE
        case Invalid():
            return USAGE
    return FAILED


def explain(exc: Exception, *, as_json: bool) -> int:
    """Print the error line, with ``as_json`` also the issue on stdout. Returns the exit code."""
    issue, code = _issue(exc)
    if as_json:
        emit({"issues": [issue]}, line=True)
    line = safe(" ".join(issue.message.split()))
    print(f"latent: {line}", file=sys.stderr)  # noqa: T201 - the only print of the CLI
    return code


def _usage(exc: TyperException) -> str:
    """What is wrong with the call, and the help of the command that was called."""
    context = getattr(exc, "ctx", None)
    message, path = exc.format_message().rstrip("."), "latent"
    if context is not None:
        path = context.command_path
        if message == MISSING:
            message += f", one of {', '.join(context.command.list_commands(context))}"
    return f"{message}; see `{path} --help`"


def _issue(exc: Exception) -> tuple[Issue, int]:
    match exc:
        case LatentError():
            return exc.issue(), code_of(exc)
        case TyperException():
            message = _usage(exc)
            return Issue(code=IssueCode.INVALID, message=message), USAGE
        case Abort():
            return Issue(code=IssueCode.INVALID, message="aborted"), FAILED
    message = (
        f"internal error ({type(exc).__name__}: {exc}); run `latent --debug …` for the traceback"
    )
    return Unavailable(message).issue(), FAILED
