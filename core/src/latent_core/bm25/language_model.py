"""How well a text fits each language, by the model of py3langid (139 languages, in the package, no network).

Its probabilities are calibrated over lengths of text, so that a prior can be combined with them: a paragraph decides
by itself, a title of three words hardly.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from latent_core.domain.text import language_named

SIMPLE: Final = "simple"
NO_LANGUAGE: Final = "zxx"
"""The model's label for numbers, markup and identifiers."""

VARIANTS: Final = {"arz": "arabic", "ary": "arabic", "pcm": "english", "ms": "indonesian"}
"""Labels of languages that have the words and endings of one with a stemmer."""

_COMMON: Final = (
    "ar az bg bn ca cs da de el en es et eu fa fi fr ga he hi hr hu hy id it ja ka ko lt lv mk ms nl no pl pt ro ru "
    "sk sl sq sr sv sw ta th tr uk ur vi zh"
)
COMMON: Final = frozenset(_COMMON.split())
RARE_SHARE: Final = 0.05
"""Share of documents in another language compared with one of ``COMMON``. The model otherwise takes every third
Spanish title for Galician."""
ENGLISH_SHARE: Final = 5.0
"""Without a container that says otherwise, a text of two words is rather English."""
KNOWN_DOCUMENTS: Final = 10
"""A container with this many chunks counts as much as the general shares."""
SHORT_LETTERS: Final = 100
"""Below this number of letters names decide, which can be of any language."""
MAX_KNOWN_SHARE: Final = 0.6
MAX_KNOWN_SHARE_SHORT: Final = 0.98
"""A document in a language that its container does not have yet must remain possible."""


def best_language(text: str, counts: Mapping[str, int], declared: str | None = None) -> str:
    """The name of the most probable language of ``text``, ``simple`` for one without a stemmer.

    ``counts``: chunks of the container by language. ``declared``: the language that the source declares.
    """
    short = sum(map(str.isalpha, text)) < SHORT_LETTERS
    shares = _shares(counts, declared, MAX_KNOWN_SHARE_SHORT if short else MAX_KNOWN_SHARE)
    likelihoods = dict(_model().rank(text))
    names = _names()
    best = names[max(names, key=lambda label: likelihoods[label] * shares[label])]
    if best == SIMPLE and declared is not None and declared not in _totals():
        return declared  # the model does not know it
    return best


def _shares(
    counts: Mapping[str, int], declared: str | None, max_known_share: float
) -> dict[str, float]:
    """The expected share of each label before the text is read."""
    shares = _general_shares()
    total = sum(counts.values())
    if total:
        weight = min(total / (total + KNOWN_DOCUMENTS), max_known_share)
        known = {name: count / total for name, count in counts.items()}
        shares = _mixed(shares, known, weight)
    if declared is not None:
        shares = _mixed(shares, {declared: 1.0}, 0.5)
    return shares


def _mixed(
    shares: Mapping[str, float], by_name: Mapping[str, float], weight: float
) -> dict[str, float]:
    """``weight`` of the shares follow ``by_name``, the others ``shares``."""
    names, general, totals = _names(), _general_shares(), _totals()
    return {
        label: (1 - weight) * share
        + weight * by_name.get(name := names[label], 0.0) * general[label] / totals[name]
        for label, share in shares.items()
    }


_loading: Final = threading.Lock()


def _model() -> Any:
    with _loading:
        return _loaded()


@cache
def _loaded() -> Any:
    # 75 MB of memory and a second, only in processes that ingest.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _names() -> dict[str, str]:
    """The language's name of each label of the model."""
    return {label: _name(label) for label in _model().labels if label != NO_LANGUAGE}


def _name(label: str) -> str:
    try:
        return VARIANTS.get(label) or language_named(label)
    except ValueError:
        return SIMPLE


@cache
def _general_shares() -> dict[str, float]:
    weights = {label: 1.0 if label in COMMON else RARE_SHARE for label in _names()}
    weights["en"] = ENGLISH_SHARE
    total = sum(weights.values())
    return {label: weight / total for label, weight in weights.items()}


@cache
def _totals() -> dict[str, float]:
    """The general share of each name: several labels have one name."""
    totals: dict[str, float] = {}
    for label, share in _general_shares().items():
        totals[_names()[label]] = totals.get(_names()[label], 0.0) + share
    return totals
