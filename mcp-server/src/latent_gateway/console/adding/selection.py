"""Which files of a dropped folder are documents: the rules of ``latent ingest``, with the folder's own rule files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from fastapi import Response
from pathspec import GitIgnoreSpec
from pydantic import BaseModel, Field

from latent_core.domain.ignore import DEFAULTS, IGNORE_FILE, NEVER
from latent_core.domain.unread import unread_type
from latent_core.wire.base import RequestBody
from latent_gateway.auth import access
from latent_gateway.console.adding.script_route import script_routes
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.context import Shared

router = script_routes()

MAX_PATHS: Final = 2000
MAX_RULES: Final = 200
MAX_RULE_CHARS: Final = 65_536
RelativePath = Annotated[str, Field(min_length=1, max_length=1500)]


class SelectionBody(RequestBody):
    """Paths of files below dropped folders, with ``/``, and the rule files that were found there."""

    paths: Annotated[list[RelativePath], Field(max_length=MAX_PATHS)]
    rules: Annotated[
        dict[RelativePath, Annotated[str, Field(max_length=MAX_RULE_CHARS)]],
        Field(max_length=MAX_RULES),
    ] = {}


class SkippedFile(BaseModel):
    path: str
    reason: str


class SelectionAnswer(BaseModel):
    skipped: list[SkippedFile]


@router.post("/console/containers/{container_id}/selection")
async def select(
    container_id: str, body: SelectionBody, shared: Shared, session: SignedIn
) -> Response:
    """The files that are not sent, with the reason."""
    async with shared.stack.db.reading() as conn:
        await access.writable(conn, session.principal, container_id)
    found = await asyncio.to_thread(skipped, body.paths, body.rules)
    return Response(SelectionAnswer(skipped=found).model_dump_json(), media_type="application/json")


def skipped(paths: Sequence[str], rules: Mapping[str, str]) -> list[SkippedFile]:
    """By name, by the defaults and ``.gitignore``, unless a ``.latentignore`` names the file; by type."""
    ignored = _spec([*DEFAULTS.splitlines(), *_lines(rules, latent=False)])
    named = _spec(_lines(rules, latent=True))
    found = []
    for path in paths:
        reason = _reason(path, ignored, named)
        if reason is not None:
            found.append(SkippedFile(path=path, reason=reason))
    return found


def _reason(path: str, ignored: GitIgnoreSpec, named: GitIgnoreSpec) -> str | None:
    if not NEVER.isdisjoint(path.split("/")):
        return "never a document"
    own = named.check_file(path).include
    if own is not None:
        return f"named in {IGNORE_FILE}" if own else None
    if ignored.match_file(path):
        return "ignored by default or by .gitignore"
    type_ = unread_type(path)
    return None if type_ is None else f"no parser reads {type_} files"


def _lines(rules: Mapping[str, str], *, latent: bool) -> list[str]:
    """The rules of all files of a kind, relative to the top; those of inner folders come last, so they decide."""
    lines: list[str] = []
    for place in sorted(rules, key=lambda place: place.count("/")):
        folder, _, name = place.rpartition("/")
        if (name == IGNORE_FILE) is latent:
            lines += [
                moved for line in rules[place].splitlines() if (moved := _moved(line, folder))
            ]
    return lines


def _moved(line: str, folder: str) -> str | None:
    """A rule of ``folder`` as a rule of the top."""
    rule = line.strip()
    if not rule or rule.startswith("#"):
        return None
    negated = "!" if rule.startswith("!") else ""
    pattern = rule.removeprefix("!")
    below = pattern.rstrip("/")
    anywhere = "" if "/" in below else "**/"
    place = "".join(f"\\{c}" if c in "*?[]\\!#" else c for c in folder)
    return f"{negated}/{place + '/' if place else ''}{anywhere}{pattern.lstrip('/')}"


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(lines, backend="simple")
