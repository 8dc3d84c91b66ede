"""Embedders that read pictures, in each of their dialects, against a real server that can be told to misbehave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from pydantic import SecretStr

from latent_core.db.connection import Database
from latent_core.domain.errors import (
    IngestFailed,
    Invalid,
    LatentError,
    Misconfigured,
    RateLimited,
    Unavailable,
    UpstreamTimeout,
)
from latent_core.domain.ids import Sha256
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.api.nomic import NomicVisionClient
from latent_core.models.embedding.api.pictures import TOKENS_PER_IMAGE, JinaClient, VllmClient
from latent_core.models.embedding.api.remote import Breaker, RemoteEmbedder, RetryPolicy
from latent_core.models.embedding.api.wire import EmbeddingEndpoint
from latent_core.models.embedding.batcher import Batcher
from latent_core.models.embedding.cache import CachedEmbedding
from latent_core.models.embedding.picture import Piece, StoredImage, as_data_url, media_type, pieces
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.models.embedding.rate import TextRate
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.embedding.tokens import PieceTokenizer
from latent_core.settings import Settings
from tests.support.clock import FakeClock
from tests.support.contracts.embedding import EmbedderContract
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

DIMS = 32
KEY = SecretStr("sk-secret")
UNLIMITED = 10**9
PNG = b"\x89PNG\r\n\x1a\n"
NAMES = {
    "vllm": "vllm/test",
    "jina": "jina/test",
    "nomic": "nomic/nomic-embed-vision-v1.5",
}


def shows(words: str) -> bytes:
    """A picture, to who reads no further than its first bytes."""
    return PNG + words.encode()


def seen(image: bytes) -> str:
    return image.removeprefix(PNG).decode()


def served(**given: float) -> EmbeddingServer:
    return EmbeddingServer(dims=DIMS, key=KEY.get_secret_value(), see=seen, **given)


def embedder_for(
    server: EmbeddingServer,
    dialect: str,
    *,
    time: FakeClock | None = None,
    per_minute: int = UNLIMITED,
    retry_policy: RetryPolicy = RetryPolicy(),
    seconds: float = 20.0,
) -> RemoteEmbedder:
    time = time or FakeClock()
    client: VllmClient | JinaClient | NomicVisionClient
    if dialect == "nomic":
        client = NomicVisionClient(
            EmbeddingEndpoint(server.root_url, KEY, "nomic-embed-vision-v1.5", DIMS, seconds),
            connections=8,
        )
    else:
        made = VllmClient if dialect == "vllm" else JinaClient
        client = made(EmbeddingEndpoint(server.base_url, KEY, "test", DIMS, seconds), connections=8)
    return RemoteEmbedder(
        EmbeddingModel(NAMES[dialect], "1", DIMS, 512, reads_images=True),
        client,
        TextRate(per_minute, clock=time.clock, sleep=time.sleep),
        retry_policy=retry_policy,
        breaker=Breaker(clock=time.clock),
        sleep=time.sleep,
        jitter=lambda _, high: high,
        images=client,
    )


@pytest.fixture(params=sorted(NAMES))
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    async with served() as running:
        yield running


@pytest.fixture
def time() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def patient(
    server: EmbeddingServer, dialect: str, time: FakeClock
) -> AsyncIterator[RemoteEmbedder]:
    embedder = embedder_for(server, dialect, time=time)
    yield embedder
    await embedder.close()


@pytest_asyncio.fixture(scope="class", loop_scope="class", name="embedder", params=["jina", "vllm"])
async def reader_of_pictures(request: pytest.FixtureRequest) -> AsyncIterator[RemoteEmbedder]:
    async with served() as server:
        embedder = embedder_for(server, request.param)
        yield embedder
        await embedder.close()


@pytest.mark.asyncio(loop_scope="class")
class TestContractForTexts(EmbedderContract):
    pass


class TestPictures:
    async def test_each_has_a_unit_vector_in_the_space_of_the_texts_in_order(
        self, server: EmbeddingServer, patient: RemoteEmbedder
    ) -> None:
        names = [f"gulls over harbour {n}" for n in range(11)]
        rows = await patient.embed_images([shows(name) for name in names])
        assert np.allclose(rows, await patient.embed_documents(names), atol=1e-5)
        assert server.stats.images == 11
        assert (await patient.embed_images([])).shape == (0, DIMS)
        query = await patient.embed_query_image(shows(names[3]))
        assert np.allclose(query, rows[3], atol=1e-5)

    @pytest.mark.parametrize(
        "kind",
        [
            EmbeddingFault.RATE_LIMITED,
            EmbeddingFault.SERVER_ERROR,
            EmbeddingFault.OVERLOADED,
            EmbeddingFault.TRUNCATED,
            EmbeddingFault.HUNG_UP,
        ],
    )
    async def test_trouble_that_passes_is_waited_out(
        self, server: EmbeddingServer, patient: RemoteEmbedder, kind: EmbeddingFault
    ) -> None:
        server.misbehave(kind, times=2)
        rows = await patient.embed_images([shows("gulls")])
        assert np.allclose(rows, server.vectors(["gulls"]), atol=1e-5)
        assert server.stats.requests == 3

    @pytest.mark.parametrize(
        ("kind", "error", "expected"),
        [
            (EmbeddingFault.WRONG_DIMS, IngestFailed, r"31 dimensions.*32"),
            (EmbeddingFault.MISSING, IngestFailed, "0 vectors for 1"),
            (EmbeddingFault.ZERO, IngestFailed, "zero or not a number"),
            (EmbeddingFault.NOT_A_NUMBER, IngestFailed, "zero or not a number"),
            (EmbeddingFault.NO_MODEL, Misconfigured, "serves the model"),
            (EmbeddingFault.REFUSED, IngestFailed, "refuses this input"),
            (EmbeddingFault.REDIRECT, Misconfigured, "redirects are not followed"),
        ],
    )
    async def test_an_answer_that_cannot_be_used_fails_for_good(
        self,
        server: EmbeddingServer,
        patient: RemoteEmbedder,
        kind: EmbeddingFault,
        error: type[LatentError],
        expected: str,
    ) -> None:
        server.misbehave(kind, times=100)
        with pytest.raises(error, match=expected):
            await patient.embed_images([shows("gulls")])
        assert server.stats.requests == 1

    async def test_pictures_are_ordered_by_their_index_where_the_dialect_has_one(
        self, server: EmbeddingServer
    ) -> None:
        embedder = embedder_for(server, "jina")
        names = [f"gulls over harbour {n}" for n in range(5)]
        server.misbehave(EmbeddingFault.REORDERED)
        rows = await embedder.embed_images([shows(name) for name in names])
        await embedder.close()
        assert np.allclose(rows, server.vectors(names), atol=1e-5)

    async def test_a_silent_server_is_given_up_when_the_deadline_passes(
        self, server: EmbeddingServer, dialect: str
    ) -> None:
        embedder = embedder_for(server, dialect, retry_policy=RetryPolicy(attempts=2), seconds=0.5)
        server.misbehave(EmbeddingFault.SILENT, times=99)
        with pytest.raises(UpstreamTimeout, match="deadline"):
            await embedder.embed_query_image(shows("gulls"))
        await embedder.close()
        assert server.stats.requests == 2

    @pytest.mark.parametrize("kind", [EmbeddingFault.RATE_LIMITED, EmbeddingFault.OVERLOADED])
    async def test_the_server_says_how_long_to_wait(
        self,
        server: EmbeddingServer,
        patient: RemoteEmbedder,
        time: FakeClock,
        kind: EmbeddingFault,
    ) -> None:
        server.misbehave(kind, retry_after="7")
        begun = time.now
        await patient.embed_images([shows("gulls")])
        assert time.now - begun >= 7

    async def test_they_share_the_limit_and_the_breaker_of_texts(
        self, server: EmbeddingServer, dialect: str, time: FakeClock
    ) -> None:
        limited = embedder_for(
            server, dialect, time=time, per_minute=4, retry_policy=RetryPolicy(wait_seconds=0.0)
        )
        await limited.embed_documents(["a", "b", "c"])
        with pytest.raises(RateLimited, match="4 texts a minute"):
            await limited.embed_images([shows("d"), shows("e")])
        await limited.close()
        broken = embedder_for(server, dialect, time=time)
        server.misbehave(EmbeddingFault.SERVER_ERROR, times=100)
        with pytest.raises(Unavailable, match="500"):
            await broken.embed_images([shows("f")])
        with pytest.raises(Unavailable, match="times in a row"):
            await broken.embed_query("f")
        await broken.close()

    async def test_images_cost_what_the_server_reported_for_earlier_ones(
        self, server: EmbeddingServer, dialect: str
    ) -> None:
        embedder = embedder_for(server, dialect)
        before = embedder.tokens_of([], 3)
        await embedder.embed_images([shows("two words"), shows("two words")])
        assert embedder.tokens_of([], 3) == 6 < before
        assert embedder.tokens_of(["word"]) == 1
        await embedder.close()

    async def test_other_formats_are_refused_before_anything_is_sent(
        self, server: EmbeddingServer, patient: RemoteEmbedder
    ) -> None:
        with pytest.raises(Invalid, match="PNG, JPEG or WebP"):
            await patient.embed_images([b"GIF89a"])
        assert server.stats.requests == 0


class TestNames:
    def manifest(self, name: str) -> Manifest:
        return Manifest(id="c", name="C", embedder=name, dims=DIMS)

    @pytest.mark.parametrize(
        ("name", "reads"),
        [
            ("nomic-embed-multimodal-7b", True),
            ("vllm/some/model", True),
            ("jina/jina-embeddings-v4", True),
            ("nomic/nomic-embed-vision-v1.5", True),
            ("nomic/nomic-embed-text-v1.5", False),
            ("openai/text-embedding-3-small", False),
            ("local", False),
        ],
    )
    async def test_the_name_tells_whether_an_embedder_reads_pictures(
        self, server: EmbeddingServer, tmp_path: Path, name: str, reads: bool
    ) -> None:
        settings = Settings(
            _env_file=None,
            embed_api_key=KEY,
            embed_base_url=server.base_url,
            nomic_base_url=server.root_url,
        )
        embedders = EmbedderRegistry(settings, tmp_path)
        manifest = self.manifest(name) if name != "local" else Manifest(id="c", name="C")
        model = embedders.model_of(manifest)
        assert model.reads_images is reads
        embedder = embedders.for_space(model)
        assert embedder.model == model
        if reads:
            row = await embedder.embed_query_image(shows("gulls"))
            assert np.allclose(row, server.vectors(["gulls"])[0], atol=1e-5)
        else:
            with pytest.raises(Invalid, match=f"{name} reads no images.*in the manifest"):
                await embedder.embed_images([shows("gulls")])
            with pytest.raises(Invalid, match="reads no images"):
                await embedder.embed_query_image(shows("gulls"))
        await embedders.close()

    @pytest.mark.parametrize("name", ["vllm/", "jina/"])
    def test_a_name_without_a_model_is_none(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(Invalid, match="is not known"):
            EmbedderRegistry(Settings(_env_file=None), tmp_path).model_of(self.manifest(name))

    def test_the_text_of_an_image_request_is_part_of_the_vector_and_constant(self) -> None:
        assert TOKENS_PER_IMAGE == "Describe the image."


class TestPieces:
    model = EmbeddingModel("vllm/test", "1", DIMS, 4, reads_images=True)

    def test_a_picture_is_one_piece_for_who_reads_pictures_and_its_text_for_others(self) -> None:
        text = "one two three four five six"
        picture = StoredImage(Sha256("ab" * 32), "plates")
        tokenizer = PieceTokenizer()
        assert pieces(text, picture, tokenizer, self.model) == [picture]
        texts_only = EmbeddingModel("openai/test", "1", DIMS, 4)
        cut = pieces(text, None, tokenizer, self.model)
        assert "".join(map(str, cut)) == text
        assert pieces(text, picture, tokenizer, texts_only) == cut
        assert len(cut) > 1

    @pytest.mark.parametrize(
        ("image", "kind"),
        [
            (PNG, "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"RIFF\0\0\0\0WEBP", "image/webp"),
        ],
    )
    def test_formats_are_known_by_their_first_bytes(self, image: bytes, kind: str) -> None:
        assert media_type(image) == kind
        assert as_data_url(image).startswith(f"data:{kind};base64,")


async def test_an_image_is_embedded_once_and_cached_like_the_texts(
    server: EmbeddingServer, database: Database
) -> None:
    stored = {Sha256(f"{n:064x}"): shows(f"colour {n}") for n in range(20)}

    async def read(picture: StoredImage) -> bytes:
        return stored[picture.sha256]

    embedder = embedder_for(server, "jina")
    batcher = Batcher(embedder)
    cached = CachedEmbedding(batcher, database, read)
    mixed: list[Piece] = ["a text", *(StoredImage(one, "plates") for one in stored), "another"]
    mixed.append(StoredImage(Sha256(f"{3:064x}"), "plates"))
    matrix, hits, tokens = await cached.embed(mixed)
    expected = ["a text", *(f"colour {n}" for n in range(20)), "another", "colour 3"]
    assert np.allclose(matrix, server.vectors(expected), atol=1e-5)
    assert (hits, server.stats.images) == (1, 20)
    assert tokens >= 40
    again = await cached.embed(mixed)
    assert (again.hits, again.tokens, server.stats.images) == (len(mixed), 0, 20)
    await batcher.close()
    await embedder.close()
