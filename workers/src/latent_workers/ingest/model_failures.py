"""What a language model's failure means for the document, page or picture that it was shown."""

from __future__ import annotations

from latent_core.domain.errors import (
    ConnectionClosed,
    IngestFailed,
    LatentError,
    MalformedAnswer,
    UpstreamTimeout,
)
from latent_core.domain.job import ClaimedJob
from latent_core.domain.model_answer import AnswerRefused, Violation
from latent_core.models.llm.port import Answer, Stop
from latent_core.queue.requeue import counts_as_attempt, is_final


def fails_item(job: ClaimedJob, error: LatentError) -> bool:
    """Whether the document, page or picture fails with ``error``. Else the attempt ends with it: what the provider, its
    key or the budget is the cause of says nothing about the item, and a transient error is tried again until the last
    attempt."""
    if isinstance(error, IngestFailed | MalformedAnswer):
        return True
    if isinstance(error, UpstreamTimeout | ConnectionClosed):
        # The queue takes it for an outage if only such items are left, and would wait for a day.
        error.counts_as_attempt = True
    return error.transient and counts_as_attempt(error) and is_final(job, error)


def whole_text(answer: Answer, task: str) -> str:
    """The text of an answer that is complete. ``AnswerRefused`` if the model refused its ``task`` (``describe the page``),
    or was cut off."""
    if answer.stop is Stop.REFUSAL:
        raise AnswerRefused(Violation.REFUSAL, f"The model refused to {task}: {answer.text[:500]}")
    if answer.stop is Stop.LENGTH:
        raise AnswerRefused(
            Violation.TRUNCATED,
            f"The answer of the model was cut off after {answer.usage.output_tokens} tokens",
        )
    return answer.text
