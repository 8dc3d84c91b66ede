"""For drivers of clients without a model: the scripted model of the tests says what to call next.

Runs in the client's own virtual environment, so it imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

SERVER = os.environ["TARGET_URL"]  # noqa: TID251 - outside of our code
TOKEN = os.environ["TARGET_TOKEN"]  # noqa: TID251 - as above
MODEL = os.environ["MODEL_URL"]  # noqa: TID251 - as above
MAX_CALLS = 50


class PlainScript:
    """``next`` answers the following call, and ``record`` keeps what the client made of its answer."""

    def __init__(self, tools: Sequence[str]) -> None:
        self._tools = list(tools)
        self._answers: list[dict[str, Any]] = []

    def next(self) -> tuple[str, dict[str, Any]] | None:
        if len(self._answers) >= MAX_CALLS:
            raise RuntimeError("the script does not end")
        body = json.dumps({"tools": self._tools, "answers": self._answers}).encode()
        request = Request(f"{MODEL}/plain", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=120) as answer:
            call = json.load(answer)
        return (call["name"], call["arguments"]) if call else None

    def record(self, content: Any, *, error: bool) -> None:
        self._answers.append({"content": content, "isError": error})
