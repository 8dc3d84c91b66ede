"""The job queue in Postgres: jobs are claimed, leased and fenced.

    queued ──claim──► running ──finish──► done
      ▲  │              │ │ └──fail─────► failed ─┐
      │  └──cancel──────┼─┴──cancel─────► cancelled ┤
      └──retry, release, requeue_with, lost lease ◄─┴─ admin.requeue

**The fence.** Every claim gets a ``claim_id`` that is never reused. Every write of a worker about its job
matches ``id``, ``claim_id`` and ``state = 'running'``. If no row matches, the lease is lost and the transaction
rolls back. So a worker that was frozen and wakes up changes nothing.

**What a queued job waits for** (``waits_for``):

- nothing (NULL): it is in line, by priority, then rank (fair between containers), then id;
- ``time``: it waits until ``run_at``, then goes to the end of its container's line. It gets its rank at that
  moment: with an older rank, jobs due together would overtake those of other containers; if delayed jobs held
  ranks in line, new jobs of the container would wait behind them;
- ``key``: a job with the same ``doc_key`` runs. A job is marked when it reaches the head of the line, so
  thousands of such jobs are examined once and not at every claim. Each claim checks which keys are free and puts
  one job per free key back in line, so no wake-up is needed.

**Attempts.** An error caused by the job itself counts as an attempt, and so does a lost lease: after
``max_attempts`` the job fails and stays as a dead letter. Other errors (``domain.errors``) do not count: the job
is paused with a capped backoff, for at most 24 hours, time in line excluded.

**Lock order.** A statement locks one job row, or several in id order. Only the claim takes the advisory lock of
a key, and it takes no lock after that. Enqueueing takes unique keys in ascending order and is the last
step of a transaction, after its documents: a finishing transaction locks job → … → new jobs.
Scans for work (claim, promote, park, beat, reap, retention) skip locked rows and never wait.
"""
