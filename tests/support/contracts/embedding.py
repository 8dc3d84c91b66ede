"""What every ``Embedder`` must do. An adapter's tests inherit ``EmbedderContract``.

The subclass gives a fixture ``embedder`` with an open ``Embedder``, of any scope, and marks itself with
the loop scope of that fixture.
"""

from __future__ import annotations

import asyncio

import numpy as np

from latent_core.domain.vector_types import Vector
from latent_core.models.embedding.picture import windows
from latent_core.models.embedding.port import Embedder

SAME = 1e-4
"""How far a vector's numbers may be from those of the same text in another run."""
TEXTS = [
    "The heat transfer to a blunt body in hypersonic flow.",
    "Heat transfer to blunt bodies at hypersonic speed.",
    "A recipe for sourdough bread with rye flour.",
    "x",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "东京 に 着きました。\n\nგამარჯობა! 🙂",
]


def _similarity(left: Vector, right: Vector) -> float:
    return float(left @ right)


class EmbedderContract:
    margin = 0.2
    """By which like texts are nearer than others, as a cosine."""

    async def test_every_text_gets_a_unit_vector_of_the_models_width(
        self, embedder: Embedder
    ) -> None:
        rows = await embedder.embed_documents(TEXTS)
        assert rows.shape == (len(TEXTS), embedder.model.dims)
        assert rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)

    async def test_no_texts_give_no_vectors(self, embedder: Embedder) -> None:
        assert (await embedder.embed_documents([])).shape == (0, embedder.model.dims)

    async def test_rows_come_in_the_order_of_the_texts_whatever_their_lengths(
        self, embedder: Embedder
    ) -> None:
        texts = [f"{TEXTS[n % 3]} Part {n}. " * (1 + n * 7 % 8) for n in range(24)]
        together = await embedder.embed_documents(texts)
        for index in (0, 7, 23):
            alone = await embedder.embed_documents([texts[index]])
            assert np.allclose(together[index], alone[0], atol=SAME)

    async def test_a_vector_does_not_depend_on_the_rest_of_its_batch(
        self, embedder: Embedder
    ) -> None:
        long = " ".join(TEXTS) * 10
        alone = await embedder.embed_documents([TEXTS[0]])
        in_batch = await embedder.embed_documents([long, TEXTS[0], "y"])
        assert np.allclose(alone[0], in_batch[1], atol=SAME)

    async def test_like_texts_are_nearer_than_unlike_ones(self, embedder: Embedder) -> None:
        rows = await embedder.embed_documents(TEXTS[:3])
        assert _similarity(rows[0], rows[1]) > _similarity(rows[0], rows[2]) + self.margin

    async def test_a_query_is_nearest_to_the_document_that_answers_it(
        self, embedder: Embedder
    ) -> None:
        rows = await embedder.embed_documents(TEXTS[:3])
        query = await embedder.embed_query("sourdough bread recipe")
        assert query.shape == (embedder.model.dims,)
        assert abs(_similarity(query, query) - 1.0) < 1e-5
        assert int(np.argmax(rows @ query)) == 2

    async def test_calls_side_by_side_do_not_mix_their_texts(self, embedder: Embedder) -> None:
        batches = [[f"{text} {n}" for text in TEXTS[:3]] for n in range(6)]
        together = await asyncio.gather(*(embedder.embed_documents(batch) for batch in batches))
        for batch, rows in zip(batches, together, strict=True):
            assert np.allclose(rows, await embedder.embed_documents(batch), atol=SAME)

    async def test_a_call_that_is_cancelled_leaves_the_embedder_in_order(
        self, embedder: Embedder
    ) -> None:
        task = asyncio.ensure_future(embedder.embed_documents(TEXTS * 10))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (await embedder.embed_documents(TEXTS)).shape == (len(TEXTS), embedder.model.dims)

    async def test_counts_are_those_of_the_offsets_and_are_never_cut(
        self, embedder: Embedder
    ) -> None:
        texts = [*TEXTS, "word " * (embedder.model.window + 50)]
        counts = embedder.tokenizer.count(texts)
        assert counts == [len(embedder.tokenizer.offsets(text)) for text in texts]
        assert counts[-1] > embedder.model.window

    async def test_offsets_are_in_order_and_within_the_text(self, embedder: Embedder) -> None:
        for text in TEXTS:
            last = 0
            for start, end in embedder.tokenizer.offsets(text):
                assert last <= start < end <= len(text)
                last = start

    async def test_a_text_longer_than_the_window_splits_into_windows(
        self, embedder: Embedder
    ) -> None:
        text = "".join(f"{TEXTS[n % len(TEXTS)]} " for n in range(90))
        parts = windows(text, embedder.tokenizer, embedder.model.window)
        assert "".join(parts) == text
        assert max(embedder.tokenizer.count(parts)) <= embedder.model.window
        assert (await embedder.embed_documents(parts)).shape[0] == len(parts)
