"""Export a container to one file and import it again. A backup is an export that is kept.

- ``records``, ``writer``, ``reader``, ``batches``, ``verify``: the archive, a zstd-compressed tar that is written and
  read as a stream (docs/adr).
- ``requests``: jobs and their payloads.
- ``exporting``, ``export_batch``: write a container's documents into an archive.
- ``import_container``, ``selection``, ``import_rows``, ``import_commit``: import an archive's documents in steps.

An import into a new container keeps it tombstoned until the last step, so it becomes visible at once. A merge shows
each document when it is complete, as an ingest does. Each step assigns new generations (committed first), stores
vectors, then commits rows, postings and the cursor together. An interrupted step is repeated; in a visible container
the repetition uses new generations.
"""
