"""What servers answer, in whichever of the shapes that are in use, as one score a text.

``{"results": [{"index", "relevance_score"}]}`` (the contract, Cohere, Jina, vLLM), the same under ``data``
(Voyage), a bare list with ``score`` (TEI), or ``{"scores": [...]}`` in the order of the texts (the contract).
All of them are read whatever the dialect of the request, since proxies translate. What is not one number
for each text is refused whole: half an order is worse than the one that stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from latent_core.domain.errors import Invalid

_LISTS: Final = ("results", "data")
_SCORES: Final = ("relevance_score", "score")


def read_scores(answer: Any, texts: int, name: str) -> list[float]:
    """The scores of an answer, in the order of the texts; ``Invalid`` says what is wrong with it."""
    aligned = answer.get("scores") if isinstance(answer, dict) else None
    if isinstance(aligned, list):
        _check_count(len(aligned), texts, name)
        return [_number(score, name) for score in aligned]
    items = _items(answer, name)
    _check_count(len(items), texts, name)
    scores = [math.nan] * texts
    for index, score in _indexed(items, name):
        if not 0 <= index < texts:
            raise Invalid(f"{name} answered a score for text {index} of {texts}, counted from 0")
        if not math.isnan(scores[index]):
            raise Invalid(f"{name} answered two scores for text {index}")
        scores[index] = score
    return scores


def _items(answer: Any, name: str) -> Sequence[Any]:
    if isinstance(answer, list):
        return answer
    if isinstance(answer, dict):
        for key in _LISTS:
            if isinstance(items := answer.get(key), list):
                return items
    raise Invalid(
        f"{name} answered neither 'results' nor 'scores': check LLC_RERANK_API_URL and LLC_RERANK_DIALECT"
    )


def _check_count(found: int, texts: int, name: str) -> None:
    if found != texts:
        raise Invalid(f"{name} answered {found} scores for {texts} texts")


def _indexed(items: Sequence[Any], name: str) -> Iterator[tuple[int, float]]:
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        if not isinstance(index, int) or isinstance(index, bool):
            raise Invalid(f"{name} answered a result without the index of its text")
        raw_score = next((item[key] for key in _SCORES if key in item), None)
        yield index, _number(raw_score, name)


def _number(value: Any, name: str) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number):
                return number
    except OverflowError:  # an integer of a thousand digits
        pass
    raise Invalid(f"{name} answered a score that is not a finite number")
