"""Pictures as a picture encoder expects them: resized, cut and scaled as ``preprocessor_config.json`` says, by Pillow."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from latent_core.domain.errors import Invalid
from latent_core.models.onnx.files import PREPROCESSOR

MAX_SIDE: Final = 1024
"""Of the picture that the model gets."""
FORMATS: Final = ("PNG", "JPEG", "WEBP")
MAX_PIXELS: Final = 50_000_000
"""Of a picture before it is resized."""
_RESAMPLE: Final = tuple(Image.Resampling)
_OTHER: Final = (
    "do_pad",
    "do_thumbnail",
    "do_align_long_axis",
    "do_image_splitting",
    "do_pan_and_scan",
)
_BY_PATCHES: Final = ("max_num_patches", "max_pixels", "min_pixels")
_SQUARE: Final = ("ViT", "Siglip", "DeiT", "Bit")
"""Processors for which one number is both sides; for others it is the shorter side."""

Pixels = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PreprocessingSteps:
    """Sizes are (height, width)."""

    size: tuple[int, int] | None
    shortest: int | None
    """The shorter side after resizing, which keeps the proportions; instead of ``size``."""
    crop: tuple[int, int] | None
    resample: Image.Resampling
    factor: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def pixels(self, image: bytes) -> Pixels:
        """(3, height, width). ``Invalid`` if it is no picture that can be read."""
        picture = _opened(image)
        if self.shortest is not None:
            picture = picture.resize(_scaled(picture.size, self.shortest), self.resample)
        elif self.size is not None:
            picture = picture.resize(self.size[::-1], self.resample)
        if self.crop is not None:
            height, width = self.crop
            left, top = (picture.width - width) // 2, (picture.height - height) // 2
            picture = picture.crop((left, top, left + width, top + height))
        values: Pixels = np.asarray(picture, np.float32) * np.float32(self.factor)
        values -= np.array(self.mean, np.float32)
        values /= np.array(self.std, np.float32)
        return np.ascontiguousarray(values.transpose(2, 0, 1), np.float32)


@cache
def drawn_picture() -> bytes:
    """Colours that change from side to side, with a dark frame in the middle; PNG keeps them exactly."""
    height, width = 96, 128
    values = np.zeros((height, width, 3), np.uint8)
    values[:, :, 0] = np.arange(width, dtype=np.uint8)[None, :] * 2
    values[:, :, 1] = np.arange(height, dtype=np.uint8)[:, None] * 2
    values[:, :, 2] = 200
    values[30:60, 40:90] = (20, 30, 10)
    values[36:54, 46:84] = (240, 240, 230)
    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG")
    return out.getvalue()


def preprocessing_of(config: Mapping[str, Any]) -> PreprocessingSteps:
    """``Invalid`` names a key that is not supported."""
    for key in _OTHER:
        if config.get(key) is True:
            raise Invalid(f"{PREPROCESSOR} sets {key}, which is not supported")
    for key in _BY_PATCHES:
        if config.get(key):
            raise Invalid(
                f"{PREPROCESSOR} sets {key}: models of any picture size are not supported"
            )
    size, shortest = _size(config) if config.get("do_resize", True) else (None, None)
    crop = _sides(config, "crop_size") if config.get("do_center_crop", False) else None
    fixed = crop or size
    if fixed is None or not all(0 < side <= MAX_SIDE for side in (*fixed, shortest or 1)):
        raise Invalid(
            f"{PREPROCESSOR} gives no picture of a fixed size of at most {MAX_SIDE} pixels"
        )
    resample = config.get("resample", Image.Resampling.BICUBIC)
    if resample not in _RESAMPLE:
        raise Invalid(f"{PREPROCESSOR} has the resample {resample!r}; known are 0 to 5")
    normalised = config.get("do_normalize", True)
    return PreprocessingSteps(
        size=size,
        shortest=shortest,
        crop=crop,
        resample=Image.Resampling(resample),
        factor=_number(config, "rescale_factor", 1 / 255)
        if config.get("do_rescale", True)
        else 1.0,
        mean=_channels(config, "image_mean") if normalised else (0.0,) * 3,
        std=_channels(config, "image_std") if normalised else (1.0,) * 3,
    )


def _size(config: Mapping[str, Any]) -> tuple[tuple[int, int] | None, int | None]:
    stated = config.get("size")
    kind = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
    if isinstance(stated, dict) and set(stated) == {"shortest_edge"}:
        stated = stated["shortest_edge"]
    elif isinstance(stated, dict) or kind.startswith(_SQUARE):
        return _sides(config, "size"), None
    if isinstance(stated, bool) or not isinstance(stated, int):
        raise Invalid(
            f"{PREPROCESSOR} has the size {stated!r}; expected are height and width, or shortest_edge"
        )
    return None, stated


def _sides(config: Mapping[str, Any], key: str) -> tuple[int, int]:
    stated = config.get(key)
    sides = (stated, stated)
    if isinstance(stated, dict):
        edge = stated.get("shortest_edge")
        sides = (stated.get("height", edge), stated.get("width", edge))
    height, width = sides
    if not isinstance(height, int) or not isinstance(width, int):
        raise Invalid(f"{PREPROCESSOR} has the {key} {stated!r}; expected are height and width")
    return height, width


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise Invalid(f"{PREPROCESSOR} has the {key} {value!r}; expected is a number above 0")
    return float(value)


def _channels(config: Mapping[str, Any], key: str) -> tuple[float, ...]:
    stated = config.get(key)
    if not isinstance(stated, list) or len(stated) != 3:
        raise Invalid(f"{PREPROCESSOR} has the {key} {stated!r}; expected are three numbers")
    numbers = tuple(float(n) if isinstance(n, int | float) else float("nan") for n in stated)
    if not np.isfinite(numbers).all() or (key == "image_std" and min(numbers) <= 0):
        raise Invalid(f"{PREPROCESSOR} has the {key} {stated!r}; expected are three numbers")
    return numbers


def _scaled(size: tuple[int, int], shortest: int) -> tuple[int, int]:
    """Width and height with the shorter side ``shortest``."""
    width, height = size
    long = int(shortest * max(size) / min(size))
    if long > MAX_SIDE * 64:
        raise Invalid(f"a picture of {width} x {height} pixels is too narrow to embed")
    return (shortest, long) if width <= height else (long, shortest)


def _opened(image: bytes) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(image), formats=FORMATS)
            if opened.width * opened.height > MAX_PIXELS:
                raise Invalid(
                    f"a picture of {opened.width} x {opened.height} pixels is too large to embed"
                )
            return opened.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as exc:
        raise Invalid(f"this picture cannot be read: {exc}") from exc
