"""Queued work in Postgres: claimed, leased, fenced (DESIGN §8).

    queued ──claim──► running ──finish──► done
      ▲  │              │ │ └──fail─────► failed ─┐
      │  └──cancel──────┼─┴──cancel─────► cancelled ┤
      └──retry, release, requeue_with, lost lease ◄─┴─ admin.requeue

**The fence.** Every claim takes a ``claim_id`` that is never used twice. Whatever a worker writes about
its job names it (``id``, ``claim_id``, ``state = 'running'``); no row matched means the lease is lost, and
the transaction it stands in rolls back. So a worker that was frozen and wakes changes nothing.

**Lanes.** Where a queued job stands:

- ``ready``: in line, by priority, then rank (fair between containers), then id;
- ``delayed``: not before ``run_at``; then it goes to the end of its container's line;
- ``waiting``: a job with the same ``doc_key`` runs. Moved here when its turn came, so that thousands of
  such jobs are looked at once and not at every claim; brought back, one a key, when the key is free.
  Nobody has to wake it: each claim looks which waiting keys are free;
- ``quarantine``: twice lost with its worker: runs only when its worker runs nothing else.

**Lock order.** One job row a statement, in id order where several; the claim alone takes the advisory
lock of a key, and nothing after it. Enqueueing takes unique keys in ascending order and is the last
thing a transaction does, after its documents: a finishing transaction locks job → … → new jobs.
Scans for work (claim, promote, park, beat, reap, retention) skip locked rows and never wait.
"""
