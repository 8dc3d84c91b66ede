"""How much one listing deletes, and in how many transactions."""

from __future__ import annotations

import pytest

from latent_gateway.api.ingest import DELETIONS_AT_ONCE, MOST_DELETIONS, deletions


@pytest.mark.parametrize("vanished", [0, 1, 500, 501, 5000, 5001, 200_000])
def test_a_listing_deletes_a_bounded_number_in_bounded_transactions(vanished: int) -> None:
    uris = [f"file:///many/{n}" for n in range(vanished)]
    batches = deletions(uris)
    assert [uri for batch in batches for uri in batch] == uris[:MOST_DELETIONS]
    assert all(0 < len(batch) <= DELETIONS_AT_ONCE for batch in batches)
    assert len(batches) <= MOST_DELETIONS // DELETIONS_AT_ONCE
