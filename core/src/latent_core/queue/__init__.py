"""Queued work in Postgres: claimed, leased, fenced (DESIGN §8).

    queued ──claim──► running ──finish──► done
      ▲  │              │ │ └──fail─────► failed ─┐
      │  └──cancel──────┼─┴──cancel─────► cancelled ┤
      └──retry, release, requeue_with, lost lease ◄─┴─ admin.requeue

**The fence.** Every claim takes a ``claim_id`` that is never used twice. Whatever a worker writes about
its job names it (``id``, ``claim_id``, ``state = 'running'``); no row matched means the lease is lost, and
the transaction it stands in rolls back. So a worker that was frozen and wakes changes nothing.

**What a queued job waits for** (``waits_for``):

- nothing (NULL): it is in line, by priority, then rank (fair between containers), then id;
- ``time``: not before ``run_at``; then it goes to the end of its container's line. ``run_at`` alone is not
  enough: its rank is that of the moment when it is due. With an older rank, jobs that are due together would pass those
  of other containers; with ranks of delayed jobs in line, new jobs of the container would wait behind them;
- ``key``: a job with the same ``doc_key`` runs. Marked when its turn came, so that thousands of such jobs are
  looked at once and not at every claim; brought back, one per key, when the key is free. Each claim looks which
  keys are free, so it needs no wake-up.

**Attempts.** An error that answers this very request counts as an attempt, and so does a lost lease: after
``max_attempts`` the job fails and stays as a dead letter. Errors that say nothing of the request do not count
(``domain.errors``): the job is paused with a capped backoff, for 24 hours at most. Time in line does not count to them.

**Lock order.** One job row a statement, in id order where several; the claim alone takes the advisory
lock of a key, and nothing after it. Enqueueing takes unique keys in ascending order and is the last
thing a transaction does, after its documents: a finishing transaction locks job → … → new jobs.
Scans for work (claim, promote, park, beat, reap, retention) skip locked rows and never wait.
"""
