"""On which page a line of a text stands, by the marks that a person sees on the pages' images.

Pages of code number their lines in the margin; in Markdown each ``---`` is a rule across the page. Both are counted in
the pixels, so that the answer owes nothing to what the product knows of its own pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

DARK: Final = 200
MARGIN: Final = (0.065, 0.109)
"""The line numbers: from and to, as shares of the page's width."""
FOOT: Final = 0.935
"""The footer begins at this share of the page's height."""
RULE_WIDTH: Final = 0.8
"""A rule is dark along this share of the width."""
THEMATIC_BREAK: Final = re.compile(r"^---$", re.MULTILINE)


def numbered_lines(image: Image.Image) -> int:
    """How many line numbers stand in the margin."""
    dark = _dark(image)
    left, right = (round(share * dark.shape[1]) for share in MARGIN)
    return _runs(np.asarray(dark[: round(FOOT * dark.shape[0]), left:right].any(axis=1)))


def rules(image: Image.Image) -> int:
    """How many lines run across the page."""
    dark = _dark(image)
    return _runs(np.asarray(dark.mean(axis=1) > RULE_WIDTH))


def pages_of_code(line: int, images: Sequence[Image.Image]) -> range:
    """The page, from 1, whose margin has the number of this line."""
    last = accumulate(numbered_lines(image) for image in images)
    page = next(page for page, number in enumerate(last, start=1) if line <= number)
    return range(page, page + 1)


def pages_of_markdown(text: str, line: int, images: Sequence[Image.Image]) -> range:
    """The pages of the section, between two rules, in which the line stands: one, unless a page ends in it."""
    before = len(THEMATIC_BREAK.findall("\n".join(text.split("\n")[: line - 1])))
    pages = [page for page, image in enumerate(images, start=1) for _ in range(rules(image))]
    if len(pages) != len(THEMATIC_BREAK.findall(text)):
        raise ValueError(f"{len(pages)} rules on the pages, another number in the text")
    return range((1, *pages)[before], (*pages, len(images))[before] + 1)


def _dark(image: Image.Image) -> NDArray[np.bool_]:
    grey: NDArray[Any] = np.asarray(image.convert("L"))
    return np.asarray(grey < DARK)


def _runs(marked: NDArray[np.bool_]) -> int:
    """How many runs of marked rows there are."""
    return int((marked & ~np.concatenate(([False], marked[:-1]))).sum())
