"""Opens the model of a folder on the first device that computes what it must (docs/adr/0052)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np

from latent_core.domain.errors import IngestFailed, Invalid, LatentError
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.encoder import Encoder
from latent_core.models.embedding.image_encoder import ImageEncoder
from latent_core.models.embedding.local import Prompts
from latent_core.models.embedding.reference import (
    TEXTS,
    Agreement,
    Reference,
    lowest_cosine,
    reference_vectors,
)
from latent_core.models.embedding.tokens import ModelTokenizer
from latent_core.models.onnx.device import Device, devices
from latent_core.models.onnx.folder import ModelDescription
from latent_core.models.onnx.graph import ModelPrecision
from latent_core.models.onnx.pixels import drawn_picture
from latent_core.models.onnx.session import note_unused
from latent_core.models.store.record import SAME, ReferenceVectors

_QUANTISED: Final = 0.98
"""Cosine that is needed, as for ``local-int8``: integer arithmetic differs with the processor."""
_NEEDED: Final = {ModelPrecision.INT8: _QUANTISED, ModelPrecision.INT4: _QUANTISED}
"""By precision; of others ``SAME``."""

Opened = TypeVar("Opened", Encoder, ImageEncoder)


@dataclass(frozen=True, slots=True)
class FolderLoader:
    """Each call blocks and opens new sessions."""

    name: str
    described: ModelDescription
    kept: int
    """Dimensions."""
    tokenizer: ModelTokenizer
    prompts: Prompts
    window: int
    reference: Reference | None = None

    def texts(self, threads: int) -> Encoder:
        stored = self.reference.texts if self.reference else None
        return self._placed(partial(self._open_texts, threads), self._of_texts, stored)

    def pictures(self, threads: int) -> ImageEncoder:
        stored = self.reference.picture if self.reference else None
        return self._placed(partial(self._open_pictures, threads), self._of_picture, stored)

    def computed(self, threads: int) -> ReferenceVectors:
        """What the model computes on the CPU."""
        texts = self._of_texts(self._open_texts(threads, Device.CPU))
        picture = None
        if self.described.images is not None:
            picture = self._of_picture(self._open_pictures(threads, Device.CPU))
        return reference_vectors(texts, picture)

    def _placed(
        self,
        open_on: Callable[[Device], Opened],
        probe: Callable[[Opened], Matrix],
        stored: Matrix | None,
    ) -> Opened:
        on_cpu: Opened | None = None
        expected = stored
        for device in devices():
            if device is Device.CPU:
                break
            try:
                opened = open_on(device)
                if expected is None:
                    on_cpu = open_on(Device.CPU)
                    expected = probe(on_cpu)
                opened.agreement = self._agreement(opened, probe, expected)
                if opened.agreement.is_given:
                    return opened
                reason = f"its vectors differ from those of the CPU (cosine {opened.agreement.lowest:.5f})"
            except LatentError as exc:
                reason = exc.message
            note_unused(self.name, device, reason)
        opened = on_cpu or open_on(Device.CPU)
        if stored is not None:
            opened.agreement = self._agreement(opened, probe, stored)
        return opened

    def _agreement(
        self, opened: Opened, probe: Callable[[Opened], Matrix], expected: Matrix
    ) -> Agreement:
        try:
            rows = probe(opened)
        except IngestFailed:  # not a number
            rows = None
        needed = _NEEDED.get(self.described.precision, SAME)
        remedy = self.reference.remedy if self.reference else ""
        return Agreement(self.name, lowest_cosine(rows, expected), needed, remedy)

    def _open_texts(self, threads: int, device: Device) -> Encoder:
        side, dims = self.described.text, self.described.dims
        assert side is not None
        encoder = Encoder(
            self.described.folder, side, name=self.name, threads=threads, device=device
        )
        tokens = side.padding.length if side.padding else 1
        returned = encoder.encode([[side.pad_id] * tokens]).shape[1]
        if returned != dims:
            raise Invalid(
                f"{self.name}: the configuration says {dims} dimensions, but the model returns {returned}"
            )
        return encoder.with_dims(self.kept)

    def _open_pictures(self, threads: int, device: Device) -> ImageEncoder:
        side, dims = self.described.images, self.described.dims
        assert side is not None
        assert dims is not None
        return ImageEncoder(
            self.described.folder,
            side,
            name=self.name,
            dims=dims,
            threads=threads,
            device=device,
        )

    def _of_texts(self, encoder: Encoder) -> Matrix:
        """Text by text, since other texts of a run change what quantised weights compute."""
        texts = [self.prompts.document + text for text in TEXTS]
        return np.concatenate(
            [encoder.encode([ids]) for ids in self.tokenizer.ids(texts, self.window)]
        )

    def _of_picture(self, encoder: ImageEncoder) -> Matrix:
        return encoder.encode_images([drawn_picture()])
