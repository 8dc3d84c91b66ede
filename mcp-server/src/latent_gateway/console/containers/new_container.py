"""Create a container: from a template, in a form or as YAML with its comments."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from latent_core.domain.errors import Conflict, Invalid, LatentError
from latent_core.domain.manifest.model import Manifest, new_manifest, parse_manifest
from latent_core.domain.manifest.templates import KINDS, golden_queries, template
from latent_core.domain.manifest.yaml_reader import read_manifest
from latent_core.domain.token import Scope
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_gateway.api.containers import created
from latent_gateway.auth import access
from latent_gateway.console.containers.container_settings import known_embedders
from latent_gateway.console.containers.manifest_draft import MAX_FIELD_CHARS
from latent_gateway.console.containers.manifest_form import (
    WHERE,
    ManifestProblem,
    problems_of,
)
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done, page, wants_part
from latent_gateway.context import Gateway, RequestId, Shared
from latent_gateway.manifest_sync import manifest_text

router = pages()

EMPTY: Final = "empty"
AS_YAML: Final = "yaml"
OWNERS: Final = 'owner: ["local:you"]'
TITLES: Final = {
    "notes": "Notes",
    "code": "Code",
    "papers": "Papers",
    "web": "Web pages",
    "pictures": "Pictures",
    EMPTY: "Defaults",
}
ABOUT_EMPTY: Final = (
    "The defaults, for everything else: any files, found by keywords and by meaning."
)


@dataclass
class ContainerDraft:
    """What is typed in the form of a new container."""

    kind: str
    mode: str = "form"
    id: str = ""
    name: str = ""
    theme: str = ""
    embedder: str = "local"
    source: str = ""
    problems: list[ManifestProblem] = field(default_factory=list)
    manifest: Manifest | None = None
    """What would be created, of YAML that was checked."""

    def error_of(self, key: str) -> str:
        return "; ".join(one.message for one in self.problems if one.key == key)

    @property
    def others(self) -> list[ManifestProblem]:
        """Problems without a field in the form."""
        fields = ("id", "name", "theme", "embedder")
        return [one for one in self.problems if one.key not in fields]


@router.get("/console/new")
async def new_page(
    shared: Shared,
    session: SignedIn,
    kind: Annotated[str, Query(max_length=40)] = KINDS[0],
    mode: Annotated[str, Query(alias="as", max_length=8)] = "form",
) -> Response:
    """The templates, and the form of the chosen one."""
    access.require(session.principal, Scope.CREATE)
    known = kind if kind in TITLES else KINDS[0]
    manifest = _template_manifest(known)
    draft = ContainerDraft(
        kind=known,
        mode=mode if mode == AS_YAML else "form",
        theme=manifest.theme,
        embedder=manifest.embedder,
        source=_source(known, {}, session.principal.name),
    )
    return await _shown(shared, session, draft)


@router.post("/console/new")
async def create(
    request: Request,
    shared: Shared,
    session: SignedIn,
    request_id: RequestId,
) -> Response:
    """Check what was typed; create the container unless only a part of the page was requested."""
    access.require(session.principal, Scope.CREATE)
    draft = _draft(dict(await request.form()))
    source: str | None = None
    try:
        source, manifest = _read(draft, session.principal.name)
        draft.manifest = manifest
        access.check_creation(session.principal, manifest.id)
        access.check_kept(session.principal, manifest)
        if wants_part(request):
            return page("containers/check.html", session, draft=draft)
        golden = None if draft.kind == EMPTY else golden_queries(draft.kind)
        _, space = await created(manifest, shared, session.principal, request_id, golden, source)
    except (Invalid, Conflict) as error:
        draft.problems = _problems(error)
        draft.manifest = None
        if wants_part(request):
            return page("containers/check.html", session, draft=draft)
        return await _shown(shared, session, draft, 422)
    shared.warmer.soon(space)
    return done(
        f"/console/containers/{manifest.id}",
        f"The container '{manifest.id}' was created. Add files to it next.",
    )


def _draft(form: dict[str, Any]) -> ContainerDraft:
    texts = {name: value.strip() for name, value in form.items() if isinstance(value, str)}
    if any(len(value) > MAX_FIELD_CHARS for value in texts.values()):
        raise Invalid(f"a field has at most {MAX_FIELD_CHARS:,} characters")
    return ContainerDraft(
        kind=texts.get("kind", "") if texts.get("kind") in TITLES else EMPTY,
        mode=AS_YAML if texts.get("as") == AS_YAML else "form",
        id=texts.get("id", ""),
        name=texts.get("name", ""),
        theme=texts.get("theme", ""),
        embedder=texts.get("embedder", "") or "local",
        source=texts.get("source", "").replace("\r\n", "\n"),
    )


def _read(draft: ContainerDraft, principal: str) -> tuple[str, Manifest]:
    """The YAML of the new container with its comments, and the manifest in it."""
    if draft.mode == AS_YAML:
        return draft.source, read_manifest(draft.source, where=WHERE)
    parse_manifest({"id": draft.id, "name": draft.name or draft.id}, where=WHERE)
    words = {"id": draft.id, "name": draft.name or draft.id}
    words |= {"theme": draft.theme, "embedder": draft.embedder}
    source = _source(draft.kind, words, principal)
    return source, read_manifest(source, where=WHERE)


def _source(kind: str, words: dict[str, str], principal: str) -> str:
    """The annotated YAML of a template with these keys, owned by the principal."""
    owner = f"owner: [{json.dumps(principal)}]"
    if kind != EMPTY:
        return template(kind).written(words).replace(OWNERS, owner)
    roles = {"acl": {"roles": {"owner": [principal]}}}
    named = {"id": "my-container", "name": "My container", **words}
    return manifest_text(new_manifest({**named, **roles}))


def _template_manifest(kind: str) -> Manifest:
    if kind == EMPTY:
        return new_manifest({"id": "my-container", "name": "My container"})
    return template(kind).manifest


def _problems(error: LatentError) -> list[ManifestProblem]:
    if isinstance(error, Invalid):
        return problems_of(error)
    return [ManifestProblem(error.message, "id")]


async def _shown(
    shared: Gateway, session: ConsoleSession, draft: ContainerDraft, status: int = 200
) -> Response:
    offered = [(kind, TITLES[kind], template(kind).about) for kind in KINDS]
    embedders: EmbedderRegistry = shared.stack.embedders
    return page(
        "containers/new.html",
        session,
        status=status,
        draft=draft,
        kinds=[*offered, (EMPTY, TITLES[EMPTY], ABOUT_EMPTY)],
        embedders=await asyncio.to_thread(known_embedders, shared),
        missing=embedders.lacking(draft.embedder),
    )
