"""The end of a command that went wrong: one line that says what happened and what to do."""

from __future__ import annotations

import sys

from typer import Abort, TyperException

from latent_cli.exits import FAILED, USAGE, code_of
from latent_cli.output import emit, safe
from latent_core.domain.errors import Issue, IssueCode, LatentError, Unavailable


def explain(exc: Exception, *, as_json: bool) -> int:
    """Print the line (and with ``as_json`` the issue on stdout); the exit code."""
    issue, code = _issue(exc)
    if as_json:
        emit({"issues": [issue]}, line=True)
    line = safe(" ".join(issue.message.split()))
    print(f"latent: {line}", file=sys.stderr)  # noqa: T201 - the one place
    return code


def _issue(exc: Exception) -> tuple[Issue, int]:
    match exc:
        case LatentError():
            return exc.issue(), code_of(exc)
        case TyperException():
            message = f"{exc.format_message().rstrip('.')}; see `latent --help`"
            return Issue(code=IssueCode.INVALID, message=message), USAGE
        case Abort():
            return Issue(code=IssueCode.INVALID, message="aborted"), FAILED
    message = (
        f"this should not happen ({type(exc).__name__}: {exc}); `latent --debug …` shows where"
    )
    return Unavailable(message).issue(), FAILED
