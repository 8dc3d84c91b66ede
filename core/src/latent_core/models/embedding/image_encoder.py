"""The picture side of a model of texts and pictures: bytes of pictures in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from latent_core.domain.errors import Invalid, Unavailable
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.port import unit_rows
from latent_core.models.embedding.reference import Agreement
from latent_core.models.onnx.device import Device
from latent_core.models.onnx.folder import ImageSide
from latent_core.models.onnx.session import RUN_ERRORS, open_session

_PIXELS = "pixel_values"
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class ImageEncoder:
    """Blocking and thread-safe: each call runs on its caller's thread."""

    def __init__(
        self,
        folder: Path,
        side: ImageSide,
        *,
        name: str,
        dims: int,
        threads: int,
        device: Device = Device.CPU,
    ) -> None:
        """Load the model of ``folder``; each call uses ``threads``. ``Invalid`` if it cannot be loaded."""
        self._dims = dims
        self._session = open_session(folder / side.model, name=name, threads=threads, device=device)
        self.device = device
        self.agreement: Agreement | None = None
        self._name = name
        self._side = side
        (given,) = self._session.get_inputs()
        if given.name != _PIXELS or given.type not in _TYPES:
            raise Invalid(
                f"the picture model of {name} has the input {given.name} of {given.type}; expected is {_PIXELS} of"
                " floats"
            )
        self._type = _TYPES[given.type]

    def encode_images(self, images: Sequence[bytes]) -> Matrix:
        """One unit row per picture (PNG, JPEG, WebP); ``Invalid`` for one that cannot be read."""
        pixels = np.stack([self._side.preprocessing.pixels(image) for image in images])
        try:
            (output,) = self._session.run([self._side.output], {_PIXELS: pixels.astype(self._type)})
        except RUN_ERRORS as exc:
            raise Unavailable(f"{self._name} could not embed a picture: {exc}") from exc
        rows = np.asarray(output, np.float32)
        if rows.ndim == 3:
            rows = rows[:, 0]
        if rows.ndim != 2:
            raise Invalid(
                f"the picture model of {self._name} returns {rows.ndim} dimensions, not 2 or 3"
            )
        if rows.shape[1] != self._dims:
            raise Invalid(
                f"{self._name} gives pictures {rows.shape[1]} dimensions, but texts {self._dims}: they are no pair"
            )
        return unit_rows(rows, self._name)
