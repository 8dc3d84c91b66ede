"""A manifest that is being edited: what was typed, what is wrong with it, and what saving it would change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from fastapi import Request

from latent_core.db.containers import Container
from latent_core.domain.errors import Conflict, Invalid, Issue, LatentError
from latent_core.domain.manifest.changes import ManifestChange, differences, rebased
from latent_core.domain.manifest.model import Manifest, parse_manifest
from latent_core.domain.manifest.yaml_reader import read_manifest
from latent_core.ingest.containers import EMBEDDER_KEYS, completed, etag
from latent_core.wire.manifest_plan import ManifestPlan
from latent_gateway.api.containers import planned
from latent_gateway.console.containers.manifest_form import (
    WHERE,
    ManifestProblem,
    manifest_from,
    problems_of,
    read_values,
    values_of,
)
from latent_gateway.console.frame.console_session import ConsoleSession
from latent_gateway.console.frame.view import wants_part
from latent_gateway.context import Gateway
from latent_gateway.manifest_sync import manifest_text

MAX_FIELD_CHARS: Final = 200_000
AS_YAML: Final = "yaml"
AS_FORM: Final = "form"


@dataclass
class ManifestDraft:
    """What a page of the settings shows of a manifest."""

    mode: str
    values: dict[str, Any]
    """Of the form."""
    source: str
    """The YAML."""
    base: str
    """JSON of the manifest that the person began with."""
    version: str
    """Its etag."""
    plan: ManifestPlan | None = None
    problems: list[ManifestProblem] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    planned: str = ""
    """The etag of the manifest that the plan is about."""
    meanwhile: list[ManifestChange] = field(default_factory=list)
    """What others changed since the person began."""

    def error_of(self, key: str) -> str:
        """What is wrong with a field of the form."""
        return "; ".join(one.message for one in self.problems if one.field == key)


def opened(container: Container, mode: str) -> ManifestDraft:
    """The manifest in force, to be edited."""
    manifest = container.manifest
    return ManifestDraft(
        mode=mode,
        values=values_of(manifest),
        source=manifest_text(manifest),
        base=manifest.model_dump_json(),
        version=container.etag,
    )


@dataclass
class SentManifest:
    """A form as it was sent, and the manifest in it, if there is one."""

    draft: ManifestDraft
    manifest: Manifest | None
    base: Manifest


async def received(
    request: Request, shared: Gateway, session: ConsoleSession, container: Container
) -> SentManifest:
    """Read the form and plan its manifest, on top of what others have stored meanwhile. What is wrong with it is in the
    draft. A part of the page keeps what the person began with, since the fields of the form stay as they are."""
    form = await request.form()
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    if any(len(value) > MAX_FIELD_CHARS for value in fields.values()):
        raise Invalid(f"a field has at most {MAX_FIELD_CHARS:,} characters")
    base = _base(fields.get("base", ""), container)
    mode = AS_YAML if fields.get("as") == AS_YAML else AS_FORM
    draft = ManifestDraft(
        mode=mode,
        values=read_values(fields) if mode == AS_FORM else values_of(base),
        source=fields.get("source", "").replace("\r\n", "\n"),
        base=base.model_dump_json(),
        version=fields.get("version", ""),
    )
    manifest = None
    try:
        manifest = _manifest(draft, base)
        if draft.version != container.etag:
            draft.meanwhile = differences(base, container.manifest)
            manifest = _put_on_top(base, manifest, container)
            if not wants_part(request):
                go_on_with(draft, manifest, container)
        answer = await planned(shared, session.principal, container.id, manifest)
        draft.plan, draft.issues = answer.plan, answer.issues
        draft.planned = etag(completed(manifest, container))
    except Invalid as error:
        manifest, draft.problems = None, problems_of(error)
    except Conflict as error:
        manifest, draft.problems = None, [ManifestProblem(error.message)]
    return SentManifest(draft, manifest, base)


def _base(given: str, container: Container) -> Manifest:
    """The manifest that the person began with; the one in force if the form has none."""
    try:
        return parse_manifest(orjson.loads(given))
    except (orjson.JSONDecodeError, LatentError):
        return container.manifest


def _manifest(draft: ManifestDraft, base: Manifest) -> Manifest:
    if draft.mode == AS_YAML:
        return read_manifest(draft.source, where=WHERE)
    return manifest_from(base, draft.values)


def _put_on_top(base: Manifest, mine: Manifest, container: Container) -> Manifest:
    """The person's changes on top of the manifest that others have stored meanwhile."""
    merged = rebased(base, completed(mine, container), container.manifest)
    return parse_manifest(merged, where=WHERE)


def go_on_with(draft: ManifestDraft, manifest: Manifest, container: Container) -> None:
    """The draft shows ``manifest``, as a change of what is in force now."""
    draft.values, draft.source = values_of(manifest), manifest_text(manifest)
    draft.base, draft.version = container.manifest.model_dump_json(), container.etag


def without_embedder(manifest: Manifest, container: Container) -> Manifest:
    """``manifest`` with the embedder in force: a refresh changes that."""
    kept = {key: getattr(container.manifest, key) for key in (*EMBEDDER_KEYS, "modalities")}
    if manifest.embedder == container.manifest.embedder:
        kept.pop("modalities")
    return manifest.model_copy(update=kept)
