"""Embedders that run in this process on onnxruntime.

Measured (2 cores, passages of 256 tokens): one single-threaded run per core embeds a fifth more than runs that
share the cores, and small runs cost nothing. So documents are embedded in small single-threaded runs on
low-priority threads, and a query runs at once. A large model has a second session for queries, which uses all
cores. A small model answers queries on one thread as well: the threads of a run spin while they wait for each
other, so on busy cores two threads took 20 ms of processor time and twice the time, where one takes 10 ms.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from latent_core.domain.errors import ServiceUnreachable
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.models.embedding.batcher import plan_runs
from latent_core.models.embedding.port import EmbeddingModel, no_images
from latent_core.models.embedding.reference import agreement_of
from latent_core.models.embedding.tokens import ModelTokenizer
from latent_core.runtime.load_once import LoadOnce
from latent_core.runtime.process import cores
from latent_core.runtime.tasks import all_or_first_failure

RUN_TOKENS: Final = 256
"""Larger runs are not faster, take more memory and end later."""
QUERIES_AT_ONCE: Final = 2
NICENESS: Final = 5
_TOKENISE_AT_ONCE: Final = 256

logger = logging.getLogger(__name__)
T = TypeVar("T")
Loaded = TypeVar("Loaded")


class EncoderPort(Protocol):
    def encode(self, ids: Sequence[Sequence[int]]) -> Matrix: ...


class ImageEncoderPort(Protocol):
    def encode_images(self, images: Sequence[bytes]) -> Matrix: ...


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prefixes that a model expects before a text."""

    document: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A local model before it is loaded."""

    model: EmbeddingModel
    tokenizer: ModelTokenizer
    load: Callable[[int], EncoderPort]
    """Blocking; the argument is the number of threads per run."""
    prompts: Prompts = Prompts()
    prompt_tokens: int = 0
    """Tokens that the model reads beyond its window, for the longer of the prompts."""
    alone: bool = False
    """Whether each text is run alone, because other texts of a run would change its vector."""
    small: bool = False
    """Whether a query is too small to gain from several threads."""
    load_images: Callable[[int], ImageEncoderPort] | None = None
    """As ``load``, for the pictures of a model of texts and pictures."""


class LocalEmbedder:
    """Implements ``Embedder``. The model is loaded at first use: a small one once, a large one separately for
    documents and for queries, so that a process holds only what it uses."""

    def __init__(self, local: LocalModel, *, threads: int | None = None) -> None:
        """``threads`` is the number of cores for documents; by default all that this process may use."""
        self._local = local
        self._window = local.model.window + local.prompt_tokens
        self._threads = threads or cores()
        self._document_threads = ThreadPoolExecutor(
            self._threads, thread_name_prefix="embed-documents", initializer=_give_way
        )
        self._query_threads = ThreadPoolExecutor(QUERIES_AT_ONCE, thread_name_prefix="embed-query")
        self._trouble: str | None = None
        load = partial(self._loaded, local.load)
        self._documents = LoadOnce(partial(self._in, self._query_threads, partial(load, 1)))
        self._queries = self._documents
        if not local.small:
            shared = partial(load, self._threads)
            self._queries = LoadOnce(partial(self._in, self._query_threads, shared))
        self._images = LoadOnce(self._load_images)
        # First come, first served, one run at a time, so that callers alternate.
        self._free = asyncio.Semaphore(self._threads)
        self._closed = False

    @property
    def model(self) -> EmbeddingModel:
        return self._local.model

    @property
    def tokenizer(self) -> ModelTokenizer:
        return self._local.tokenizer

    @property
    def trouble(self) -> str | None:
        """Why nothing is written, if the model is loaded and does not compute what it must."""
        return self._trouble

    def _loaded(self, load: Callable[[int], Loaded], threads: int) -> Loaded:
        loaded = load(threads)
        agreement = agreement_of(loaded)
        if agreement is not None and not agreement.is_given:
            self._trouble = agreement.message
            logger.error(
                "model_disagrees", extra={"model": agreement.name, "reason": self._trouble}
            )
        return loaded

    def _require_for_writing(self, loaded: object, source: LoadOnce[Any]) -> None:
        agreement = agreement_of(loaded)
        if agreement is not None and not agreement.is_given:
            source.forget()  # a person may mend its files: the next call loads them again
            raise agreement.refusal_of_writing()

    def _require_for_queries(self, loaded: object, source: LoadOnce[Any]) -> None:
        agreement = agreement_of(loaded)
        if agreement is not None and not agreement.is_near:
            source.forget()
            raise agreement.refusal_of_queries()

    async def warm(self) -> None:
        """Load the model for queries and run it once, so that the first query does not wait for it."""
        await self.embed_query("warm")

    async def embed_query(self, text: str) -> Vector:
        self._check_open()
        encoder = await self._queries.get()
        self._require_for_queries(encoder, self._queries)
        return await self._in(self._query_threads, partial(self._encode_query, encoder, text))

    def _encode_query(self, encoder: EncoderPort, text: str) -> Vector:
        prompted = self._local.prompts.query + text
        vector: Vector = encoder.encode(self.tokenizer.ids([prompted], self._window))[0]
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        self._check_open()
        rows = np.empty((len(texts), self.model.dims), np.float32)
        if not texts:
            return rows
        encoder = await self._documents.get()
        self._require_for_writing(encoder, self._documents)
        ids = await self._token_ids(texts)
        runs = iter(plan_runs([len(own) for own in ids], RUN_TOKENS))

        async def embed_runs() -> None:
            for run in runs:
                async with self._free:
                    job = partial(self._encode_run, encoder, [ids[index] for index in run])
                    rows[run] = await self._in(self._document_threads, job)

        await all_or_first_failure([embed_runs() for _ in range(self._threads)])
        return rows

    async def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(texts), _TOKENISE_AT_ONCE):
            some = [
                self._local.prompts.document + text
                for text in texts[start : start + _TOKENISE_AT_ONCE]
            ]
            read = partial(self.tokenizer.ids, some, self._window)
            ids += await self._in(self._document_threads, read)
        return ids

    def _encode_run(self, encoder: EncoderPort, ids: Sequence[Sequence[int]]) -> Matrix:
        if self._local.alone:
            return np.concatenate([encoder.encode([own]) for own in ids])
        return encoder.encode(ids)

    async def _load_images(self) -> ImageEncoderPort:
        if self._local.load_images is None:
            raise no_images(self.model)
        load = partial(self._loaded, self._local.load_images, 1)
        return await self._in(self._query_threads, load)

    async def embed_images(self, images: Sequence[bytes]) -> Matrix:
        """One picture per run, since each has as many tokens as a long text."""
        rows = np.empty((len(images), self.model.dims), np.float32)
        encoder = await self._images.get()
        self._require_for_writing(encoder, self._images)
        runs = iter(range(len(images)))

        async def embed_runs() -> None:
            for index in runs:
                async with self._free:
                    job = partial(encoder.encode_images, [images[index]])
                    rows[index] = (await self._in(self._document_threads, job))[0]

        await all_or_first_failure([embed_runs() for _ in range(self._threads)])
        return rows

    async def embed_query_image(self, image: bytes) -> Vector:
        encoder = await self._images.get()
        self._require_for_queries(encoder, self._images)
        job = partial(encoder.encode_images, [image])
        found: Vector = (await self._in(self._query_threads, job))[0]
        return found

    async def _in(self, threads: Executor, job: Callable[[], T]) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(threads, job)

    def _check_open(self) -> None:
        if self._closed:
            raise ServiceUnreachable("the embedder is closed: the process is ending")

    async def close(self) -> None:
        """Waits for the current runs, which are short."""
        self._closed = True
        for threads in (self._document_threads, self._query_threads):
            await asyncio.to_thread(threads.shutdown)
        self._documents.forget()
        self._queries.forget()
        self._images.forget()


def _give_way() -> None:
    """Lower this thread's priority on Linux, so that queries, searches and stores run first."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
