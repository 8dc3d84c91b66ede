"""rapidocr, for machines without Tesseract: its wheel contains its models; it is slower and larger."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
from PIL import Image

from latent_workers.ocr.drawing import PageScan
from latent_workers.ocr.words import Box, OcrText, in_order, placement, reading_of

_TALL: Final = 1.5
"""A box that is this many times taller than wide contains a rotated line."""
_SURE: Final = 0.8
"""Confidence of a page below which it is also tried upside down."""


def read(drawn: PageScan) -> OcrText:
    image, quarters = drawn.image, 0
    boxes = list(_boxes(image))
    if sum(map(_is_tall, boxes)) * 2 > len(boxes):
        image, quarters = image.transpose(Image.Transpose.ROTATE_90), 1
        boxes = list(_boxes(image))
    reading = reading_of(in_order(boxes), placement(image.size, quarters))
    if not boxes or reading.confidence >= _SURE:
        return reading
    turned = list(_boxes(image.transpose(Image.Transpose.ROTATE_180)))
    other = reading_of(in_order(turned), placement(image.size, quarters + 2))
    return max(reading, other, key=lambda one: one.confidence)


@lru_cache(maxsize=1)
def _engine() -> Any:
    """Loaded once per child."""
    from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.log_level": "critical",
            # It would turn lines one by one, and leave a page on its head read from its end.
            "Global.use_cls": False,
            "EngineConfig.onnxruntime.intra_op_num_threads": 2,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "EngineConfig.onnxruntime.enable_cpu_mem_arena": False,
        }
    )


def _boxes(image: Image.Image) -> Iterator[Box]:
    found = _engine()(np.asarray(image.convert("RGB")))
    if found.boxes is None or found.txts is None or found.scores is None:
        return
    for corners, text, score in zip(found.boxes, found.txts, found.scores, strict=True):
        xs, ys = [float(x) for x, _ in corners], [float(y) for _, y in corners]
        if words := " ".join(text.split()):
            yield Box(min(xs), min(ys), max(xs), max(ys), words, float(score))


def _is_tall(box: Box) -> bool:
    return box.bottom - box.top > _TALL * (box.right - box.left)
