"""A source: a folder that is synced to the documents below ``file:///<root>/``, and what protects those documents."""

from __future__ import annotations

from typing import Final

MAX_ROOT_CHARS: Final = 255
NAMESAKE: Final = "~"
"""Separates a name from its number."""
MAX_NAMESAKES: Final = 1_000
"""Folders of one name in one container."""
DELETIONS_WITHOUT_CONSENT: Final = 20
SHARE_WITHOUT_CONSENT: Final = 0.3
"""A sync deletes more than both only if it is allowed to."""
SAME_SHARE: Final = 0.8
"""Share of equal hashes from which a folder counts as the one that a source was synced from."""


def prefix_of(root: str) -> str:
    """What the uris of a source begin with."""
    return f"file:///{root}/"


def numbered(name: str, number: int) -> str:
    """The root of the ``number``-th folder of a name: ``notes``, ``notes~2``, ``notes~3``."""
    return name if number == 1 else f"{name}{NAMESAKE}{number}"


def needs_consent(vanished: int, documents: int) -> bool:
    """Whether deleting ``vanished`` of ``documents`` needs a person's consent."""
    return vanished > DELETIONS_WITHOUT_CONSENT and vanished > SHARE_WITHOUT_CONSENT * documents


def is_same_folder(same: int, sample: int, files: int, documents: int) -> bool:
    """Whether a folder of ``files`` files has the content of a source with ``documents`` documents.

    ``same`` of the ``sample`` files whose hashes were compared are among the documents.
    """
    if not (sample and documents):
        return False
    return same / sample * files >= SAME_SHARE * max(files, documents)
