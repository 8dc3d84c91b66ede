"""What a child can be asked to do: name to ``module:function``, imported by the child when first asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final

from latent_workers.sandbox.frames import TaskOutput

Task = Callable[[dict[str, Any], Sequence[BinaryIO]], Iterator[TaskOutput]]
"""Arguments and read-only files in, outputs out one by one."""

TASKS: Final[Mapping[str, str]] = {
    "parse": "latent_workers.parse.task:parse",
    "records": "latent_workers.parse.task:records",
    "pdf_pages": "latent_workers.render.task:pdf_pages",
    "page_pdf": "latent_workers.render.task:page_pdf",
    "story_pages": "latent_workers.render.task:story_pages",
    "picture": "latent_workers.render.task:picture",
    "ocr_page": "latent_workers.ocr.task:page",
}
