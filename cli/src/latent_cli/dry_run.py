"""``latent ingest --dry-run``: what an ingest would do and cost. The parsers run locally in their sandbox."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from latent_cli.calibration import (
    EXCHANGES_PER_DOCUMENT,
    JOBS_AT_A_TIME,
    PagedFile,
    WorkSamples,
    drawing_seconds,
    exchange_seconds,
    index_times,
    ocr_times,
)
from latent_cli.figures import DryRun, Estimate, SourceFigures
from latent_cli.ingestion import FileSource, FolderSource, Source, WebSource
from latent_cli.progress import IngestBars
from latent_client import AsyncClient, SyncConsent, plan_folder
from latent_client.folder import SkippedFile
from latent_client.sidecars import SidecarMetas, read_meta, read_sidecars, sidecar_of
from latent_client.uploads import in_parallel
from latent_core.domain.chunk import SourceType
from latent_core.domain.conversation import CONVERSATION_MIME
from latent_core.domain.document import accepted_meta, published_meta
from latent_core.domain.errors import IngestFailed, LatentError
from latent_core.domain.manifest.model import Manifest, is_local, reads_images
from latent_core.models.embedding.port import Embedder, EmbeddingModel
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.embedding.tokens import PieceTokenizer
from latent_core.models.providers.registry import WINDOW
from latent_core.runtime.process import cores
from latent_core.settings import Settings
from latent_workers.chunk.counting import WordCounter
from latent_workers.chunk.writing import drafts_of
from latent_workers.ingest.unlocked import unlocked
from latent_workers.ocr.reader import PageReader
from latent_workers.parse.conversation.messages import TranscriptOptions, UnreadPart
from latent_workers.parse.conversation.parser import of_conversation
from latent_workers.parse.conversation.recognise import (
    HEAD_BYTES as RECOGNISED_BYTES,
    ConversationFormat,
    recognise,
)
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.registry import HEAD_BYTES, DetectedType, detect
from latent_workers.parse.run import parse_file, read_conversations, read_records
from latent_workers.parse.signatures import MAILBOX_MIME
from latent_workers.parse.structured import jsonl
from latent_workers.sandbox.budget import DRAWING
from latent_workers.sandbox.pool import Sandbox

PARSERS: Final = 2
RECORD_TYPE: Final = DetectedType(SourceType.TEXT, "text/plain")
MAIL_TYPE: Final = DetectedType(SourceType.MAIL, "message/rfc822")
CONVERSATION_TYPE: Final = DetectedType(SourceType.CONVERSATION, CONVERSATION_MIME)
A_MILLION: Final = 1_000_000
EMBEDDING_ROUNDS: Final = 3
EMBEDDING_SECONDS: Final = 4.0
"""Enough to measure an embedder."""
PAGED: Final = (SourceType.PDF, SourceType.IMAGE)
MAX_FAILURES: Final = 1_000
"""Failures that are listed one by one. A corpus may have a million bad lines."""


@dataclass(frozen=True, slots=True)
class SourceCandidate:
    """A file to examine."""

    shown: str
    path: Path
    uri: str
    meta: dict[str, Any]
    new: bool
    """New or changed."""


@dataclass(frozen=True, slots=True)
class _Kit:
    """Manifest, models and sandbox of one dry run."""

    manifest: Manifest
    model: EmbeddingModel
    counter: WordCounter
    embedder: Embedder | None
    """None if the model is not available on this machine."""
    price: float
    """Of a million tokens; 0 is unknown."""
    rate: tuple[int, str] | None
    """Texts per minute and the setting that says so."""
    sandbox: Sandbox
    scratch: Path


class DryRunner:
    """One dry run over sources of one container."""

    def __init__(
        self,
        container_id: str,
        settings: Settings,
        bars: IngestBars,
        consent: SyncConsent = SyncConsent(),
        password: str | None = None,
    ) -> None:
        self._container_id = container_id
        self._consent = consent
        self._password = password
        self._settings = settings
        self._bars = bars
        self._tallies: dict[str, SourceFigures] = {}
        self._failures: list[SkippedFile] = []
        self._skipped: list[SkippedFile] = []
        self._kept: list[str] = []
        self._unread: Counter[str] = Counter()
        self._checkouts: list[str] = []
        self._samples = WorkSamples()
        self._unchanged = self._deletions = self._ignored = 0
        self._texts = self._tokens = self._documents = self._chunks = 0
        self._more_failures = 0
        self._seconds = self._seconds_new = 0.0
        """Of parsing, over all files and over those to send; files are parsed side by side."""

    async def run(
        self, client: AsyncClient, sources: Sequence[Source], meta: dict[str, Any], *, rebuild: bool
    ) -> DryRun:
        """Examine all sources. Sends, stores and deletes nothing."""
        description = await client.describe(self._container_id)
        manifest = Manifest.model_validate(description.manifest)
        candidates = [
            one
            for source in sources
            for one in await self._candidates(client, source, meta, rebuild=rebuild)
        ]
        self._unchanged = sum(not one.new for one in candidates)
        async with self._kit(manifest, description.embedder) as kit:
            began = time.monotonic()
            await self._look(kit, candidates)
            parse_seconds = time.monotonic() - began
            share = self._seconds_new / self._seconds if self._seconds else 0.0
            estimate = await self._estimate(client, kit, parse_seconds * share)
        return self._report(kit, candidates, estimate)

    async def _candidates(
        self, client: AsyncClient, source: Source, meta: dict[str, Any], *, rebuild: bool
    ) -> list[SourceCandidate]:
        match source:
            case WebSource(address):
                reason = "the server fetches web addresses; a dry run skips them"
                self._skipped.append(SkippedFile(path=address, reason=reason))
                return []
            case FileSource(file, uri):
                sidecar = await asyncio.to_thread(sidecar_of, file)
                meta_given = await asyncio.to_thread(read_meta, sidecar) if sidecar else {}
                return [SourceCandidate(str(file), file, uri, {**meta_given, **meta}, new=True)]
            case FolderSource(folder, root):
                return await self._of_folder(client, folder, root, meta, rebuild=rebuild)

    async def _of_folder(
        self,
        client: AsyncClient,
        folder: Path,
        root: str | None,
        meta: dict[str, Any],
        *,
        rebuild: bool,
    ) -> list[SourceCandidate]:
        plan = await plan_folder(
            client,
            self._container_id,
            folder,
            root,
            self._bars.show_folder,
            meta=meta,
            rebuild=rebuild,
            consent=self._consent,
        )
        root = plan.root
        metas: SidecarMetas = await asyncio.to_thread(read_sidecars, plan.files, meta)
        self._kept += [plan.notice] if plan.notice else []
        self._skipped += plan.skipped
        self._unread.update(plan.unread)
        self._checkouts += plan.checkouts
        self._ignored += plan.ignored
        self._deletions += 0 if plan.kept else plan.vanished
        self._kept += [f"{root}: {plan.kept}"] if plan.kept else []
        return [
            SourceCandidate(
                f"{root}/{file.path}",
                file.file,
                f"file:///{root}/{file.path}",
                metas.of(file.path),
                new=file.path in plan.need,
            )
            for file in plan.files
        ]

    @asynccontextmanager
    async def _kit(self, manifest: Manifest, embedder_view: dict[str, Any]) -> AsyncIterator[_Kit]:
        with TemporaryDirectory(prefix="latent-dry-run-") as scratch:
            kept = self._settings.data_dir / "models"
            models = kept if await asyncio.to_thread(kept.is_dir) else Path(scratch)
            embedders = EmbedderRegistry(self._settings, models)
            try:
                model = _model(embedders, manifest, embedder_view)
                embedder = _opened(embedders, model)
                counter = WordCounter(embedder.tokenizer if embedder else PieceTokenizer())
                async with Sandbox(children=PARSERS) as sandbox:
                    price, rate = (
                        embedders.price_of(model.embedder),
                        embedders.rate_of(model.embedder),
                    )
                    yield _Kit(
                        manifest, model, counter, embedder, price, rate, sandbox, Path(scratch)
                    )
            finally:
                await embedders.close()

    async def _look(self, kit: _Kit, candidates: Sequence[SourceCandidate]) -> None:
        done = 0

        async def one(candidate: SourceCandidate) -> None:
            nonlocal done
            began = time.monotonic()
            try:
                await self._examine(kit, candidate)
            except LatentError as exc:
                self._fail(candidate.shown, exc.message)
            spent = time.monotonic() - began
            self._seconds += spent
            self._seconds_new += spent if candidate.new else 0.0
            done += 1
            self._bars.set("files read", done, len(candidates))

        await in_parallel(candidates, one)

    async def _examine(self, kit: _Kit, candidate: SourceCandidate) -> None:
        meta_given = accepted_meta(kit.manifest, candidate.uri, candidate.meta)
        name = candidate.path.name
        detected = await asyncio.to_thread(_detect, candidate.path, name)
        counts = SourceFigures(files=1)
        written_as = await asyncio.to_thread(_conversation_format, candidate.path, name)
        if written_as is not None:
            detected = CONVERSATION_TYPE
            await self._conversations(kit, candidate, written_as, meta_given, counts)
        elif detected.corpus:
            await self._corpus(kit, candidate, detected, meta_given, counts)
        else:
            async with unlocked(
                kit.sandbox,
                candidate.path,
                name=name,
                source_type=detected.source_type,
                password=self._password,
                folder=kit.scratch,
            ) as file:
                parsed = await parse_file(
                    kit.sandbox,
                    file,
                    name=name,
                    source_type=detected.source_type,
                    max_pages=kit.manifest.pdf.max_pages,
                    sanitize_rules=kit.manifest.web.sanitize_rules,
                )
            await self._document(kit, candidate, parsed, detected, meta_given, counts)
        is_lines = detected.corpus and detected.mime != MAILBOX_MIME
        kind = "jsonl" if is_lines else detected.source_type.value
        self._tallies.setdefault(kind, SourceFigures()).join(counts)

    async def _conversations(
        self,
        kit: _Kit,
        candidate: SourceCandidate,
        written_as: ConversationFormat,
        meta_given: dict[str, Any],
        counts: SourceFigures,
    ) -> None:
        """A transcript or an export: one document per conversation."""
        transcripts = kit.manifest.ingest.transcripts
        options = TranscriptOptions(tools=transcripts.tools, reasoning=transcripts.reasoning)
        name = candidate.path.name
        async with read_conversations(
            kit.sandbox, candidate.path, name=name, written_as=written_as, options=options
        ) as outcomes:
            async for outcome in outcomes:
                if isinstance(outcome, UnreadPart):
                    self._fail(f"{candidate.shown}, {outcome.number}", outcome.message)
                    continue
                parsed = of_conversation(outcome.conversation)
                await self._document(kit, candidate, parsed, CONVERSATION_TYPE, meta_given, counts)

    async def _corpus(
        self,
        kit: _Kit,
        candidate: SourceCandidate,
        detected: DetectedType,
        meta_given: dict[str, Any],
        counts: SourceFigures,
    ) -> None:
        offset, line, total = 0, 1, 1
        mailbox = detected.mime == MAILBOX_MIME
        kind = MAIL_TYPE if mailbox else RECORD_TYPE
        while offset < total:
            batch = await read_records(
                kit.sandbox, candidate.path, offset=offset, line=line, mailbox=mailbox
            )
            for failure in batch.failures:
                self._fail(f"{candidate.shown}, line {failure.line}", failure.message)
            for record in batch.records:
                try:
                    parsed = jsonl.parsed(record)
                    await self._document(kit, candidate, parsed, kind, meta_given, counts)
                except LatentError as exc:
                    self._fail(f"{candidate.shown}, line {record.line}", exc.message)
            if batch.next_offset <= offset:
                return
            offset, line, total = batch.next_offset, batch.next_line, batch.total_bytes

    async def _document(
        self,
        kit: _Kit,
        candidate: SourceCandidate,
        parsed: ParsedDocument,
        detected: DetectedType,
        meta_given: dict[str, Any],
        counts: SourceFigures,
    ) -> None:
        published_meta(kit.manifest, parsed.meta, meta_given)
        _, drafts = await asyncio.to_thread(
            drafts_of,
            parsed,
            detected.source_type,
            kit.manifest.chunker,
            kit.counter,
            kit.model.window,
        )
        if not drafts and not parsed.scanned_pages:
            raise IngestFailed("contains no searchable text")
        counts.add(parsed, drafts)
        if not candidate.new:
            return
        self._documents += 1
        self._chunks += len(drafts)
        self._samples.add_file(
            await asyncio.to_thread(_paged, candidate.path, parsed, detected), parsed.scanned_pages
        )
        for draft in drafts:
            self._texts += max(1, -(-draft.token_count // kit.model.window))
            self._tokens += draft.token_count
            self._samples.texts.add(draft.embed_text)

    def _fail(self, path: str, reason: str) -> None:
        if len(self._failures) < MAX_FAILURES:
            self._failures.append(SkippedFile(path=path, reason=reason))
        else:
            self._more_failures += 1

    async def _estimate(self, client: AsyncClient, kit: _Kit, parse_seconds: float) -> Estimate:
        """Sums what is measured: each part keeps the processor busy. Waiting for a remote embedder does not."""
        async with PageReader(self._settings.ocr, self._settings.ocr_languages) as reader:
            ocr = await ocr_times(reader, self._samples, kit.counter)
        self._tokens += ocr.tokens
        self._texts += -(-ocr.tokens // kit.model.window)
        texts = self._samples.texts.items
        exchange = await exchange_seconds(client, self._container_id)
        index = await index_times(texts)
        exchanges = (
            self._documents * EXCHANGES_PER_DOCUMENT / min(JOBS_AT_A_TIME, max(1, self._documents))
        )
        store_seconds = (
            self._chunks * index.chunk + self._documents * index.document + exchanges * exchange
        )
        async with Sandbox(children=1, profile=DRAWING) as renderers:
            pages_seconds = await drawing_seconds(renderers, kit.manifest, self._samples)
        embed_seconds, basis = await self._embedding(kit)
        here = parse_seconds + ocr.seconds + store_seconds
        total = None
        if embed_seconds is not None:
            local = is_local(kit.model.embedder)
            total = here + embed_seconds if local else max(here, embed_seconds)
            # Pages of the first documents are drawn meanwhile, by one process: that takes up to a core from the rest.
            total += min(pages_seconds, 2 * total) / cores()
        return Estimate(
            parse_seconds=round(parse_seconds, 1),
            ocr_seconds=round(ocr.seconds, 1),
            embed_seconds=None if embed_seconds is None else round(embed_seconds, 1),
            store_seconds=round(store_seconds, 1),
            total_seconds=None if total is None else round(total, 1),
            pages_seconds=round(pages_seconds, 1),
            cost=self._cost(kit),
            price_per_million=kit.price or None,
            basis=basis,
            notes=[
                note
                for note in (ocr.note, f"a request to the gateway takes {exchange * 1000:.0f} ms")
                if note
            ],
        )

    def _cost(self, kit: _Kit) -> float | None:
        """As jobs compute it."""
        if is_local(kit.model.embedder):
            return 0.0
        return self._tokens / A_MILLION * kit.price if kit.price else None

    async def _embedding(self, kit: _Kit) -> tuple[float | None, str]:
        """Seconds to embed all texts to send, and the basis of the estimate."""
        sample = self._samples.texts.items
        if not self._texts:
            return 0.0, "nothing to embed"
        if kit.embedder is None or not is_local(kit.model.embedder):
            if kit.rate is None:
                return None, "the server decides how many texts it accepts"
            rate, setting = kit.rate
            return self._texts * 60.0 / rate, f"the limit of {rate} texts a minute ({setting})"
        sample = sample or ["how long does this take"]
        await kit.embedder.embed_documents(sample[:1])  # loads the model
        began, tokens = time.monotonic(), 0
        for _ in range(EMBEDDING_ROUNDS):
            await kit.embedder.embed_documents(sample)
            tokens += max(1, sum(kit.counter.count(sample)))
            if time.monotonic() - began > EMBEDDING_SECONDS:
                break
        seconds = max(time.monotonic() - began, 1e-6)
        basis = f"measured on this machine: {tokens / seconds:,.0f} tokens a second, over {len(sample)} chunks"
        return self._tokens * seconds / tokens, basis

    def _report(
        self, kit: _Kit, candidates: Sequence[SourceCandidate], estimate: Estimate
    ) -> DryRun:
        total = SourceFigures()
        for counts in self._tallies.values():
            total.join(counts)
        own = kit.embedder is not None and kit.model.embedder.startswith("local")
        stand_in = "an approximation, since only the server has the embedder's tokenizer"
        return DryRun(
            container_id=self._container_id,
            embedder=kit.model.embedder,
            tokenizer=f"{kit.model.embedder}'s own" if own else stand_in,
            types={name: counts.figures() for name, counts in sorted(self._tallies.items())},
            total=total.figures(),
            to_send=sum(one.new for one in candidates),
            unchanged=self._unchanged,
            would_delete=self._deletions,
            ignored=self._ignored,
            embedding_texts=self._texts,
            embedding_tokens=self._tokens,
            estimate=estimate,
            would_fail=sorted(self._failures, key=lambda one: one.path),
            would_fail_more=self._more_failures,
            skipped=self._skipped,
            unread=dict(self._unread.most_common()),
            checkouts=self._checkouts,
            kept=self._kept,
        )


def _model(
    embedders: EmbedderRegistry, manifest: Manifest, embedder_view: dict[str, Any]
) -> EmbeddingModel:
    """The model of the container, whose server may be known to the gateway only."""
    name, version, dims = manifest.embedder, embedder_view["version"], embedder_view["dims"]
    if embedders.providers.find(name) is None and embedders.providers.unknown(name) is not None:
        return EmbeddingModel(name, version, dims, WINDOW, reads_images(name))
    pinned = {} if is_local(name) else {"embedder_version": version, "dims": dims}
    return embedders.model_of(manifest.model_copy(update=pinned))


def _opened(embedders: EmbedderRegistry, model: EmbeddingModel) -> Embedder | None:
    try:
        return embedders.for_space(model)
    except LatentError:  # an unconfigured server, or a model that only the gateway has
        return None


def _paged(path: Path, parsed: ParsedDocument, detected: DetectedType) -> PagedFile:
    units = len(parsed.pages) if detected.source_type in PAGED else path.stat().st_size
    return PagedFile(path, detected.source_type, max(1, units))


def _conversation_format(path: Path, name: str) -> ConversationFormat | None:
    with path.open("rb") as file:
        return recognise(name, file.read(RECOGNISED_BYTES))


def _detect(path: Path, name: str) -> DetectedType:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as exc:
        raise IngestFailed(f"'{name}' cannot be read: {exc.strerror or exc}") from exc
    return detect(name, head)
