"""The child that renders text of documents: a line of JSON in, a line of JSON out, until its input ends.

Expressions of lexers and parsers can take minutes for a text that is made for it, and hold the interpreter meanwhile.
Here they hold no request: the parent ends a child that is late.
"""

from __future__ import annotations

import resource
import sys
from typing import Any, Final

import orjson

from latent_gateway.console.documents import markup

MEMORY_BYTES: Final = 1024**3
CPU_SECONDS: Final = 600


def rendered(block: dict[str, Any]) -> str:
    text, words = block["text"], block["words"]
    match block["kind"]:
        case "markdown":
            return markup.markdown(text, words)
        case "table":
            return markup.table(text, words)
        case _:
            return markup.code(text, block["name"], words)


def main() -> None:
    if sys.platform.startswith("linux"):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(orjson.dumps(rendered(orjson.loads(line))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
