"""Writes true summaries from the text in a prompt, in place of a language model: its most typical sentences, in its order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Protocol

import orjson

WORDS: Final = 250
"""Of the prose."""
_DOCUMENT: Final = re.compile(
    r"<document-(?P<nonce>[0-9a-f]+)>\nSource: (?P<source>[^\n]*)\nTitle: (?P<title>[^\n]*)\n\n(?P<text>.*)\n</document-(?P=nonce)>",
    re.DOTALL,
)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_SYMBOL: Final = re.compile(r"\b[A-Za-z_]\w*(?:\.\w+)*\(\)|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b")
_FILE: Final = re.compile(r"\b[\w-]+(?:/[\w.-]+)*\.(?:ts|tsx|js|py|md|css|yaml|json)\b")


class Prompt(Protocol):
    @property
    def text(self) -> str: ...


def write_summary(seen: Prompt) -> str:
    """For ``LanguageModelServer(answer=...)``."""
    found = _DOCUMENT.search(seen.text)
    if found is None:
        raise ValueError("the prompt has no document")
    return orjson.dumps(summary_of(found["title"], found["text"])).decode()


def summary_of(title: str, text: str, words: int = WORDS) -> dict[str, Any]:
    counts = Counter(map(str.lower, _WORD.findall(text)))
    topics = [word for word, _ in counts.most_common(5)] or ["text"]
    lead = title.strip() or text[:60]
    return {
        "product_tags": [],
        "key_topics": list(dict.fromkeys(_bounded([title.strip(), *topics])))[:6],
        "api_symbols": list(dict.fromkeys(_bounded(_SYMBOL.findall(text))))[:20],
        "related_files": list(dict.fromkeys(_bounded(_FILE.findall(text))))[:10],
        "suggested_queries": [
            f"What does {' '.join(lead.split())[:150]} say about {topics[0][:30]}?"
        ],
        "prose": _typical(text, counts, words),
    }


def _bounded(names: Sequence[str]) -> list[str]:
    return [name[:120] for name in names if name]


def _typical(text: str, counts: Counter[str], words: int) -> str:
    """The sentences with the most common words, the first ones preferred, until there are ``words``."""
    sentences = [one.strip() for one in _SENTENCE.split(text) if one.strip()]

    def weight(place: int) -> float:
        own = _WORD.findall(sentences[place].lower())
        return sum(counts[word] for word in own) / (len(own) + 5) * (1 + 1 / (1 + place))

    chosen: set[int] = set()
    total = 0
    for place in sorted(range(len(sentences)), key=lambda place: -weight(place)):
        length = len(sentences[place].split())
        if total + length <= words + 50:
            chosen.add(place)
            total += length
        if total >= words:
            break
    return " ".join(sentences[place] for place in sorted(chosen))
