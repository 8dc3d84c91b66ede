"""Write a dump of the newest revision with a few rows, which the upgrade test migrates (`make revision-dump`).

Run it before you write a new revision: the dump then holds the revision before it.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import psycopg

from latent_core.db.migrate import head_revision, migrate
from latent_core.domain.ids import chunk_id, content_hash, document_id
from latent_core.runtime.cluster import programs
from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.postgres import EmbeddedPostgres

DUMP: Final = Path(__file__).parent.parent / "tests" / "data" / "previous_revision.sql"
LAMP: Final = document_id("museum", "file:///museum/lamp.md")
TEXTS: Final = (
    "The lamp burns colza oil.",
    "Café, smørrebrød, 日本語.",
    "The lamp burns colza oil.",
)

MUSEUM: Final = """
INSERT INTO containers (id, manifest, etag)
VALUES ('museum', '{"id": "museum", "name": "Museum", "backup": {"cron": "0 3 * * *", "keep": 3}}', 'e1');
INSERT INTO spaces (container_id, embedder, version, dims, state)
VALUES ('museum', 'local', 'v1', 384, 'retired'), ('museum', 'local', 'v2', 384, 'live');
UPDATE containers SET live_space = (SELECT id FROM spaces WHERE state = 'live');
INSERT INTO chunk_no_counters VALUES ('museum', 3);
INSERT INTO container_languages VALUES ('museum', 'english');
INSERT INTO schedules VALUES ('museum', 'backup', '0 3 * * *', '2026-01-01T03:00:00Z');
INSERT INTO postings VALUES ('museum', 'lamp', 1, '\\x0000000002000000', '\\x0101', '\\x05000500');
INSERT INTO unmerged_postings VALUES ('museum', 'café', 2, '\\x01000000', '\\x01', '\\x0300');
INSERT INTO keyword_stats (container_id, live_chunks, live_length) VALUES ('museum', 3, 13);
INSERT INTO embedding_cache (content_hash, space, vector) VALUES (repeat('a', 64), 'local:v2', '\\x00ff');
INSERT INTO blobs (sha256, bytes, state) VALUES (repeat('b', 64), 54, 'present'), (repeat('c', 64), 999, 'present');
INSERT INTO uploads (container_id, sha256, filename, mime, bytes, principal)
VALUES ('museum', repeat('b', 64), 'lamp.md', 'text/markdown', 54, 'local:you');
INSERT INTO archives (kind, container_id, sha256, bytes, filename, totals)
VALUES ('backup', 'museum', repeat('c', 64), 999, 'museum-1.latent.tar.zst', '{"documents": 1}');
INSERT INTO tokens (sha256, principal, name, scopes, created_by)
VALUES (decode(repeat('d', 64), 'hex'), 'guide', 'reader', '{read}', 'local:you');
INSERT INTO audit (principal, action, container_id) VALUES ('local:you', 'container.create', 'museum');
"""

DOCUMENT: Final = """
INSERT INTO documents (id, container_id, uri, mime, source_type, title, sha256, bytes, meta, live_generation,
                       next_generation, live_chunks, fingerprint, language, source_mtime_ns, first_fetched_at,
                       fetched_at)
VALUES (%(id)s, 'museum', 'file:///museum/lamp.md', 'text/markdown', 'markdown', 'Lamp', repeat('b', 64), 54,
        '{"room": "Nørrebro", "year": 1887}', 1, 2, 3, 'f', 'english', 1700000000123456789, now(), now())
"""

CHUNK: Final = """
INSERT INTO chunks (doc_id, generation, position, id, container_id, chunk_no, source_type, block_type, text, embed_text,
                    heading_path, offset_start, offset_end, content_hash, token_count, windows, tsv, length,
                    provenance)
VALUES (%(doc)s, 1, %(at)s, %(id)s, 'museum', %(at)s, 'markdown', 'paragraph', %(text)s, %(text)s, '{Lamp}', %(at)s,
        %(at)s + 25, %(hash)s, 7, 1, 'lamp:1', 5, '{"handler": "markdown", "handler_version": "1"}')
"""

BELONGINGS: Final = """
INSERT INTO pages (doc_id, generation, page, image_sha256, text)
SELECT id, 1, 1, sha256, title FROM documents;
INSERT INTO blob_refs SELECT id, 1, 'original', 0, sha256, mime, 'lamp.md' FROM documents;
INSERT INTO signatures SELECT container_id, chunk_no, repeat('1', 64)::bit varying FROM chunks;
INSERT INTO duplicates VALUES ('museum', 0, '\\x00', NULL), ('museum', 2, '\\x00', 0);
INSERT INTO jobs (kind, container_id, doc_id, payload, state, principal, finished_at)
SELECT 'ingest', 'museum', d.id, '{"filename": "lamp.md"}', state, 'local:you', ended
FROM documents d, (VALUES ('done', now()), ('queued', NULL)) AS j (state, ended);
INSERT INTO job_events (job_id, event) SELECT id, 'queued' FROM jobs;
"""

NOISE: Final = re.compile(
    r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)?\n", re.MULTILINE
)
"""Lines that differ between server releases or runs."""


async def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="latent-dump-") as root,
        DataDirectory(Path(root) / "data") as folder,
    ):
        async with EmbeddedPostgres(folder.path) as postgres:
            await migrate(postgres.dsn)
            await asyncio.to_thread(fill, postgres.dsn)
            text = await asyncio.to_thread(dump, postgres.dsn, head_revision())
    DUMP.write_text(text, encoding="utf-8")
    print(f"{DUMP}: revision {head_revision()}, {len(text)} characters")
    return 0


def fill(dsn: str) -> None:
    """Insert rows into the tables with user data."""
    with psycopg.connect(dsn) as conn:
        conn.execute(MUSEUM.encode())
        conn.execute(DOCUMENT, {"id": LAMP})
        for at, text in enumerate(TEXTS):
            hashed = content_hash(text)
            identity = chunk_id(LAMP, hashed, TEXTS[:at].count(text))
            values = {"doc": LAMP, "at": at, "id": identity, "text": text, "hash": hashed}
            conn.execute(CHUNK, values)
        conn.execute(BELONGINGS.encode())


def dump(dsn: str, revision: str) -> str:
    """Schema and rows as statements that every supported server accepts."""
    done = subprocess.run(
        [
            str(programs() / "pg_dump"),
            *("--no-owner", "--no-privileges", "--column-inserts", "--rows-per-insert=100"),
            *("-d", dsn),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    head = f"-- Revision {revision}, written by scripts/dump_revision.py.\n"
    # Functions that use each other are dumped in the order of their names.
    return f"{head}SET check_function_bodies = false;\n{NOISE.sub('', done.stdout)}"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
