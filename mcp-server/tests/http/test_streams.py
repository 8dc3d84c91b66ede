"""Event streams: how many, how often they look, and that they never fall silent for long."""

from __future__ import annotations

import pytest

from latent_core.domain.errors import RateLimited
from latent_gateway.api.sse import (
    MAX_SECONDS_BETWEEN_LOOKS,
    SECONDS_BETWEEN_LOOKS,
    SECONDS_OF_SILENCE,
    Rhythm,
)
from latent_gateway.auth.principal import Principal
from latent_gateway.context import StreamLimiter

ONE, ONE_AGAIN = Principal("agent:a", token_id=1), Principal("agent:a", token_id=2)
OTHER = Principal("agent:b")


def test_a_stream_over_the_limit_returns_retry_after_and_a_closed_one_frees_its_slot() -> None:
    streams = StreamLimiter(2)
    streams.take(ONE)
    streams.take(OTHER)
    with pytest.raises(RateLimited, match="2 event streams are open") as caught:
        streams.take(ONE)
    assert caught.value.details["retry_after"] > 0
    streams.give_back(OTHER)
    streams.take(ONE)


def test_one_principal_leaves_streams_to_others_whatever_tokens_it_has() -> None:
    streams = StreamLimiter(10, max_per_principal=2)
    streams.take(ONE)
    streams.take(ONE_AGAIN)
    with pytest.raises(RateLimited, match="2 of your event streams are open"):
        streams.take(ONE)
    streams.take(OTHER)
    streams.give_back(ONE_AGAIN)
    streams.take(ONE)
    for _ in range(3):
        streams.take(Principal.owner())


def test_looks_are_rarer_while_nothing_changes_and_soon_again_when_something_does() -> None:
    rhythm = Rhythm(0.0)
    pauses = []
    for second in range(4):
        rhythm.looked(float(second), changed=False)
        pauses.append(rhythm.pause)
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_SECONDS_BETWEEN_LOOKS
    rhythm.looked(5.0, changed=True)
    assert rhythm.pause == SECONDS_BETWEEN_LOOKS


def test_a_comment_is_due_after_every_stretch_of_silence() -> None:
    rhythm = Rhythm(0.0)
    due = [now for now in range(100) if rhythm.looked(float(now), changed=now == 20)]
    assert due == [15, 35, 50, 65, 80, 95]
    assert SECONDS_OF_SILENCE == 15.0
