"""Issues as jobs keep them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from psycopg.types.json import Jsonb

from latent_core.domain.errors import Issue, IssueCode, LatentError

MESSAGE_CHARACTERS: Final = 2000


def issue_of(error: BaseException) -> Issue:
    """What a user is told about ``error``; of unexpected ones only the name, the log has the rest."""
    if isinstance(error, LatentError):
        return error.issue()
    return Issue(
        code=IssueCode.UNAVAILABLE,
        message=f"an unexpected error ({type(error).__name__}) in the worker; its log tells more",
    )


def stored(issue: Issue | None) -> Jsonb | None:
    """``issue`` for a jsonb column."""
    return None if issue is None else Jsonb(_dump(issue))


def stored_list(issues: Iterable[Issue]) -> Jsonb:
    """``issues`` for a jsonb column."""
    return Jsonb([_dump(issue) for issue in issues])


def _dump(issue: Issue) -> Any:
    cut = issue.model_copy(update={"message": issue.message[:MESSAGE_CHARACTERS]})
    return clean(cut.model_dump(mode="python"))


def clean(value: Any) -> Any:
    """``value`` as jsonb can hold it: no NUL, no lone surrogate, nothing but JSON.

    A cause often quotes the very content that could not be read; it must not make the failure itself fail.
    """
    match value:
        case str():
            return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
        case None | bool() | int() | float():
            return value
        case dict():
            return {clean(str(key)): clean(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [clean(item) for item in value]
        case _:
            return clean(str(value))
