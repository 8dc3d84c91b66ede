"""The initial schema: containers, documents, chunks, blobs, keywords, vectors, jobs, archives, administration.

Plain SQL that can be pasted into psql. Timestamps are timestamptz. Ids of documents and chunks are
deterministic (latent_core.domain.ids).

Revision ID: 0001_initial
"""

from alembic import op

revision = "0001_initial"
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
    deleted_at  timestamptz              -- tombstone: invisible at once; the purge job deletes the row
);

-- An embedding space: the vectors of one embedder. Its points are in a collection, usually its own; a space
-- that only reads another space's vectors through an adapter shares that space's collection.
CREATE TABLE spaces (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id  text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    embedder      text NOT NULL,
    version       text NOT NULL,
    dims          integer NOT NULL CHECK (dims > 0),
    state         text NOT NULL DEFAULT 'building' CHECK (state IN ('building', 'live', 'retired', 'dropping')),
    created_at    timestamptz NOT NULL DEFAULT now(),
    collection_id     bigint,                              -- the space whose collection it shares; NULL: its own
    adapter_id    bigint,                              -- maps the embedder's vectors into the collection
    embedder_dims integer CHECK (embedder_dims > 0),   -- of the embedder, if an adapter maps its vectors
    retired_at    timestamptz,
    keep_until    timestamptz                          -- a retired space is dropped after it
);
CREATE UNIQUE INDEX spaces_one_live ON spaces (container_id) WHERE state = 'live';
CREATE UNIQUE INDEX spaces_one_building ON spaces (container_id) WHERE state = 'building';
CREATE INDEX spaces_container ON spaces (container_id, id);
ALTER TABLE containers ADD FOREIGN KEY (live_space) REFERENCES spaces (id) DEFERRABLE INITIALLY DEFERRED;

-- Our spaces that no longer exist. On a Qdrant server shared with other applications, only their collections
-- may be dropped.
CREATE TABLE former_spaces (
    id           bigint PRIMARY KEY,
    container_id text NOT NULL,
    removed_at   timestamptz NOT NULL DEFAULT now()
);

-- Languages in which documents of a container were analysed: a query is analysed in each of them.
CREATE TABLE container_languages (
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    language     text NOT NULL,
    PRIMARY KEY (container_id, language)
);

-- The next chunk_no of each container. Every ingest updates it, so it has a row of its own: ingests hold the
-- container's row with a shared lock.
CREATE TABLE chunk_no_counters (
    container_id text PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    next_chunk_no     bigint NOT NULL DEFAULT 0
);

-- When each recurring task was last due. A time that passed while no process ran is made up for once.
CREATE TABLE schedules (
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    task         text NOT NULL,
    cron         text NOT NULL,
    last_at      timestamptz NOT NULL,
    PRIMARY KEY (container_id, task)
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
    bytes              bigint,            -- like sha256 and source_mtime_ns, written only by a publication
    meta               jsonb NOT NULL DEFAULT '{}',
    external_id        text,              -- _id of a JSONL record
    parent_id          uuid,              -- the corpus that contains the record
    live_generation    integer,
    next_generation    integer NOT NULL DEFAULT 1,
    floor_generation   integer NOT NULL DEFAULT 1,   -- raised by a deletion: older attempts never become live
    live_chunks        integer NOT NULL DEFAULT 0,
    fingerprint        text,              -- of the inputs of the live generation: content, parser, chunker, space
    language           text,
    source_modified_at timestamptz,
    source_mtime_ns    bigint,            -- with bytes, the first test for a changed file
    first_fetched_at   timestamptz,
    fetched_at         timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    updated_at         timestamptz NOT NULL DEFAULT now(),
    deleted_at         timestamptz,
    request            bigint NOT NULL DEFAULT 0,    -- raised by every add and deletion; a job carries its own
    floor_request      bigint NOT NULL DEFAULT 0,    -- requests below it are superseded
    validators         jsonb,             -- of a fetched generation: etag, last_modified, final_url, mime, filename
    recipe             text,              -- digest of the versions and settings that made the live generation
    given_meta         text               -- digest of the meta that the sender gave; NULL: none
);
-- Not unique: the id is derived from both columns, and a second unique index would make concurrent first
-- adds collide.
CREATE INDEX documents_uri ON documents (container_id, uri text_pattern_ops);
CREATE INDEX documents_parent ON documents (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE pages (
    doc_id       uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    generation   integer NOT NULL,
    page         integer NOT NULL CHECK (page > 0),
    image_sha256 text,                    -- NULL until the render job has finished
    pdf_sha256   text,
    text         text NOT NULL DEFAULT '',
    width        integer,
    height       integer,
    line_start   integer,                 -- source lines that the page shows, for rendered text
    line_end     integer,
    visual       real CHECK (visual BETWEEN 0 AND 1),   -- share of the page that is picture; NULL: unknown
    PRIMARY KEY (doc_id, generation, page)
);
"""

CHUNKS = """
CREATE TABLE chunks (
    doc_id         uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    generation     integer NOT NULL,
    position        integer NOT NULL,
    id             uuid NOT NULL,
    container_id   text NOT NULL,
    chunk_no            bigint NOT NULL,
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
    provenance     jsonb NOT NULL,
    meta           jsonb NOT NULL DEFAULT '{}',
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (doc_id, generation, position)
);
-- Includes the columns of the join on the live generation: a search joins hundreds of candidates and reads no
-- row of this table for them.
CREATE UNIQUE INDEX chunks_chunk_no ON chunks (container_id, chunk_no) INCLUDE (doc_id, generation);
CREATE INDEX chunks_id ON chunks (id);
-- Includes the columns that filters test. Rows of chunks are wide: for 100,000 of them a filter reads 11 MB
-- of this index instead of 156 MB of the table.
CREATE INDEX chunks_document ON chunks (doc_id, generation)
INCLUDE (container_id, chunk_no, id, windows, source_type, modality, page, page_end);
-- Uncompressed: compression makes term vectors of real texts one percent smaller, and each attempt to compress
-- takes as long as reading the vector.
ALTER TABLE chunks ALTER COLUMN tsv SET STORAGE EXTERNAL;

-- Trigram signatures: they exclude chunks that cannot contain a string, without reading the text. Two bits per
-- trigram of the case-folded text; the number of bits depends on its length (latent_core.bm25.exact).
-- A table of its own with narrow rows: an exact search reads all signatures of a container.
CREATE TABLE signatures (
    container_id text NOT NULL,
    chunk_no          bigint NOT NULL,
    bits         bit varying NOT NULL,
    PRIMARY KEY (container_id, chunk_no),
    FOREIGN KEY (container_id, chunk_no) REFERENCES chunks (container_id, chunk_no) ON DELETE CASCADE
);
"""

DUPLICATES = """
-- Chunks that were compared for near-duplicates: a signature of the vector, and the chunk_no of the chunk that this
-- one repeats, if any. Not in the rows of chunks: an update would rewrite those wide rows and take the join of
-- a search off its index.
CREATE TABLE duplicates (
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    chunk_no          bigint NOT NULL,
    signature    bytea NOT NULL,
    original     bigint CHECK (original < chunk_no),
    PRIMARY KEY (container_id, chunk_no)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX duplicates_original ON duplicates (container_id, original) WHERE original IS NOT NULL;

-- Ranges of chunk_nos that became live or dead and are not yet compared.
CREATE TABLE dedup_pending (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    first_chunk_no    bigint NOT NULL,
    last_chunk_no     bigint NOT NULL CHECK (first_chunk_no <= last_chunk_no)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX dedup_pending_first ON dedup_pending (container_id, first_chunk_no, id);
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

-- Text that OCR read in uploaded query images, by content and engine. Rows expire after some days.
CREATE TABLE image_texts (
    sha256     text NOT NULL,
    engine     text NOT NULL,
    text       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sha256, engine)
);
CREATE INDEX image_texts_age ON image_texts (created_at);
"""

KEYWORDS = """
-- Packed postings: chunk_nos uint32, tfs uint8, lens uint16, little-endian, the same count in each column. A posting
-- is in exactly one of two tables: in unmerged_postings from its publication to the next compaction, which merges
-- it into postings. So a compaction reads the new postings, not the whole container.
CREATE TABLE postings (
    container_id text NOT NULL,
    term         text NOT NULL COLLATE "C",
    block        bigint NOT NULL,
    chunk_nos         bytea NOT NULL,
    tfs          bytea NOT NULL,
    lens         bytea NOT NULL,
    PRIMARY KEY (container_id, term, block)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE postings ALTER COLUMN chunk_nos SET STORAGE EXTERNAL;
ALTER TABLE postings ALTER COLUMN tfs SET STORAGE EXTERNAL;
ALTER TABLE postings ALTER COLUMN lens SET STORAGE EXTERNAL;

CREATE TABLE unmerged_postings (
    container_id text NOT NULL,
    term         text NOT NULL COLLATE "C",
    block        bigint NOT NULL,
    chunk_nos         bytea NOT NULL,
    tfs          bytea NOT NULL,
    lens         bytea NOT NULL,
    PRIMARY KEY (container_id, term, block)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE unmerged_postings ALTER COLUMN chunk_nos SET STORAGE EXTERNAL;
ALTER TABLE unmerged_postings ALTER COLUMN tfs SET STORAGE EXTERNAL;
ALTER TABLE unmerged_postings ALTER COLUMN lens SET STORAGE EXTERNAL;

CREATE SEQUENCE posting_blocks AS bigint;

-- Every publication updates it: the free space keeps the new version of a row in the same page.
CREATE TABLE keyword_stats (
    container_id text PRIMARY KEY,
    live_chunks  bigint NOT NULL DEFAULT 0,
    live_length  bigint NOT NULL DEFAULT 0,
    unmerged_writes bigint NOT NULL DEFAULT 0,   -- publications and deletions since the last compaction
    unmerged_rows   bigint NOT NULL DEFAULT 0,   -- of unmerged_postings
    dead_chunks  bigint NOT NULL DEFAULT 0,   -- of dead_chunk_nos
    languages    jsonb NOT NULL DEFAULT '{}'  -- language to the number of chunks ever published in it
) WITH (fillfactor = 50);

-- Ords that died since the last compaction, packed as in postings; one row per publication or deletion.
CREATE TABLE dead_chunk_nos (
    container_id text NOT NULL,
    block        bigint NOT NULL,
    chunk_nos         bytea NOT NULL,
    PRIMARY KEY (container_id, block)
);
"""

VECTORS = """
-- Which generation of a document has its points in a collection that was not, or is not, the live one.
CREATE TABLE embedded (
    doc_id     uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    collection_id  bigint NOT NULL,
    generation integer NOT NULL,
    job_id     bigint,                           -- the refresh that wrote them; NULL: their publication
    mapped     boolean NOT NULL DEFAULT false,   -- vectors of another model, mapped by an adapter
    PRIMARY KEY (doc_id, collection_id)
);
CREATE INDEX embedded_mapped ON embedded (collection_id, doc_id) WHERE mapped;

-- The number of points of a chunk in a collection, where it differs from chunks.windows. 0: the embedder refused
-- the page image.
CREATE TABLE point_counts (
    container_id text NOT NULL,
    chunk_no          bigint NOT NULL,
    collection_id    bigint NOT NULL,
    windows      integer NOT NULL CHECK (windows >= 0),
    PRIMARY KEY (container_id, chunk_no, collection_id),
    FOREIGN KEY (container_id, chunk_no) REFERENCES chunks (container_id, chunk_no) ON DELETE CASCADE
);

CREATE TABLE drift_adapters (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    way          text NOT NULL CHECK (way IN ('query', 'forward')),
    old_embedder text NOT NULL,
    old_version  text NOT NULL,
    old_dims     integer NOT NULL CHECK (old_dims > 0),
    new_embedder text NOT NULL,
    new_version  text NOT NULL,
    new_dims     integer NOT NULL CHECK (new_dims > 0),
    pairs        integer NOT NULL CHECK (pairs > 0),
    adapter      bytea NOT NULL,          -- matrix and both means, as latent_core.models.embedding.drift packs them
    measured     jsonb NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE drift_adapters ALTER COLUMN adapter SET STORAGE EXTERNAL;
CREATE INDEX drift_adapters_container ON drift_adapters (container_id, id);
ALTER TABLE spaces ADD FOREIGN KEY (adapter_id) REFERENCES drift_adapters (id) DEFERRABLE INITIALLY DEFERRED;
"""

EMBEDDERS = """
CREATE TABLE embedding_cache (
    content_hash text NOT NULL,           -- SHA-256 of the embedded text
    space        text NOT NULL,           -- EmbeddingModel.key
    vector       bytea NOT NULL,          -- float32, little-endian
    used_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (content_hash, space)
);
ALTER TABLE embedding_cache ALTER COLUMN vector SET STORAGE EXTERNAL;

-- Token buckets shared by all workers, one per endpoint and key. Unlogged: a commit costs no fsync, and after a
-- crash the buckets are full again.
CREATE UNLOGGED TABLE embed_rates (
    name         text PRIMARY KEY,
    level        double precision NOT NULL,
    as_of        timestamptz NOT NULL,
    paused_until timestamptz NOT NULL
);

-- Takes ``texts`` out of a bucket if it then still holds ``spare``, and returns 0; else takes nothing and returns
-- the seconds to wait before the next call. For ``pause`` seconds no call takes any: the server asked for it.
CREATE FUNCTION take_texts(
    bucket text, burst double precision, per_second double precision,
    texts double precision, spare double precision, pause double precision
) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
    found  embed_rates;
    moment timestamptz;
    filled double precision;
    wait   double precision;
BEGIN
    INSERT INTO embed_rates (name, level, as_of, paused_until) VALUES (bucket, burst, clock_timestamp(), now())
    ON CONFLICT (name) DO NOTHING;
    SELECT * INTO STRICT found FROM embed_rates WHERE name = bucket FOR UPDATE;
    moment := clock_timestamp();  -- with the lock held: never before that of the last one
    IF pause > 0 THEN
        found.paused_until := greatest(found.paused_until, moment + make_interval(secs => pause));
    END IF;
    filled := least(burst, found.level + per_second * greatest(0, extract(epoch FROM moment - found.as_of)));
    wait := greatest(0, extract(epoch FROM found.paused_until - moment), (texts + spare - filled) / per_second);
    UPDATE embed_rates
    SET level = CASE WHEN wait > 0 THEN filled ELSE filled - texts END,
        as_of = moment, paused_until = found.paused_until
    WHERE name = bucket;
    RETURN wait;
END $$;

-- Usage of a remote embedder by each job; it outlives the job's row.
CREATE TABLE embed_usage (
    job_id       bigint NOT NULL,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    embedder     text NOT NULL,
    texts        bigint NOT NULL,
    tokens       bigint NOT NULL,
    cost         double precision NOT NULL,
    PRIMARY KEY (job_id, embedder)
);
CREATE INDEX embed_usage_container ON embed_usage (container_id);
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
    -- What a queued job waits for: its run_at, or the end of a running job with the same key. NULL: in line by rank.
    waits_for        text CHECK (waits_for IN ('time', 'key')),
    priority         integer NOT NULL DEFAULT 0,
    rank             bigint NOT NULL DEFAULT 0,      -- virtual rank in line: fair between containers
    run_at           timestamptz NOT NULL DEFAULT now(),
    paused_since     timestamptz,                    -- first pause for an outage, plus the time in line since then
    attempts         integer NOT NULL DEFAULT 0,
    max_attempts     integer NOT NULL DEFAULT 5,
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
    finished_at      timestamptz,
    result           jsonb
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
-- No index contains the lease: a heartbeat updates no index.
CREATE INDEX jobs_claim ON jobs (priority DESC, rank, id) WHERE state = 'queued' AND waits_for IS NULL;
CREATE INDEX jobs_fair ON jobs (container_id, priority, rank) WHERE state = 'queued' AND waits_for IS NULL;
CREATE INDEX jobs_due ON jobs (run_at, id) WHERE state = 'queued' AND waits_for = 'time';
CREATE INDEX jobs_keys ON jobs (waits_for, doc_key, priority DESC, rank, id)
    WHERE state = 'queued' AND doc_key IS NOT NULL;
CREATE UNIQUE INDEX jobs_coalesce ON jobs (dedupe_key) WHERE state = 'queued' AND dedupe_key IS NOT NULL;
CREATE UNIQUE INDEX jobs_serial ON jobs (doc_key) WHERE state = 'running' AND doc_key IS NOT NULL;
CREATE INDEX jobs_running ON jobs (id) WHERE state = 'running';
CREATE INDEX jobs_listed ON jobs (container_id, state, id DESC);
CREATE INDEX jobs_document ON jobs (doc_id, id DESC) WHERE doc_id IS NOT NULL;
CREATE INDEX jobs_finished ON jobs (state, finished_at) WHERE state IN ('done', 'failed', 'cancelled');
-- For quotas. The owner has no quota, and most jobs are the owner's.
CREATE INDEX jobs_queued_by ON jobs (principal) WHERE state = 'queued' AND principal <> 'local:you';

CREATE TABLE job_events (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  bigint NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    event   text NOT NULL,
    details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX job_events_job ON job_events (job_id, id);

-- The rank at which the line is served, at one priority.
CREATE FUNCTION queue_head(for_priority integer) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT rank FROM jobs WHERE state = 'queued' AND waits_for IS NULL AND priority = for_priority
         ORDER BY rank, id LIMIT 1),
        1)
$$;

-- The next rank of a container, at one priority: one behind its last, and never ahead of the head.
CREATE FUNCTION queue_end(for_priority integer, for_container text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT greatest(
        queue_head(for_priority),
        (SELECT rank + 1 FROM jobs
         WHERE state = 'queued' AND waits_for IS NULL AND container_id = for_container AND priority = for_priority
         ORDER BY rank DESC LIMIT 1))
$$;

-- Locks the key until the transaction ends, then checks whether a job with it is running. PL/pgSQL: each
-- statement sees what others committed while the statement before it waited for the lock.
CREATE FUNCTION queue_key_is_free(requested_key text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(requested_key, 7801));
    RETURN NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND doc_key = requested_key);
END
$$;
"""

ARCHIVES = """
-- Files that hold a container: written by an export job, or received for an import.
CREATE TABLE archives (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('export', 'backup', 'import')),
    container_id text NOT NULL,          -- no foreign key: a backup outlives its container
    sha256       text NOT NULL REFERENCES blobs (sha256),
    bytes        bigint NOT NULL,
    filename     text NOT NULL,
    vectors      boolean NOT NULL DEFAULT true,
    blobs        boolean NOT NULL DEFAULT true,
    totals       jsonb NOT NULL DEFAULT '{}',
    contents_key text,                   -- digest of the container's state when the file was written
    job_id       bigint,
    created_at   timestamptz NOT NULL DEFAULT now(),
    verified_at  timestamptz
);
CREATE INDEX archives_container ON archives (container_id, kind, id DESC);
CREATE INDEX archives_sha ON archives (sha256);

-- Containers that an import builds behind a tombstone: clearing the tombstone makes all of it visible at once.
CREATE TABLE foundings (
    container_id text PRIMARY KEY REFERENCES containers (id) ON DELETE CASCADE,
    job_id       bigint NOT NULL
);
"""

EVALUATIONS = """
-- A run that passed its gates is the baseline of the next run with the same container, dataset and setup.
CREATE TABLE eval_runs (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    container_id text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    dataset      text NOT NULL,           -- hash of the queries and their expected results
    setup        text NOT NULL,           -- mode and fusion
    space_id     bigint,
    figures      jsonb NOT NULL,
    passed       boolean NOT NULL,
    principal    text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX eval_runs_last ON eval_runs (container_id, dataset, setup, id DESC);
"""

ADMINISTRATION = """
-- Of a token only its SHA-256 is stored.
CREATE TABLE tokens (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sha256       bytea NOT NULL UNIQUE CHECK (octet_length(sha256) = 32),
    principal    text NOT NULL,           -- as the roles in manifests name it
    name         text NOT NULL,           -- its purpose; two tokens of a name may be valid at once, for rotation
    scopes       text[] NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'ingest', 'admin']),
    containers   text[],                  -- NULL: all that the principal's roles reach
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,             -- written at most once a minute; no index contains it, so in place
    revoked_at   timestamptz
) WITH (fillfactor = 80);
CREATE INDEX tokens_named ON tokens (principal, name);

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
CREATE INDEX audit_principal ON audit (principal, id DESC);

-- Secrets that every gateway must share (the signing key).
CREATE TABLE secrets (
    name  text PRIMARY KEY,
    value bytea NOT NULL
);

-- Bytes that a token (or a principal without one) uploaded on a day (UTC).
CREATE TABLE uploaded_bytes (
    who   text NOT NULL,
    day   date NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (who, day)
);
CREATE INDEX uploaded_bytes_day ON uploaded_bytes (day);

-- Stores that reported to be full: workers note it, gateways then refuse writes. Relevant for a minute.
-- Unlogged: the note takes no space in a log whose disk may be full as well.
CREATE UNLOGGED TABLE stores_over_capacity (
    service text PRIMARY KEY CHECK (service IN ('postgres', 'qdrant', 'minio')),
    reported_at timestamptz NOT NULL
);
"""

TABLES = (
    *(CONTAINERS, DOCUMENTS, CHUNKS, DUPLICATES, BLOBS, KEYWORDS, VECTORS, EMBEDDERS, JOBS),
    *(ARCHIVES, EVALUATIONS, ADMINISTRATION),
)


def upgrade() -> None:
    for statements in TABLES:
        op.execute(statements)


def downgrade() -> None:
    raise RuntimeError("the initial revision cannot be undone: restore a backup instead")
