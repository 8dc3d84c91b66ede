"""A gateway in memory that speaks the wire of docs/api.md, for tests of programs that use the client."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

import orjson
from pydantic import ValidationError

from latent_client.transport import Blob
from latent_core.domain.document import given_digest
from latent_core.domain.errors import (
    Conflict,
    Invalid,
    LatentError,
    NotFound,
    PreconditionFailed,
    TooLarge,
    Unauthorized,
)
from latent_core.domain.golden import parse_golden
from latent_core.domain.ids import content_hash
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Manifest, parse_manifest
from latent_core.domain.source import MAX_NAMESAKES, needs_consent, numbered, prefix_of
from latent_core.domain.token import TokenState, TokenView, new_token
from latent_core.wire.containers import ContainerSizes, ContainerState, ContainerSummary
from latent_core.wire.models import InstalledModelView
from latent_core.wire.search import ContainerStatus, Diagnostics, SearchRequest
from latent_core.wire.sources import ListedSource, SourceMatch, SourceView
from tests.support.fake_gateway.fake_search import count_types, find, searched, whole_chunk
from tests.support.fake_gateway.http import (
    FakeRequest,
    FakeResponse,
    Message,
    Receive,
    Send,
    failure,
    read_request,
    reply,
    send_answer,
)
from tests.support.fake_gateway.world import FINAL, StoredDocument, World, now

TOKEN: Final = "secret-of-the-test"
IMAGE: Final = b"RIFF\x0c\x00\x00\x00WEBPVP8 "
MAX_UPLOAD: Final = 1_000_000

Handler = Callable[..., FakeResponse]
T = TypeVar("T")


@dataclass
class FakeGateway(World):
    """The application: rights, faults on order, routes."""

    token: str = TOKEN
    max_deletions: int = 2
    """Of one listing: tests are to need several."""
    page_size: int = 2
    """Entries a page of a list, however many are asked for: tests are to meet several pages."""
    requeue_limit: int = 1000
    """Jobs that the queue takes from one request to try all again."""
    tokens: dict[int, TokenView] = field(default_factory=dict)
    models: list[InstalledModelView] = field(default_factory=list)
    requests: list[FakeRequest] = field(default_factory=list)
    failures: list[tuple[str, FakeResponse]] = field(default_factory=list)
    """Pattern of "METHOD path" and the answer given instead, once each."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        request = await read_request(scope, receive)
        self.requests.append(request)
        try:
            answer = self._ordered_failure(request) or self._route(request)
        except LatentError as exc:
            answer = failure(exc)
        except ValidationError as exc:
            answer = failure(Invalid(f"the body cannot be read: {exc.error_count()} errors"))
        await send_answer(answer, send)

    def requests_to(self, pattern: str) -> list[FakeRequest]:
        """The requests so far whose "METHOD path" matches."""
        return [r for r in self.requests if re.fullmatch(pattern, f"{r.method} {r.path}")]

    def _ordered_failure(self, request: FakeRequest) -> FakeResponse | None:
        for index, (pattern, answer) in enumerate(self.failures):
            if re.fullmatch(pattern, f"{request.method} {request.path}"):
                del self.failures[index]
                return answer
        return None

    def _route(self, request: FakeRequest) -> FakeResponse:
        allowed = request.headers.get("authorization") == f"Bearer {self.token}"
        if not allowed and not request.path.startswith(OPEN):
            raise Unauthorized("the token is not valid")
        for method, pattern, handler in ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found and method == request.method:
                return handler(self, request, *found.groups())
        raise NotFound(f"no such route: {request.method} {request.path}")

    def page_of(self, items: Sequence[T], request: FakeRequest) -> tuple[Sequence[T], str | None]:
        start = int(request.query.get("cursor", 0))
        end = start + self.page_size
        return items[start:end], str(end) if end < len(items) else None


def etag(manifest: Manifest) -> str:
    return content_hash(manifest.model_dump_json())[:16]


def summary(manifest: Manifest) -> ContainerSummary:
    return ContainerSummary(
        id=manifest.id,
        name=manifest.name,
        modalities=[m.value for m in manifest.modalities],
        dims=manifest.dims or 384,
        state=ContainerState.ACTIVE,
    )


def list_containers(gateway: FakeGateway, _: FakeRequest) -> FakeResponse:
    return reply(containers=[summary(manifest) for manifest in gateway.manifests.values()])


def list_models(gateway: FakeGateway, _: FakeRequest) -> FakeResponse:
    return reply(models=gateway.models, missing=[])


def describe(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    manifest = gateway.container(request.query["container_id"])
    contents = gateway.contents(manifest.id)
    sizes = ContainerSizes(
        documents=len(contents),
        pending_documents=0,
        chunks=len(contents),
        pages=0,
        bytes=sum(d.view.bytes or 0 for d in contents),
    )
    return reply(
        manifest=manifest,
        sizes=sizes,
        last_ingest_at=now() if contents else None,
        state="active",
        etag=etag(manifest),
        embedder={"embedder": manifest.embedder, "version": "1", "dims": manifest.dims or 384},
    )


def sign_in_link(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    return reply(url=f"{gateway.url}/login/link?code=abc", valid_seconds=900)


def create(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    body = request.json()
    manifest = parse_manifest(body["manifest"])
    if manifest.id in gateway.manifests:
        raise Conflict(f"container '{manifest.id}' exists")
    gateway.create(manifest)
    if "golden" in body:
        gateway.golden[manifest.id] = parse_golden(body["golden"])
    files = [f"{manifest.id}.yaml"]
    return reply(201, container=summary(manifest), etag=etag(manifest), files=files)


def update(gateway: FakeGateway, request: FakeRequest, container_id: str) -> FakeResponse:
    stored = gateway.container(container_id)
    manifest = parse_manifest(request.json()["manifest"])
    if request.headers.get("if-match") != f'"{etag(stored)}"':
        raise PreconditionFailed(f"container '{container_id}' has changed meanwhile")
    gateway.manifests[container_id] = manifest
    return reply(container=summary(manifest), etag=etag(manifest), changed=manifest != stored)


def store_sizes(gateway: FakeGateway, _: FakeRequest, container_id: str) -> FakeResponse:
    gateway.container(container_id)
    return reply(sizes=gateway.store_sizes.get(container_id, []))


def delete(gateway: FakeGateway, _: FakeRequest, container_id: str) -> FakeResponse:
    gateway.container(container_id)
    del gateway.manifests[container_id]
    job = gateway.enqueue(JobKind.DELETE_CONTAINER, container_id)
    return reply(202, job_id=job.job_id, status="queued")


def upload(gateway: FakeGateway, request: FakeRequest, container_id: str) -> FakeResponse:
    gateway.container(container_id)
    if len(request.body) > MAX_UPLOAD:
        raise TooLarge(f"an upload has at most {MAX_UPLOAD} bytes")
    sha256 = hashlib.sha256(request.body).hexdigest()
    mime = request.headers["content-type"]
    gateway.uploads[sha256[:12]] = Blob(mime=mime, content=request.body)
    return reply(
        201,
        upload={
            "file_ref": sha256[:12],
            "filename": request.query["filename"],
            "mime": mime,
            "bytes": len(request.body),
            "sha256": sha256,
        },
    )


def add(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    body = request.json()
    container_id = gateway.container(body["container_id"]).id
    if "file_ref" not in body:
        raise Invalid("uri: no fetcher reads it")
    uri = body["source_uri"]
    upload = gateway.uploads[body["file_ref"]]
    meta = body.get("meta", {})
    job = gateway.put(container_id, uri, upload.content, body.get("mtime_ns"), meta)
    return reply(202, job_id=job.job_id, status="queued", doc_id=str(job.doc_id), source_uri=uri)


def listing(gateway: FakeGateway, request: FakeRequest, container_id: str) -> FakeResponse:
    gateway.container(container_id)
    body = request.json()
    prefix = f"file:///{body['root']}/"
    _check_source(gateway, container_id, body)
    stored = {
        d.view.source_uri.removeprefix(prefix): d
        for d in gateway.contents(container_id)
        if d.view.source_uri.startswith(prefix)
    }
    verdicts = {f["path"]: _verdict(f, stored.get(f["path"])) for f in body["files"]}
    for file in body["files"]:
        if verdicts[file["path"]] == "same":
            stored[file["path"]].mtime_ns = file["mtime_ns"]
    gone = sorted(path for path in set(stored) - set(verdicts) if _within(path, body))
    withheld = not body.get("allow_deletions") and needs_consent(len(gone), len(stored))
    deletes = body["delete_vanished"] and not withheld
    deleted = gone[: gateway.max_deletions] if deletes else []
    jobs = [gateway.delete_document(stored[path].view.doc_id) for path in deleted]
    return reply(
        need=[path for path, verdict in verdicts.items() if verdict == "need"],
        hash=[path for path, verdict in verdicts.items() if verdict == "hash"],
        refused=[],
        unchanged=sum(verdict == "same" for verdict in verdicts.values()),
        open_jobs=[],
        vanished=len(gone) if body["delete_vanished"] or body.get("count_vanished") else 0,
        documents=len(stored),
        deleted=[prefix + path for path in deleted],
        delete_jobs=[job.job_id for job in jobs],
        partial=deletes and len(gone) > len(deleted),
    )


def _check_source(gateway: FakeGateway, container_id: str, body: dict[str, Any]) -> None:
    owner = next((s for s in gateway.sources_of(container_id) if s.root == body["root"]), None)
    given = body.get("source")
    if given is None and (owner is None or not body["delete_vanished"]):
        return
    if owner is None or str(owner.source_id) != given:
        raise Conflict("the root belongs to another source", source_id=given)


def list_sources(gateway: FakeGateway, _: FakeRequest, container_id: str) -> FakeResponse:
    gateway.container(container_id)
    listed = [
        ListedSource(**source.model_dump(), documents=len(_below(gateway, container_id, source)))
        for source in gateway.sources_of(container_id)
    ]
    return reply(sources=sorted(listed, key=lambda source: source.root))


def _below(gateway: FakeGateway, container_id: str, source: SourceView) -> list[UUID]:
    prefix = prefix_of(source.root)
    contents = gateway.contents(container_id)
    return [d.view.doc_id for d in contents if d.view.source_uri.startswith(prefix)]


def forget_source(
    gateway: FakeGateway, request: FakeRequest, container_id: str, source_id: str
) -> FakeResponse:
    for source in gateway.sources_of(container_id):
        if str(source.source_id) == source_id:
            break
    else:
        raise NotFound("no such source")
    below = _below(gateway, container_id, source)
    deletes = request.query.get("delete_documents") == "true"
    gone = below[: gateway.max_deletions] if deletes else []
    jobs = [gateway.delete_document(doc_id).job_id for doc_id in gone]
    partial = deletes and len(gone) < len(below)
    if not partial:
        gateway.sources.remove((container_id, source))
    stay = len(below) - len(gone)
    return reply(
        source=source, documents=stay, deleted=len(gone), delete_jobs=jobs, partial=partial
    )


def match_sources(gateway: FakeGateway, request: FakeRequest, container_id: str) -> FakeResponse:
    gateway.container(container_id)
    body = request.json()
    roots: dict[str, SourceView | None] = {body["root"]: None}
    roots |= {source.root: source for source in gateway.sources_of(container_id)}
    matches = []
    for root, source in sorted(roots.items()):
        prefix = prefix_of(root)
        below = [
            d.view for d in gateway.contents(container_id) if d.view.source_uri.startswith(prefix)
        ]
        same = len({view.sha256 for view in below} & set(body["sha256"]))
        if source is not None or below:
            matches.append(SourceMatch(root=root, source=source, documents=len(below), same=same))
    return reply(matches=matches)


def create_source(gateway: FakeGateway, request: FakeRequest, container_id: str) -> FakeResponse:
    gateway.container(container_id)
    body = request.json()
    taken = {source.root for source in gateway.sources_of(container_id)}
    if not body["adopt"]:
        taken |= {
            d.view.source_uri.removeprefix("file:///").partition("/")[0]
            for d in gateway.contents(container_id)
        }
    roots = (numbered(body["root"], n) for n in range(1, MAX_NAMESAKES))
    source = SourceView(
        source_id=uuid4(),
        root=next(root for root in roots if root not in taken),
        host=body["host"],
        folder=body["folder"],
        created_at=now(),
        synced_at=None,
    )
    gateway.sources.append((container_id, source))
    return reply(201, source=source)


def take_over_source(
    gateway: FakeGateway, request: FakeRequest, container_id: str, source_id: str
) -> FakeResponse:
    for index, (owner, source) in enumerate(gateway.sources):
        if (owner, str(source.source_id)) == (container_id, source_id):
            moved = source.model_copy(update={"source_id": uuid4(), **request.json()})
            gateway.sources[index] = (container_id, moved)
            return reply(source=moved)
    raise NotFound("no such source")


def _within(path: str, body: dict[str, Any]) -> bool:
    after, through = body.get("after"), body.get("through")
    return (after is None or path > after) and (through is None or path <= through)


def _verdict(file: dict[str, Any], stored: StoredDocument | None) -> str:
    if stored is None or file.get("meta_sha256") != given_digest(stored.given_meta):
        return "need"
    if file.get("sha256"):
        return "same" if file["sha256"] == stored.view.sha256 else "need"
    same = (file["bytes"], file["mtime_ns"]) == (stored.view.bytes, stored.mtime_ns)
    return "same" if same else "hash"


def documents(gateway: FakeGateway, request: FakeRequest, container_id: str) -> FakeResponse:
    gateway.container(container_id)
    prefix = request.query.get("uri_prefix", "")
    found = [d.view for d in gateway.contents(container_id) if d.view.source_uri.startswith(prefix)]
    page, cursor = gateway.page_of(found, request)
    return reply(documents=page, next_cursor=cursor)


def document(gateway: FakeGateway, _: FakeRequest, container_id: str, doc_id: str) -> FakeResponse:
    stored = gateway.documents.get(UUID(doc_id))
    if stored is None or stored.view.container_id != container_id:
        raise NotFound(f"document {doc_id} does not exist")
    return reply(document=stored.view)


def delete_document(
    gateway: FakeGateway, _: FakeRequest, container_id: str, doc_id: str
) -> FakeResponse:
    gateway.container(container_id)
    return reply(202, job_id=gateway.delete_document(UUID(doc_id)).job_id, status="queued")


def chunks(gateway: FakeGateway, request: FakeRequest, container_id: str) -> FakeResponse:
    found = [
        whole_chunk(stored, number)
        for number, stored in enumerate(gateway.contents(container_id))
        if request.query.get("doc_id") in (None, str(stored.view.doc_id))
        and request.query.get("contains", "").casefold() in stored.text.casefold()
        and stored.view.source_uri.startswith(request.query.get("source_uri", ""))
    ]
    page, cursor = gateway.page_of(found, request)
    return reply(chunks=page, next_cursor=cursor)


def one_chunk(
    gateway: FakeGateway, _: FakeRequest, container_id: str, chunk_id: str
) -> FakeResponse:
    for number, stored in enumerate(gateway.contents(container_id)):
        if str((found := whole_chunk(stored, number)).chunk_id) == chunk_id:
            return reply(chunk=found)
    raise NotFound(f"container '{container_id}' has no chunk '{chunk_id}'")


def chunk_sizes(gateway: FakeGateway, _: FakeRequest, container_id: str) -> FakeResponse:
    lengths = sorted(len(stored.text) for stored in gateway.contents(container_id))
    if not lengths:
        return reply(total=None, by_source_type={})
    classes = [
        {"lower_bound": 0, "below": 64, "chunks": sum(n < 64 for n in lengths)},
        {"lower_bound": 64, "below": None, "chunks": sum(n >= 64 for n in lengths)},
    ]
    middle = lengths[len(lengths) // 2]
    measured = {"min": lengths[0], "p50": middle, "p95": lengths[-1], "max": lengths[-1]}
    one = {**measured, "histogram": classes}
    sizes = {"chunks": len(lengths), "duplicates": 0, "tokens": one, "characters": one}
    return reply(total=sizes, by_source_type={"text": sizes})


def pages(gateway: FakeGateway, _: FakeRequest, doc_id: str) -> FakeResponse:
    stored = gateway.documents.get(UUID(doc_id))
    if stored is None:
        raise NotFound(f"document {doc_id} does not exist")
    image = {
        "page": 1,
        "page_uri": gateway.page_uri(stored),
        "page_image": "ready",
        "sha256": hashlib.sha256(IMAGE).hexdigest(),
        "bytes": len(IMAGE),
        "mime": "image/webp",
        "width": 4,
        "height": 3,
    }
    drawn = not stored.view.source_uri.endswith(".late")
    return reply(
        doc_id=stored.view.doc_id,
        container_id=stored.view.container_id,
        source_uri=stored.view.source_uri,
        source_type=stored.view.source_type,
        page_images="ready" if drawn else "pending",
        page_images_cause=None,
        pages=[image] if drawn else [],
        next_cursor=None,
    )


def page(gateway: FakeGateway, _: FakeRequest, doc_id: str, number: str) -> FakeResponse:
    stored = gateway.documents.get(UUID(doc_id))
    if stored is None or number != "1":
        raise NotFound(f"document {doc_id} has no page {number}")
    return reply(
        page={
            "page": 1,
            "pages": 1,
            "text": stored.text,
            "width": 4,
            "height": 3,
            "page_uri": gateway.page_uri(stored),
            "page_image": "ready",
        }
    )


def search(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    search_request = SearchRequest.model_validate(request.json())
    hits = find(gateway, search_request)
    issues = [] if hits else [{"code": "NO_HITS", "message": "nothing matches the query"}]
    diagnostics = Diagnostics(
        timings_ms={"embed": 1.5, "vector": 2.0, "bm25": 0.5, "fuse": 0.1},
        candidates_before_rerank=len(hits),
        container_status=[
            ContainerStatus(container_id=c, ok=True) for c in searched(gateway, search_request)
        ],
    )
    return reply(
        hits=hits,
        issues=issues,
        timings={"total": 3.0},
        facets=count_types(hits) if search_request.facets else {},
        diagnostics=diagnostics if search_request.diagnostics else None,
    )


def jobs(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    states = request.query.get("status", "").split(",") if "status" in request.query else []
    chosen = request.query.get("job_id", "").split(",") if "job_id" in request.query else []
    found = [
        job
        for job in sorted(gateway.jobs.values(), key=lambda job: -job.job_id)
        if request.query.get("container_id") in (None, job.container_id)
        and (not states or job.state in states)
        and (not chosen or str(job.job_id) in chosen)
    ]
    page, cursor = (found, None) if chosen else gateway.page_of(found, request)
    return reply(jobs=page, next_cursor=cursor)


def job(gateway: FakeGateway, _: FakeRequest, job_id: str) -> FakeResponse:
    return reply(job=gateway.job(int(job_id)))


def job_events(gateway: FakeGateway, request: FakeRequest, job_id: str) -> FakeResponse:
    gateway.job(int(job_id))
    after = int(request.headers.get("last-event-id", 0))
    return FakeResponse(body=gateway.stream(int(job_id), after), mime="text/event-stream")


def cancel(gateway: FakeGateway, _: FakeRequest, job_id: str) -> FakeResponse:
    if gateway.job(int(job_id)).state in FINAL:
        raise Conflict(f"job {job_id} has ended already")
    gateway.finish(int(job_id), JobState.CANCELLED)
    return reply(202, job=gateway.jobs[int(job_id)])


def requeue(gateway: FakeGateway, _: FakeRequest, job_id: str) -> FakeResponse:
    if gateway.job(int(job_id)).state not in FINAL:
        raise Conflict(f"job {job_id} has not ended")
    return reply(202, job=gateway.restart(int(job_id)))


def requeue_failed(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    requested_container = request.json()["container_id"]
    gateway.container(requested_container)
    failed = [
        job.job_id
        for job in gateway.jobs.values()
        if job.container_id == requested_container and job.state is JobState.FAILED
    ]
    fits = failed[: gateway.requeue_limit]
    for job_id in fits:
        gateway.restart(job_id)
    remaining = len(failed) - len(fits)
    full = [{"code": "RATE_LIMIT", "message": "the queue is full", "details": {}}]
    return reply(
        202,
        job_ids=fits,
        left=0,
        remaining=remaining,
        next_cursor=str(fits[-1]) if fits and remaining else None,
        issues=full if remaining else [],
    )


def doctor(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    requested_container = request.json().get("container_id")
    if requested_container:
        gateway.container(requested_container)
    reports = {
        container_id: {
            "counts": {"documents": len(gateway.contents(container_id))},
            "differences": gateway.differences,
        }
        for container_id in gateway.manifests
        if requested_container in (None, container_id)
    }
    return reply(
        report={"clean": not gateway.differences, "containers": reports, "stores": [], "checks": {}}
    )


def blob(_: FakeGateway, request: FakeRequest, __: str) -> FakeResponse:
    if "sig" not in request.query:
        raise Unauthorized("the link is not signed")
    return FakeResponse(body=IMAGE, mime="image/webp")


def ready(_: FakeGateway, __: FakeRequest) -> FakeResponse:
    services = {"postgres": "ok", "qdrant": "ok", "minio": "ok"}
    return FakeResponse(body=orjson.dumps({"status": "ok", "services": services}))


def healthy(_: FakeGateway, __: FakeRequest) -> FakeResponse:
    return FakeResponse(body=b'{"status": "ok"}')


def metrics(gateway: FakeGateway, _: FakeRequest) -> FakeResponse:
    text = f"latent_embedded_texts_total {len(gateway.documents)}\n"
    return FakeResponse(body=text.encode(), mime="text/plain; version=0.0.4")


OPEN: Final = ("/healthz", "/readyz", "/v1/blobs/")
ID: Final = "([^/]+)"


def create_token(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    body = request.json()
    token = TokenView(
        id=len(gateway.tokens) + 1,
        needs_role=False,
        state=TokenState.LIVE,
        created_by="local:you",
        created_at=now(),
        expires_at=None,
        last_used_at=None,
        revoked_at=None,
        **body,
    )
    gateway.tokens[token.id] = token
    return reply(201, token=token, secret=new_token())


def list_tokens(gateway: FakeGateway, request: FakeRequest) -> FakeResponse:
    live = [
        token
        for token in gateway.tokens.values()
        if token.state is TokenState.LIVE and token.principal == request.query.get("principal")
    ]
    shown, following = gateway.page_of(live, request)
    return reply(tokens=shown, next_cursor=following)


def revoke_token(gateway: FakeGateway, _: FakeRequest, token_id: str) -> FakeResponse:
    revoked = gateway.tokens[int(token_id)].model_copy(update={"state": TokenState.REVOKED})
    gateway.tokens[revoked.id] = revoked
    return reply(token=revoked)


ROUTES: Final[list[tuple[str, str, Handler]]] = [
    ("GET", "/v1/containers/list", list_containers),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/containers/describe", describe),
    ("POST", "/v1/containers", create),
    ("PUT", f"/v1/containers/{ID}", update),
    ("GET", f"/v1/containers/{ID}/sizes", store_sizes),
    ("DELETE", f"/v1/containers/{ID}", delete),
    ("POST", f"/v1/containers/{ID}/uploads", upload),
    ("POST", "/v1/containers/add", add),
    ("POST", f"/v1/containers/{ID}/listing", listing),
    ("GET", f"/v1/containers/{ID}/sources", list_sources),
    ("POST", f"/v1/containers/{ID}/sources", create_source),
    ("POST", f"/v1/containers/{ID}/sources/match", match_sources),
    ("PUT", f"/v1/containers/{ID}/sources/{ID}", take_over_source),
    ("DELETE", f"/v1/containers/{ID}/sources/{ID}", forget_source),
    ("GET", f"/v1/containers/{ID}/documents", documents),
    ("GET", f"/v1/containers/{ID}/documents/{ID}", document),
    ("DELETE", f"/v1/containers/{ID}/documents/{ID}", delete_document),
    ("GET", f"/v1/containers/{ID}/chunks", chunks),
    ("GET", f"/v1/containers/{ID}/chunks/stats", chunk_sizes),
    ("GET", f"/v1/containers/{ID}/chunks/{ID}", one_chunk),
    ("GET", f"/v1/documents/{ID}/pages", pages),
    ("GET", f"/v1/documents/{ID}/pages/{ID}", page),
    ("POST", "/v1/containers/search", search),
    ("GET", "/v1/jobs", jobs),
    ("GET", f"/v1/jobs/{ID}", job),
    ("GET", f"/v1/jobs/{ID}/events", job_events),
    ("POST", f"/v1/jobs/{ID}/cancel", cancel),
    ("POST", f"/v1/jobs/{ID}/requeue", requeue),
    ("POST", "/v1/requeue", requeue_failed),
    ("POST", "/v1/admin/sign-in-link", sign_in_link),
    ("POST", "/v1/admin/doctor", doctor),
    ("POST", "/v1/tokens", create_token),
    ("GET", "/v1/tokens", list_tokens),
    ("DELETE", f"/v1/tokens/{ID}", revoke_token),
    ("GET", f"/v1/blobs/{ID}", blob),
    ("GET", "/healthz", healthy),
    ("GET", "/readyz", ready),
    ("GET", "/metrics", metrics),
]
