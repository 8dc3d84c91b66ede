"""Import: an archive's documents, taken into a container in steps, each a transaction (DESIGN §7.5).

A container that an import makes stands behind a tombstone until the last step: nothing of it is seen before all of
it is. A merge shows each document when it is whole, as an ingest does. A step gives documents fresh generations
(committed first), stores their vectors, then commits rows, postings and the cursor at once: one that was cut off
is done again, under other generations where others can see the container.

``payload`` what the job carries · ``container`` what takes the documents in · ``choice`` which of them are taken ·
``step`` those of one transaction · ``vectors`` · ``drafts`` and ``tables`` their rows · ``publication`` the commit.
"""
