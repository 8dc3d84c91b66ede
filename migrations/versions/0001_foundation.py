"""The foundation: containers, documents, chunks, keywords, pages, blobs, jobs.

Plain SQL that can be pasted into psql (DESIGN §6). Timestamps are timestamptz, ids of documents and
chunks are deterministic (latent_core.domain.ids).

Revision ID: 0001
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

CONTAINERS = """
CREATE TABLE containers (
    id          text PRIMARY KEY,
    manifest    jsonb NOT NULL,
    etag        text NOT NULL,
    state       text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'readonly', 'archived')),
    live_space  bigint,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    deleted_at  timestamptz              -- tombstone: invisible at once, the row goes when its purge is done
);

CREATE TABLE spaces (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    embedder     text NOT NULL,
    version      text NOT NULL,
    dims         integer NOT NULL CHECK (dims > 0),
    state        text NOT NULL DEFAULT 'building' CHECK (state IN ('building', 'live', 'retired')),
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX spaces_one_live ON spaces (container_id) WHERE state = 'live';
ALTER TABLE containers ADD FOREIGN KEY (live_space) REFERENCES spaces (id) DEFERRABLE INITIALLY DEFERRED;

-- Languages that documents of a container were analysed in: a query is analysed in each of them.
CREATE TABLE container_languages (
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    language     text NOT NULL,
    PRIMARY KEY (container_id, language)
);

-- The next ord of each container: a row of its own, since every ingest takes from it.
CREATE TABLE ord_counters (
    container_id text PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    next_ord     bigint NOT NULL DEFAULT 0
);
"""

DOCUMENTS = """
CREATE TABLE documents (
    id                 uuid PRIMARY KEY,
    container_id       text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    uri                text NOT NULL,
    mime               text NOT NULL DEFAULT 'application/octet-stream',
    source_type        text,
    title              text,
    sha256             text,              -- of the original of the live generation
    bytes              bigint,            -- like sha256 and source_mtime_ns written only by what becomes live
    meta               jsonb NOT NULL DEFAULT '{}',
    external_id        text,              -- _id of a JSONL record
    parent_id          uuid,              -- the corpus a record belongs to
    live_generation    integer,
    next_generation    integer NOT NULL DEFAULT 1,
    floor_generation   integer NOT NULL DEFAULT 1,   -- raised by a deletion: older attempts never become live
    live_chunks        integer NOT NULL DEFAULT 0,
    fingerprint        text,              -- of what decided the live generation: content, parser, chunker, space
    language           text,
    source_modified_at timestamptz,
    source_mtime_ns    bigint,            -- first gate of change detection, with bytes
    first_fetched_at   timestamptz,
    fetched_at         timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    deleted_at         timestamptz,
    request            bigint NOT NULL DEFAULT 0,    -- raised by every add and deletion; a job carries the one it serves
    floor_request      bigint NOT NULL DEFAULT 0     -- requests below it have been overtaken
);
-- Not unique: the id is derived from both, and a second arbiter would make concurrent first adds collide.
CREATE INDEX documents_uri ON documents (container_id, uri text_pattern_ops);
CREATE INDEX documents_parent ON documents (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE chunks (
    doc_id         uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    generation     integer NOT NULL,
    ordinal        integer NOT NULL,
    id             uuid NOT NULL,
    container_id   text NOT NULL,
    ord            bigint NOT NULL,
    modality       text NOT NULL DEFAULT 'text',
    source_type    text NOT NULL,
    block_type     text NOT NULL,
    text           text NOT NULL,
    embed_text     text NOT NULL,
    page           integer,
    page_end       integer,
    line_start     integer,
    line_end       integer,
    heading_path   text[] NOT NULL DEFAULT '{}',
    key_path       text,
    parent_section text,
    table_id       text,
    row_group      integer,
    offset_start   integer NOT NULL,
    offset_end     integer NOT NULL,
    content_hash   text NOT NULL,
    token_count    integer NOT NULL,
    windows        integer NOT NULL,      -- points of this chunk in each space
    tsv            tsvector NOT NULL,     -- written by our own analyser, never by to_tsvector
    length         integer NOT NULL,      -- terms counted by BM25
    duplicate_of   uuid,
    provenance     jsonb NOT NULL,
    meta           jsonb NOT NULL DEFAULT '{}',
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (doc_id, generation, ordinal)
);
-- With what the join on the live generation asks for: hundreds of candidates a search, and no row of them is read.
CREATE UNIQUE INDEX chunks_ord ON chunks (container_id, ord) INCLUDE (doc_id, generation);
CREATE INDEX chunks_id ON chunks (id);
ALTER TABLE chunks ALTER COLUMN tsv SET STORAGE EXTENDED;

CREATE TABLE pages (
    doc_id       uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    generation   integer NOT NULL,
    page         integer NOT NULL CHECK (page > 0),
    image_sha256 text,                    -- NULL until the render job is done
    pdf_sha256   text,
    text         text NOT NULL DEFAULT '',
    width        integer,
    height       integer,
    line_start   integer,                 -- source lines the page shows, for rendered text
    line_end     integer,
    PRIMARY KEY (doc_id, generation, page)
);
"""

BLOBS = """
CREATE TABLE blobs (
    sha256     text PRIMARY KEY CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    bytes      bigint NOT NULL,
    state      text NOT NULL CHECK (state IN ('intent', 'present', 'condemned')),
    touched_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE blob_refs (
    doc_id     uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    generation integer NOT NULL,
    role       text NOT NULL CHECK (role IN ('original', 'page_image', 'page_pdf', 'thumbnail')),
    part       integer NOT NULL DEFAULT 0,   -- page number, 0 for the whole document
    sha256     text NOT NULL REFERENCES blobs (sha256),
    mime       text NOT NULL,
    filename   text NOT NULL,
    PRIMARY KEY (doc_id, generation, role, part)
);
CREATE INDEX blob_refs_sha ON blob_refs (sha256);

CREATE TABLE uploads (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    sha256       text NOT NULL REFERENCES blobs (sha256),
    filename     text NOT NULL,
    mime         text NOT NULL,
    bytes        bigint NOT NULL,
    principal    text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX uploads_sha ON uploads (sha256);
"""

KEYWORDS = """
-- Packed postings (FACTS §1): ords uint32, tfs uint8, lens uint16, little-endian, same count in each.
-- A posting stands in one of two tables: in loose_postings from its publication to the next compaction,
-- which merges it into postings. So a compaction reads what is new, and not the whole container.
CREATE TABLE postings (
    container_id text NOT NULL,
    term         text NOT NULL COLLATE "C",
    block        bigint NOT NULL,
    ords         bytea NOT NULL,
    tfs          bytea NOT NULL,
    lens         bytea NOT NULL,
    PRIMARY KEY (container_id, term, block)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE postings ALTER COLUMN ords SET STORAGE EXTERNAL;
ALTER TABLE postings ALTER COLUMN tfs SET STORAGE EXTERNAL;
ALTER TABLE postings ALTER COLUMN lens SET STORAGE EXTERNAL;
CREATE TABLE loose_postings (
    container_id text NOT NULL,
    term         text NOT NULL COLLATE "C",
    block        bigint NOT NULL,
    ords         bytea NOT NULL,
    tfs          bytea NOT NULL,
    lens         bytea NOT NULL,
    PRIMARY KEY (container_id, term, block)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE loose_postings ALTER COLUMN ords SET STORAGE EXTERNAL;
ALTER TABLE loose_postings ALTER COLUMN tfs SET STORAGE EXTERNAL;
ALTER TABLE loose_postings ALTER COLUMN lens SET STORAGE EXTERNAL;
CREATE SEQUENCE posting_blocks AS bigint;

CREATE TABLE keyword_stats (
    container_id text PRIMARY KEY,
    live_chunks  bigint NOT NULL DEFAULT 0,
    live_length  bigint NOT NULL DEFAULT 0,
    loose_writes bigint NOT NULL DEFAULT 0,   -- publications and deletions since the last compaction
    loose_rows   bigint NOT NULL DEFAULT 0,   -- of loose_postings
    dead_chunks  bigint NOT NULL DEFAULT 0,   -- of dead_ords
    languages    jsonb NOT NULL DEFAULT '{}'  -- language to the number of chunks ever published in it
) WITH (fillfactor = 50);

-- Ords that died since the last compaction, packed as in postings; one row a publication or deletion.
CREATE TABLE dead_ords (
    container_id text NOT NULL,
    block        bigint NOT NULL,
    ords         bytea NOT NULL,
    PRIMARY KEY (container_id, block)
);
"""

EMBEDDINGS = """
CREATE TABLE embedding_cache (
    content_hash text NOT NULL,           -- SHA-256 of the embedded text
    space        text NOT NULL,           -- EmbeddingModel.key
    vector       bytea NOT NULL,          -- float32, little-endian
    used_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (content_hash, space)
);
ALTER TABLE embedding_cache ALTER COLUMN vector SET STORAGE EXTERNAL;
"""

JOBS = """
CREATE SEQUENCE claim_ids AS bigint;

CREATE TABLE jobs (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             text NOT NULL,
    container_id     text NOT NULL,
    doc_id           uuid,
    doc_key          text,
    dedupe_key       text,
    payload          jsonb NOT NULL DEFAULT '{}',
    state            text NOT NULL DEFAULT 'queued'
                     CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    lane             text NOT NULL DEFAULT 'ready'   -- where a queued job stands: latent_core.queue
                     CHECK (lane IN ('ready', 'delayed', 'waiting', 'quarantine')),
    priority         integer NOT NULL DEFAULT 0,
    rank             bigint NOT NULL DEFAULT 0,      -- virtual rank in the ready lane: fair between containers
    run_at           timestamptz NOT NULL DEFAULT now(),
    attempts         integer NOT NULL DEFAULT 0,
    max_attempts     integer NOT NULL DEFAULT 5,
    lost_leases      integer NOT NULL DEFAULT 0,
    claim_id         bigint,                         -- never used twice
    lease_owner      text,
    lease_expires    timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    progress_done    bigint NOT NULL DEFAULT 0,
    progress_total   bigint,
    progress_note    text,
    cause            jsonb,
    warnings         jsonb NOT NULL DEFAULT '[]',
    principal        text NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    finished_at      timestamptz
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
-- The lease is in no index, so that a heartbeat rewrites no index; few jobs run at a time.
CREATE INDEX jobs_claim ON jobs (lane, priority DESC, rank, id) WHERE state = 'queued';
CREATE INDEX jobs_fair ON jobs (container_id, priority, rank) WHERE state = 'queued' AND lane = 'ready';
CREATE INDEX jobs_due ON jobs (run_at, id) WHERE state = 'queued' AND lane = 'delayed';
CREATE INDEX jobs_keys ON jobs (lane, doc_key, priority DESC, rank, id) WHERE state = 'queued' AND doc_key IS NOT NULL;
CREATE UNIQUE INDEX jobs_coalesce ON jobs (dedupe_key) WHERE state = 'queued' AND dedupe_key IS NOT NULL;
CREATE UNIQUE INDEX jobs_serial ON jobs (doc_key) WHERE state = 'running' AND doc_key IS NOT NULL;
CREATE INDEX jobs_running ON jobs (id) WHERE state = 'running';
CREATE INDEX jobs_listed ON jobs (container_id, state, id DESC);
CREATE INDEX jobs_document ON jobs (doc_id, id DESC) WHERE doc_id IS NOT NULL;
CREATE INDEX jobs_finished ON jobs (state, finished_at) WHERE state IN ('done', 'failed', 'cancelled');

CREATE TABLE job_events (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  bigint NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    event   text NOT NULL,
    details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX job_events_job ON job_events (job_id, id);

-- The rank at which the ready lane is being served, at one priority.
CREATE FUNCTION queue_head(wanted_priority integer) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT rank FROM jobs WHERE state = 'queued' AND lane = 'ready' AND priority = wanted_priority
         ORDER BY rank, id LIMIT 1),
        1)
$$;

-- The next rank of a container, at one priority: one behind its last, and never ahead of the head.
CREATE FUNCTION queue_end(wanted_priority integer, wanted_container text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT greatest(
        queue_head(wanted_priority),
        (SELECT rank + 1 FROM jobs
         WHERE state = 'queued' AND lane = 'ready' AND container_id = wanted_container AND priority = wanted_priority
         ORDER BY rank DESC LIMIT 1))
$$;

-- Takes the key until the transaction ends, then looks whether a job runs under it. PL/pgSQL, since there
-- each statement sees what was committed while the one before waited.
CREATE FUNCTION queue_key_is_free(wanted_key text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(wanted_key, 7801));
    RETURN NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND doc_key = wanted_key);
END
$$;
"""

ADMINISTRATION = """
CREATE TABLE audit (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL DEFAULT now(),
    principal    text NOT NULL,
    action       text NOT NULL,
    container_id text,
    object       text,
    request_id   text
);
CREATE INDEX audit_container ON audit (container_id, id DESC);

-- Secrets that every gateway must agree on (the signing key).
CREATE TABLE secrets (
    name  text PRIMARY KEY,
    value bytea NOT NULL
);
"""


def upgrade() -> None:
    for statements in (CONTAINERS, DOCUMENTS, BLOBS, KEYWORDS, EMBEDDINGS, JOBS, ADMINISTRATION):
        op.execute(statements)


def downgrade() -> None:
    raise RuntimeError("the foundation is not taken down; restore a backup instead")
