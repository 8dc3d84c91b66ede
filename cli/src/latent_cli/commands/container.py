"""``latent container``"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel

from latent_cli.jobs_output import finish_jobs, sent
from latent_cli.manifest_plan_output import show_plan
from latent_cli.options import Json, Wait, Yes, command_app
from latent_cli.output import amount, answers, emit, moment, safe, size, table
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.errors import Invalid, NotFound
from latent_core.domain.job import JobEmbedding
from latent_core.domain.manifest.changes import ManifestChange, differences
from latent_core.domain.manifest.model import Manifest, new_manifest
from latent_core.domain.manifest.templates import golden_queries, names, template as template_of
from latent_core.domain.manifest.yaml_reader import load_manifest
from latent_core.wire.container_sizes import MAX_DAYS
from latent_core.wire.containers import ContainerState, DescribedContainer
from latent_core.wire.manifest_plan import ManifestPlan

app = command_app()

EMBEDDER = ("embedder", "version", "dims")
"""Fields of the embedder that one line shows."""
ContainerId = Annotated[str, typer.Argument(metavar="ID")]


class ManifestDiff(BaseModel):
    container_id: str
    etag: str
    changed: bool
    changes: list[ManifestChange]


@app.callback()
def container() -> None:
    """Create, list, describe, change and delete containers."""


@app.command()
def create(
    container_id: Annotated[str | None, typer.Argument(metavar="ID")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Manifest in YAML.")] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TEMPLATE", help="Begin with a shipped manifest; see `templates`."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name; defaults to the id.")] = None,
    theme: Annotated[str | None, typer.Option("--theme", help="Topic of the container.")] = None,
    embedder: Annotated[
        str | None,
        typer.Option("--embedder", help="Embedder; default local, openai/<model> uses a server."),
    ] = None,
    dims: Annotated[
        int | None, typer.Option("--dims", help="Dimensions; default: those of the embedder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a container from a manifest, from a template, or from its id and options."""
    words = {"id": container_id, "name": name, "theme": theme, "embedder": embedder, "dims": dims}
    manifest = _manifest(
        file, template, {key: value for key, value in words.items() if value is not None}
    )
    golden = golden_queries(template) if template is not None else None
    written = ask(lambda client: client.create(manifest, golden=golden))
    if as_json:
        emit(written)
        return
    console = answers()
    console.print(f"created '{manifest.id}' ({written.container.dims} dimensions)")
    for file_name in written.files:
        console.print(safe(f"wrote {file_name} into the gateway's manifest folder"))
    for issue in written.issues:
        console.print(safe(issue.message))


@app.command("templates")
def list_templates(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Print the annotated YAML of this template."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the shipped manifests for `create --from`, or print one with its comments."""
    if name is not None:
        chosen = template_of(name)
        emit(chosen.manifest) if as_json else sys.stdout.write(chosen.source)
        return
    found = [template_of(one) for one in names()]
    if as_json:
        emit({"templates": [one.manifest for one in found]})
        return
    rows = ((one.name, one.manifest.name, one.manifest.embedder, one.about) for one in found)
    answers().print(table(("TEMPLATE", "NAME", "EMBEDDER", "FOR"), rows))


@app.command("list")
def list_containers(as_json: Json = False) -> None:
    """List the containers that this token may read."""
    found = ask(lambda client: client.containers())
    if as_json:
        emit({"containers": found})
        return
    rows = ((c.id, c.name, ", ".join(c.modalities), c.dims, c.state.value) for c in found)
    answers().print(table(("ID", "NAME", "MODALITIES", ">DIMS", "STATE"), rows))
    for container in found:
        if container.missing:
            answers().print(safe(f"{container.id}: keywords only: {container.missing}"))


@app.command()
def describe(container_id: ContainerId, as_json: Json = False) -> None:
    """Show the content, embedder and manifest of a container."""
    found = ask(lambda client: client.describe(container_id))
    if as_json:
        emit(found)
    else:
        _show(found)


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Manifest in YAML.")],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would change and what it takes; change nothing."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Apply a manifest file to its container and print the changes."""
    manifest = load_manifest(file)
    if dry_run:
        plan = ask(lambda client: _plan(client, manifest, file))
        emit(plan) if as_json else show_plan(answers(), plan)
        return
    applied = ask(lambda client: _apply(client, manifest, file))
    if as_json:
        emit(applied)
        return
    console = answers()
    for change in applied.changes:
        console.print(safe(f"{change.key}: {change.old!r} → {change.new!r}"))
    console.print(f"'{manifest.id}' is {'changed' if applied.changed else 'already up to date'}")


@app.command()
def sizes(
    container_id: ContainerId,
    days: Annotated[int, typer.Option("--days", min=1, max=MAX_DAYS, help="Last days.")] = 30,
    as_json: Json = False,
) -> None:
    """Show what a container takes in each store, by day."""
    found = ask(lambda client: client.store_sizes(container_id, days=days))
    if as_json:
        emit({"sizes": found})
        return
    if not found:
        answers().print("not measured yet: a worker measures every container once an hour")
        return
    heads = (
        "DAY",
        ">DOCUMENTS",
        ">CHUNKS",
        ">POSTGRES",
        ">VECTORS",
        ">ORIGINALS",
        ">PAGES",
        ">ARCHIVES",
    )
    rows = (
        (
            one.day.isoformat(),
            one.documents,
            one.chunks,
            size(one.postgres_bytes),
            size(one.vector_bytes),
            size(one.original_bytes),
            size(one.page_file_bytes),
            size(one.archive_bytes),
        )
        for one in found
    )
    answers().print(table(heads, rows))


@app.command("state")
def set_state(
    container_id: ContainerId,
    state: Annotated[
        ContainerState,
        typer.Argument(
            metavar="STATE",
            help="active; readonly: no changes; archived: no searches, no changes, visible only to its owners.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Make a container active, read-only or archived."""
    answer = ask(lambda client: client.set_state(container_id, state))
    if as_json:
        emit(answer)
        return
    already = "" if answer.changed else " already"
    answers().print(f"'{container_id}' is {state.value}{already}")


@app.command()
def delete(
    container_id: ContainerId, yes: Yes = False, wait: Wait = False, as_json: Json = False
) -> None:
    """Delete a container and all its documents."""
    if not yes:
        raise Invalid(f"this deletes '{container_id}' and all its documents; add --yes to confirm")
    queued = ask(lambda client: client.delete(container_id))
    finish_jobs([queued.job_id], wait=wait, as_json=as_json)


def _manifest(file: Path | None, template: str | None, words: dict[str, Any]) -> Manifest:
    if template is not None and file is None:
        return template_of(template).filled(words)
    if file is None:
        if "id" not in words:
            raise Invalid("no container given: use `latent container create ID` or --file MANIFEST")
        return new_manifest({"name": words["id"], **words}, where="the command line")
    if words or template is not None:
        given = ", ".join("ID" if key == "id" else f"--{key}" for key in words) or "--from"
        raise Invalid(f"--file cannot be combined with {given}; set these values in {file}")
    return load_manifest(file)


LEFT_OPEN: Final = ("embedder_version", "dims")


async def _plan(client: AsyncClient, manifest: Manifest, file: Path) -> ManifestPlan:
    with _creatable(manifest, file):
        return await client.plan(manifest)


@contextmanager
def _creatable(manifest: Manifest, file: Path) -> Iterator[None]:
    """The error for a container that does not exist says how to create it."""
    try:
        yield
    except NotFound as exc:
        remedy = f"create it with `latent container create --file {file}`"
        raise NotFound(
            f"container '{manifest.id}' does not exist; {remedy}", **exc.details
        ) from exc


async def _apply(client: AsyncClient, manifest: Manifest, file: Path) -> ManifestDiff:
    with _creatable(manifest, file):
        stored = await client.describe(manifest.id)
    in_force = Manifest.model_validate(stored.manifest)
    if manifest.embedder == in_force.embedder:  # what the file leaves open stays as it is
        kept = {key: getattr(in_force, key) for key in LEFT_OPEN if getattr(manifest, key) is None}
        manifest = manifest.model_copy(update=kept)
    changes = differences(in_force, manifest)
    if not changes:
        return ManifestDiff(container_id=manifest.id, etag=stored.etag, changed=False, changes=[])
    written = await client.update(manifest, if_match=stored.etag)
    return ManifestDiff(
        container_id=manifest.id, etag=written.etag, changed=written.changed, changes=changes
    )


def _sent(usage: dict[str, Any] | None) -> str | None:
    """Texts and tokens sent to a remote embedder for the container, with the cost if a price is set."""
    return sent(JobEmbedding.model_validate(usage)) if usage else None


def _show(found: DescribedContainer) -> None:
    sizes, embedder = found.sizes, found.embedder
    pending = f", {sizes.pending_documents} pending" if sizes.pending_documents else ""
    if sizes.failed_documents:
        pending += f", {sizes.failed_documents} failed"
    lines = {
        "id": found.manifest["id"],
        "name": found.manifest["name"],
        "theme": found.manifest.get("theme"),
        "state": found.state.value,
        "holds": f"{amount(sizes.documents, 'document')}{pending}, {amount(sizes.chunks, 'chunk')}, "
        f"{amount(sizes.pages, 'page')}, {size(sizes.bytes)}",
        "last in": moment(found.last_ingest_at),
        "embedder": " ".join(str(embedder[key]) for key in EMBEDDER if key in embedder),
        "missing": embedder.get("missing"),
        "sent": _sent(embedder.get("usage")),
        "etag": found.etag,
    }
    console = answers()
    for name, value in lines.items():
        if value:
            console.print(f"{name:<9} {safe(str(value))}")
    base = Manifest(id=found.manifest["id"], name=found.manifest["name"])
    for change in differences(base, Manifest.model_validate(found.manifest)):
        if change.key != "theme":
            console.print(safe(f"{'manifest':<9} {change.key}: {change.new}"))
