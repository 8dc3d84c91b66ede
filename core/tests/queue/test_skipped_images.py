"""When a job goes on without a picture."""

from __future__ import annotations

import pytest

from latent_core.domain.errors import (
    IngestFailed,
    Invalid,
    LatentError,
    Misconfigured,
    NotFound,
    OutOfSpace,
    RateLimited,
    ServiceUnreachable,
    TooLarge,
    Unavailable,
)
from latent_core.domain.findings import PLAINLY, RefusedInputs, is_about_the_picture


@pytest.mark.parametrize("kind", [IngestFailed, Invalid, NotFound, TooLarge])
def test_what_is_refused_or_lost_is_about_the_picture(kind: type[LatentError]) -> None:
    assert is_about_the_picture(kind("no"), last_attempt=False)


@pytest.mark.parametrize("kind", [ServiceUnreachable, Misconfigured, OutOfSpace, RateLimited])
def test_trouble_of_the_service_is_never_about_a_picture(kind: type[LatentError]) -> None:
    assert not is_about_the_picture(kind("no"), last_attempt=True)


def test_a_server_that_fails_on_it_is_believed_only_when_no_attempt_follows() -> None:
    assert not is_about_the_picture(Unavailable("500"), last_attempt=False)
    assert is_about_the_picture(Unavailable("500"), last_attempt=True)


def test_the_first_refused_ones_fail_the_job_when_none_was_taken() -> None:
    refused_inputs = RefusedInputs()
    for n in range(PLAINLY - 1):
        refused_inputs.add(str(n), IngestFailed("too large (413)"))
    with pytest.raises(IngestFailed, match=rf"none of {PLAINLY} pictures .* too large \(413\)"):
        refused_inputs.add("one more", IngestFailed("no"))


def test_one_that_was_taken_tells_that_the_others_are_to_blame_themselves() -> None:
    refused_inputs = RefusedInputs()
    refused_inputs.take(1)
    for n in range(10 * PLAINLY):
        refused_inputs.add(str(n), IngestFailed("no"))
    refused_inputs.check(others=0)
    assert len(refused_inputs) == 10 * PLAINLY


@pytest.mark.parametrize(("lost", "others", "fails"), [(1, 3, False), (1, 0, True), (2, 3, True)])
def test_a_document_lives_without_its_only_picture_if_it_has_words(
    lost: int, others: int, fails: bool
) -> None:
    refused_inputs = RefusedInputs()
    for n in range(lost):
        refused_inputs.add(str(n), NotFound("blob is not stored"))
    if not fails:
        refused_inputs.check(others=others)
        return
    with pytest.raises(IngestFailed, match="blob is not stored"):
        refused_inputs.check(others=others)


def test_an_error_that_is_not_about_the_picture_is_raised_as_it_is() -> None:
    trouble = ServiceUnreachable("gone")
    with pytest.raises(ServiceUnreachable) as raised:
        RefusedInputs(last_attempt=True).add("a", trouble)
    assert raised.value is trouble
