"""Where documents come from."""

from __future__ import annotations

from enum import StrEnum


class Origin(StrEnum):
    """Where the content of a document comes from."""

    PERSON = "person"
    """A note or conversation that a person added."""
    AGENT = "agent"
    """A note or conversation that an agent added."""
    WEB = "web"
    FILE = "file"
