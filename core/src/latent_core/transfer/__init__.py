"""Containers out and in as one file: exports (a backup is an export that is kept) and imports.

``records`` · ``writer`` · ``reader`` · ``batches`` · ``verify`` the archive: a tar, compressed by zstd, written and read
as a stream (docs/adr) · ``requests`` the jobs and their payloads · ``exporting`` a container's documents into an
archive · ``import_container`` · ``import_choice`` · ``import_rows`` · ``import_commit`` an archive's documents into a
container, in steps.

A container that an import makes stands behind a tombstone until the last step: nothing of it is seen before all of
it is. A merge shows each document when it is whole, as an ingest does. A step gives documents fresh generations
(committed first), stores their vectors, then commits rows, postings and the cursor at once: one that was cut off
is done again, under other generations where others can see the container.
"""
