"""Shapes of the HTTP API: strict for requests, lenient for answers."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from latent_core.wire.jobs import JobAccepted, RequeueBody


def test_an_answer_with_a_field_of_a_newer_gateway_is_read() -> None:
    answer = JobAccepted.model_validate({"job_id": 7, "status": "queued", "queue_position": 3})

    assert answer.job_id == 7


def test_a_request_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="containr"):
        RequeueBody.model_validate({"container_id": "art", "containr": "art"})
