"""The embedding cache, on a real Postgres: what was embedded once is not embedded again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence

import numpy as np
import pytest

from latent_core.db.connection import Connection, Database, only_row
from latent_core.db.spaces import embedding_cache as embeddings, embedding_claims
from latent_core.db.spaces.embedding_claims import Claimant
from latent_core.domain.errors import Unavailable
from latent_core.domain.ids import Sha256, content_hash
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.models.embedding import cache
from latent_core.models.embedding.batcher import Batcher
from latent_core.models.embedding.cache import CachedEmbedding
from latent_core.models.embedding.picture import StoredImage
from latent_core.models.embedding.port import EmbeddingModel, TextsOnly
from latent_core.models.embedding.tokens import PieceTokenizer
from tests.support.hashed_embedder import HashedWords

DIMS = 16
HASHED = HashedWords(DIMS)


class CountingEmbedderStub(TextsOnly):
    """An embedder that notes what it is asked for."""

    def __init__(self, version: str = "1") -> None:
        self.model = EmbeddingModel("counting", version, DIMS, 100)
        self.tokenizer = PieceTokenizer()
        self.embedded_texts: list[str] = []
        self.fails_on = "\0"

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        if any(self.fails_on in text for text in texts):
            raise Unavailable("the embedder is away")
        self.embedded_texts += texts
        return HASHED.vectors(texts)

    async def embed_query(self, text: str) -> Vector:
        vector: Vector = HASHED.vectors([text])[0]
        return vector

    async def close(self) -> None:
        """Nothing is held open."""


CONTAINER = "plates"


async def no_pictures(picture: StoredImage) -> bytes:
    raise AssertionError(f"nobody has drawn {picture.sha256}")


@pytest.fixture
def embedder() -> CountingEmbedderStub:
    return CountingEmbedderStub()


@pytest.fixture
async def cached(
    embedder: CountingEmbedderStub, database: Database
) -> AsyncIterator[CachedEmbedding]:
    batcher = Batcher(embedder)
    yield CachedEmbedding(batcher, database, no_pictures)
    await batcher.close()


TEXTS = ["proteins fold", "rye bread", "heat transfer", ""]


async def test_known_texts_are_not_embedded_again(
    cached: CachedEmbedding, embedder: CountingEmbedderStub
) -> None:
    first = await cached.embed(TEXTS)
    second = await cached.embed([*TEXTS[::-1], "new"])
    assert (first.hits, second.hits) == (0, 4)
    assert sorted(embedder.embedded_texts) == sorted([*TEXTS, "new"])
    assert np.array_equal(first.matrix, HASHED.vectors(TEXTS))
    assert np.array_equal(second.matrix, HASHED.vectors([*TEXTS[::-1], "new"]))
    assert second.matrix.dtype == np.float32


async def test_the_same_text_twice_in_a_call_is_embedded_once(
    cached: CachedEmbedding, embedder: CountingEmbedderStub
) -> None:
    matrix, hits, _ = await cached.embed(["a", "b", "a", "a"])
    assert (len(embedder.embedded_texts), hits) == (2, 2)
    assert np.array_equal(matrix, HASHED.vectors(["a", "b", "a", "a"]))


async def test_calls_at_the_same_time_request_each_text_once(
    cached: CachedEmbedding, embedder: CountingEmbedderStub
) -> None:
    shared = [f"worktree {n}" for n in range(20)]
    calls = [[*shared[n:], *shared[:n], f"own {n}"] for n in range(10)]
    batches = await asyncio.gather(*(cached.embed(texts) for texts in calls))
    assert len(embedder.embedded_texts) == len(set(embedder.embedded_texts)) == 30
    assert sum(batch.hits for batch in batches) == 10 * 21 - 30
    for texts, batch in zip(calls, batches, strict=True):
        assert np.array_equal(batch.matrix, HASHED.vectors(texts))


@pytest.fixture
async def neighbour(
    embedder: CountingEmbedderStub, database: Database
) -> AsyncIterator[CachedEmbedding]:
    """Of another process: it shares the database with ``cached`` and nothing else."""
    batcher = Batcher(embedder)
    yield CachedEmbedding(batcher, database, no_pictures)
    await batcher.close()


async def test_processes_at_the_same_time_request_each_text_once(
    cached: CachedEmbedding,
    neighbour: CachedEmbedding,
    embedder: CountingEmbedderStub,
    database: Database,
) -> None:
    shared = [f"worktree {n}" for n in range(20)]
    # In opposite orders, so that each has claimed what the other still needs.
    calls = [[*shared[n:], *shared[:n], f"own {n}"][:: 1 - 2 * (n % 2)] for n in range(10)]
    workers = [cached, neighbour] * 5
    batches = await asyncio.gather(
        *(worker.embed(texts) for worker, texts in zip(workers, calls, strict=True))
    )
    assert len(embedder.embedded_texts) == len(set(embedder.embedded_texts)) == 30
    assert sum(batch.hits for batch in batches) == 10 * 21 - 30
    for texts, batch in zip(calls, batches, strict=True):
        assert np.array_equal(batch.matrix, HASHED.vectors(texts))
    assert await claims_of(database) == 0


async def test_a_process_makes_what_a_failed_one_had_claimed(
    cached: CachedEmbedding,
    neighbour: CachedEmbedding,
    embedder: CountingEmbedderStub,
    database: Database,
) -> None:
    embedder.fails_on = "broken"
    failing = cached.embed(["shared", "broken"])
    results = await asyncio.gather(failing, neighbour.embed(["shared"]), return_exceptions=True)
    assert isinstance(results[0], Unavailable)
    assert isinstance(results[1], tuple)
    assert np.array_equal(results[1].matrix, HASHED.vectors(["shared"]))
    assert await claims_of(database) == 0


async def test_the_claims_of_a_dead_process_lapse(
    cached: CachedEmbedding, embedder: CountingEmbedderStub, database: Database
) -> None:
    """It is not asked whether it lives: it no longer renews them."""
    waits = asyncio.Event()

    async def checkpoint() -> None:
        waits.set()

    async with database.single() as conn:
        space, hashes = embedder.model.key, [content_hash("x")]
        assert await embedding_claims.claim(conn, space, Claimant(b"dead"), hashes) == set(hashes)
        assert await embedding_claims.claim(conn, space, Claimant(b"other"), hashes) == set()
    waiting = asyncio.create_task(cached.embed(["x"], checkpoint))
    async with asyncio.timeout(30):
        await waits.wait()
    assert embedder.embedded_texts == []
    async with database.single() as conn:
        await conn.execute("UPDATE embedding_cache SET used_at = used_at - interval '2 minutes'")
    async with asyncio.timeout(30):
        assert (await waiting).hits == 0
    assert embedder.embedded_texts == ["x"]
    assert await claims_of(database) == 0


async def test_a_renewed_claim_holds_and_only_its_owner_releases_it(database: Database) -> None:
    hashes = [content_hash("x")]
    async with database.single() as conn:
        await embedding_claims.claim(conn, "s", Claimant(b"one"), hashes)
        await conn.execute("UPDATE embedding_cache SET used_at = used_at - interval '2 minutes'")
        await embedding_claims.renew(conn, "s", Claimant(b"one"), hashes)
        await embedding_claims.release(conn, "s", Claimant(b"two"), hashes)
        assert await embedding_claims.claim(conn, "s", Claimant(b"two"), hashes) == set()
        await embedding_claims.release(conn, "s", Claimant(b"one"), hashes)
        assert await embedding_claims.claim(conn, "s", Claimant(b"two"), hashes) == set(hashes)


async def test_a_claim_from_the_future_is_void(database: Database) -> None:
    """The clock of the database was set back."""
    hashes = [content_hash("x")]
    async with database.single() as conn:
        await embedding_claims.claim(conn, "s", Claimant(b"one"), hashes)
        await conn.execute("UPDATE embedding_cache SET used_at = now() + interval '2 hours'")
        assert await embedding_claims.claim(conn, "s", Claimant(b"two"), hashes) == set(hashes)


async def test_a_worker_that_restarts_under_its_id_takes_its_claims_back_at_once(
    embedder: CountingEmbedderStub, database: Database
) -> None:
    async with database.single() as conn:
        killed = Claimant.of_worker("lighthouse-1", 3600)
        await embedding_claims.claim(conn, embedder.model.key, killed, [content_hash("x")])
    restarted = Claimant.of_worker("lighthouse-1", 3600)
    batcher = Batcher(embedder)
    async with asyncio.timeout(30):
        await CachedEmbedding(batcher, database, no_pictures, restarted).embed(["x"])
    await batcher.close()
    assert embedder.embedded_texts == ["x"]
    assert await claims_of(database) == 0


async def test_a_text_that_is_refused_for_good_fails_in_each_process_that_needs_it(
    cached: CachedEmbedding,
    neighbour: CachedEmbedding,
    embedder: CountingEmbedderStub,
    database: Database,
) -> None:
    embedder.fails_on = "refused"
    async with asyncio.timeout(30):
        results = await asyncio.gather(
            *(worker.embed(["refused", "fine"]) for worker in (cached, neighbour)),
            return_exceptions=True,
        )
    assert [type(result) for result in results] == [Unavailable, Unavailable]
    assert await claims_of(database) == 0


async def test_a_process_that_is_cancelled_while_it_embeds_leaves_no_claim(
    database: Database,
) -> None:
    class Endless(CountingEmbedderStub):
        began = asyncio.Event()

        async def embed_documents(self, texts: Sequence[str]) -> Matrix:
            self.began.set()
            return await asyncio.Future[Matrix]()

    embedder = Endless()
    batcher = Batcher(embedder)
    task = asyncio.create_task(CachedEmbedding(batcher, database, no_pictures).embed(["x"]))
    async with asyncio.timeout(30):
        await embedder.began.wait()
    assert await claims_of(database) == 1
    task.cancel()
    await asyncio.wait([task])
    assert await claims_of(database) == 0
    await batcher.close()


async def test_a_large_document_claims_its_texts_step_by_step(
    cached: CachedEmbedding, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[int] = []
    claim = embedding_claims.claim

    async def counted(
        conn: Connection, space: str, claimant: Claimant, hashes: Collection[Sha256]
    ) -> set[Sha256]:
        claimed.append(len(hashes))
        return await claim(conn, space, claimant, hashes)

    monkeypatch.setattr(embedding_claims, "claim", counted)
    await cached.embed([f"text {n}" for n in range(2500)])
    assert claimed == [1024, 1024, 452]
    assert await claims_of(database) == 0


async def test_a_process_does_not_wait_for_ever_for_another_one(
    cached: CachedEmbedding,
    embedder: CountingEmbedderStub,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "MAX_WAIT_SECONDS", 0.0)
    async with database.single() as conn:
        await embedding_claims.claim(
            conn, embedder.model.key, Claimant(b"stuck"), [content_hash("x")]
        )
    async with asyncio.timeout(30):
        await cached.embed(["x", "y"])
    assert sorted(embedder.embedded_texts) == ["x", "y"]


async def claims_of(database: Database) -> int:
    async with database.reading() as conn:
        row = await only_row(
            await conn.execute(
                "SELECT count(*) AS n FROM embedding_cache WHERE space ^@ 'claim of '"
            )
        )
    return int(row["n"])


async def test_a_call_makes_what_a_failed_one_promised(
    cached: CachedEmbedding, embedder: CountingEmbedderStub
) -> None:
    embedder.fails_on = "broken"
    failing = cached.embed(["shared", "broken"])
    results = await asyncio.gather(failing, cached.embed(["shared"]), return_exceptions=True)
    assert isinstance(results[0], Unavailable)
    assert isinstance(results[1], tuple)
    assert np.array_equal(results[1].matrix, HASHED.vectors(["shared"]))


async def test_no_texts_give_no_rows(cached: CachedEmbedding) -> None:
    assert (await cached.embed([])).matrix.shape == (0, DIMS)


async def test_another_version_of_the_embedder_knows_nothing(
    cached: CachedEmbedding, database: Database
) -> None:
    await cached.embed(TEXTS)
    newer = Batcher(CountingEmbedderStub(version="2"))
    assert (await CachedEmbedding(newer, database, no_pictures).embed(TEXTS)).hits == 0
    await newer.close()


async def test_what_was_made_before_a_failure_is_kept(
    cached: CachedEmbedding, embedder: CountingEmbedderStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "TEXTS_PER_STEP", 10)
    texts = [f"text {n}" for n in range(30)]
    embedder.fails_on = "text 25"
    with pytest.raises(Unavailable):
        await cached.embed(texts)
    embedder.fails_on = "\0"
    assert (await cached.embed(texts)).hits == 20


async def test_batches_are_kept_as_they_come_even_by_a_call_that_has_failed(
    database: Database,
) -> None:
    class SlowEmbedder(CountingEmbedderStub):
        """Its first batch comes when another one has failed."""

        failed = asyncio.Event()

        async def embed_documents(self, texts: Sequence[str]) -> Matrix:
            try:
                rows = await super().embed_documents(texts)
            except Unavailable:
                self.failed.set()
                raise
            await self.failed.wait()
            return rows

    embedder = SlowEmbedder()
    embedder.fails_on = "bad"
    batcher = Batcher(embedder, max_texts=2)
    cached = CachedEmbedding(batcher, database, no_pictures)
    with pytest.raises(Unavailable):
        await cached.embed(["a longer text", "another longer text", "bad"])
    embedder.fails_on = "\0"
    while await _known(database, embedder) < 2:
        pass
    again = await cached.embed(["a longer text", "another longer text", "bad"])
    assert again.hits == 2
    assert embedder.embedded_texts.count("a longer text") == 1
    await batcher.close()


async def _known(database: Database, embedder: CountingEmbedderStub) -> int:
    hashes = [content_hash(text) for text in ("a longer text", "another longer text")]
    async with database.transaction() as conn:
        return len(await embeddings.find(conn, embedder.model.key, hashes))


async def test_the_checkpoint_is_called_between_steps(
    cached: CachedEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "TEXTS_PER_STEP", 10)
    texts = [f"text {n}" for n in range(35)]
    embedded_texts = 0

    async def checkpoint() -> None:
        nonlocal embedded_texts
        embedded_texts += 1

    await cached.embed(texts)
    await cached.embed(texts, checkpoint)
    assert embedded_texts == 3


async def test_jobs_with_the_same_texts_do_not_block_each_other(database: Database) -> None:
    texts = [f"text {n}" for n in range(300)]
    batchers = [Batcher(CountingEmbedderStub()) for _ in range(6)]
    orders = [texts if n % 2 else texts[::-1] for n in range(6)]
    results = await asyncio.gather(
        *(
            CachedEmbedding(batcher, database, no_pictures).embed(order)
            for batcher, order in zip(batchers, orders, strict=True)
        )
    )
    for order, embedded in zip(orders, results, strict=True):
        assert np.array_equal(embedded.matrix, HASHED.vectors(order))
    for batcher in batchers:
        await batcher.close()


class ImageEmbedder(CountingEmbedderStub):
    """Takes a picture a request, and never answers for one of them."""

    images_a_request = 1

    async def embed_images(self, images: Sequence[bytes]) -> Matrix:
        (image,) = images
        if image == b"slow":
            await asyncio.Event().wait()
        self.embedded_texts.append(image.decode())
        return HASHED.vectors([image.decode()])


async def test_each_picture_is_kept_as_its_answer_comes_and_not_paid_for_twice_after_a_crash(
    database: Database,
) -> None:
    shown = {Sha256(f"{n:064x}"): f"plate {n}".encode() for n in range(20)}
    last = list(shown)[-1]

    async def read(picture: StoredImage) -> bytes:
        return b"slow" if picture.sha256 == last and not again else shown[picture.sha256]

    again = False
    embedder = ImageEmbedder()
    batcher = Batcher(embedder)
    cached = CachedEmbedding(batcher, database, read)
    cut_off = asyncio.create_task(cached.embed([StoredImage(one, CONTAINER) for one in shown]))
    while await _kept(database, embedder, shown) < 19:
        pass
    cut_off.cancel()
    await asyncio.wait([cut_off])
    again = True
    assert (await cached.embed([StoredImage(one, CONTAINER) for one in shown])).hits == 19
    assert sorted(embedder.embedded_texts) == sorted(f"plate {n}" for n in range(20))
    await batcher.close()


async def _kept(
    database: Database, embedder: CountingEmbedderStub, hashes: Iterable[Sha256]
) -> int:
    async with database.transaction() as conn:
        return len(await embeddings.find(conn, embedder.model.key, list(hashes)))


async def test_no_more_pictures_are_read_than_are_sent_at_once(database: Database) -> None:
    read: list[Sha256] = []
    full = asyncio.Event()

    async def slow(picture: StoredImage) -> bytes:
        read.append(picture.sha256)
        if len(read) == cache.PICTURES_AT_ONCE:
            full.set()
        return b"slow"

    batcher = Batcher(ImageEmbedder())
    cached = CachedEmbedding(batcher, database, slow)
    task = asyncio.create_task(
        cached.embed([StoredImage(Sha256(f"{n:064x}"), CONTAINER) for n in range(100)])
    )
    await full.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(read) == cache.PICTURES_AT_ONCE
    task.cancel()
    await asyncio.wait([task])
    await batcher.close()


AGE = "UPDATE embedding_cache SET used_at = now() - interval '3 days'"
FRESH = "SELECT count(*) AS n FROM embedding_cache WHERE used_at > now() - interval '1 hour'"


async def test_a_use_is_noted_once_a_day(cached: CachedEmbedding, database: Database) -> None:
    await cached.embed(TEXTS)
    async with database.transaction() as conn:
        await conn.execute(AGE)
    await cached.embed(TEXTS[:2])
    async with database.transaction() as conn:
        row = await (await conn.execute(FRESH)).fetchone()
    assert row == {"n": 2}


async def test_a_row_that_another_job_is_touching_is_not_waited_for(
    cached: CachedEmbedding, database: Database
) -> None:
    await cached.embed(TEXTS)
    async with database.transaction() as conn:
        await conn.execute(AGE)
    async with database.transaction() as holder:
        await holder.execute("SELECT 1 FROM embedding_cache FOR UPDATE")
        async with asyncio.timeout(10):
            assert (await cached.embed(TEXTS)).hits == 4


async def test_vectors_are_kept_to_the_last_bit(database: Database) -> None:
    rows = np.array([[1e-40, -0.0, np.pi, 1.0], [0.1, 0.2, 0.3, 0.4]], np.float32)
    hashes = [content_hash("b"), content_hash("a")]
    async with database.transaction() as conn:
        await embeddings.insert(conn, "s", hashes, rows)
        await embeddings.insert(conn, "s", hashes, rows * 2)
        found = await embeddings.find(conn, "s", [*hashes, content_hash("c")])
    assert found.keys() == set(hashes)
    for hash_, row in zip(hashes, rows, strict=True):
        assert found[hash_].tobytes() == row.tobytes()
