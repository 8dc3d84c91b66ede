"""What a language model gets of a picture, and the hash of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from secrets import token_hex
from typing import Final

import orjson

from latent_core.domain.caption import PROMPT, VERSION, json_schema
from latent_core.domain.errors import IngestFailed
from latent_core.models.llm.port import Completion, ImagePart, JsonSchema, TextPart

MAX_TOKENS: Final = 1_000
"""Of an answer."""
SECONDS: Final = 120.0
MAX_IMAGE_BYTES: Final = 16 * 1024 * 1024
MAX_CHARS: Final = 4_000
"""Of the text that was read in the picture: more adds nothing to a caption."""
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CaptionRequest:
    """A picture with what is known of it."""

    name: str
    text: str
    sha256: str
    media_type: str
    data: bytes

    @property
    def hash(self) -> str:
        """Of everything that the model gets except the prompt."""
        return hashlib.sha256(orjson.dumps([self.name, self.shown_text, self.sha256])).hexdigest()

    @property
    def shown_text(self) -> str:
        return self.text.strip()[:MAX_CHARS]

    def completion(self) -> Completion:
        """``IngestFailed`` with the reason ``too_large`` if the picture is over the limit."""
        if len(self.data) > MAX_IMAGE_BYTES:
            raise IngestFailed(
                f"The picture has {len(self.data) / MIB:.1f} MiB; at most {MAX_IMAGE_BYTES // MIB} MiB go to a language model",
                reason="too_large",
            )
        # In the markers, so that no text can contain the end of its own.
        marker = f"known-of-the-picture-{token_hex(12)}"
        known = f"<{marker}>\nFile: {self.name}\n{self.shown_text}\n</{marker}>"
        return Completion(
            system=prompt(),
            parts=[ImagePart(self.data, self.media_type), TextPart(known)],
            schema=JsonSchema("caption", VERSION, json_schema()),
            max_tokens=MAX_TOKENS,
            seconds=SECONDS,
        )


@cache
def prompt() -> str:
    return resources.files(__package__).joinpath("prompts", f"{PROMPT}.txt").read_text("utf-8")
