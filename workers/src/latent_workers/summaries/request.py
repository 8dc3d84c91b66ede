"""The request for a summary, and the second one, which shows the model what was wrong with its first answer."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from secrets import token_hex
from typing import Final

import orjson

from latent_core.domain.summary import SUMMARY_VERSION, summary_schema
from latent_core.models.llm.port import Completion, JsonSchema, TextPart
from latent_workers.summaries.material import SummaryMaterial

PROMPT: Final = "summary-1"
"""The file of the prompt; its name is the version."""
MAX_TOKENS: Final = 4_000
"""Of an answer."""
SECONDS: Final = 180.0
MAX_SHOWN: Final = 16_000
"""Characters of a refused answer that the model gets back."""


def completion(
    material: SummaryMaterial, refused: str | None = None, why: str | None = None
) -> Completion:
    """``refused``: the model's first answer, which ``why`` says is wrong."""
    # Unguessable, so that no text can contain the end of its own.
    nonce = token_hex(12)
    parts = [
        TextPart(
            f"<document-{nonce}>\nSource: {material.source}\nTitle: {material.title}\n\n{material.text}\n</document-{nonce}>"
        )
    ]
    if refused is not None:
        parts.append(
            TextPart(
                f"<answer-{nonce}>\n{refused[:MAX_SHOWN]}\n</answer-{nonce}>\nThis was your answer. It was refused: {why} "
                "Answer again, with the whole JSON object."
            )
        )
    return Completion(
        system=prompt(),
        parts=parts,
        schema=JsonSchema("summary", SUMMARY_VERSION, summary_schema()),
        max_tokens=MAX_TOKENS,
        seconds=SECONDS,
    )


def hash_of(material: SummaryMaterial, refused: str | None = None, why: str | None = None) -> str:
    """Of everything in a request, except prompt and markers."""
    if refused is None:
        return material.hash
    return hashlib.sha256(orjson.dumps([material.hash, refused, why])).hexdigest()


@cache
def prompt() -> str:
    return resources.files(__package__).joinpath("prompts", f"{PROMPT}.txt").read_text("utf-8")
