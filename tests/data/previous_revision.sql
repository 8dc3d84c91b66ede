-- Revision 0007_saved_searches, written by scripts/dump_revision.py.
SET check_function_bodies = false;
CREATE FUNCTION public.queue_end(for_priority integer, for_container text) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT greatest(
        queue_head(for_priority),
        (SELECT rank + 1 FROM jobs
         WHERE state = 'queued' AND waits_for IS NULL AND container_id = for_container AND priority = for_priority
         ORDER BY rank DESC LIMIT 1))
$$;
CREATE FUNCTION public.queue_head(for_priority integer) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(
        (SELECT rank FROM jobs WHERE state = 'queued' AND waits_for IS NULL AND priority = for_priority
         ORDER BY rank, id LIMIT 1),
        1)
$$;
CREATE FUNCTION public.queue_key_is_free(requested_key text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(requested_key, 7801));
    RETURN NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND doc_key = requested_key);
END
$$;
CREATE FUNCTION public.take_texts(bucket text, burst double precision, per_second double precision, texts double precision, spare double precision, pause double precision) RETURNS double precision
    LANGUAGE plpgsql
    AS $$
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
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.archives (
    id bigint NOT NULL,
    kind text NOT NULL,
    container_id text NOT NULL,
    sha256 text NOT NULL,
    bytes bigint NOT NULL,
    filename text NOT NULL,
    vectors boolean DEFAULT true NOT NULL,
    blobs boolean DEFAULT true NOT NULL,
    totals jsonb DEFAULT '{}'::jsonb NOT NULL,
    contents_key text,
    job_id bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    verified_at timestamp with time zone,
    bucket text DEFAULT ''::text NOT NULL,
    CONSTRAINT archives_kind_check CHECK ((kind = ANY (ARRAY['export'::text, 'backup'::text, 'import'::text])))
);
ALTER TABLE public.archives ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.archives_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    principal text NOT NULL,
    action text NOT NULL,
    container_id text,
    object text,
    request_id text
);
ALTER TABLE public.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.blob_refs (
    doc_id uuid NOT NULL,
    generation integer NOT NULL,
    role text NOT NULL,
    part integer DEFAULT 0 NOT NULL,
    sha256 text NOT NULL,
    mime text NOT NULL,
    filename text NOT NULL,
    bucket text DEFAULT ''::text NOT NULL,
    CONSTRAINT blob_refs_role_check CHECK ((role = ANY (ARRAY['original'::text, 'page_image'::text, 'page_pdf'::text, 'thumbnail'::text])))
);
CREATE TABLE public.blobs (
    sha256 text NOT NULL,
    bytes bigint NOT NULL,
    state text NOT NULL,
    touched_at timestamp with time zone DEFAULT now() NOT NULL,
    bucket text DEFAULT ''::text NOT NULL,
    CONSTRAINT blobs_sha256_check CHECK ((sha256 ~ '^[0-9a-f]{64}$'::text)),
    CONSTRAINT blobs_state_check CHECK ((state = ANY (ARRAY['intent'::text, 'present'::text, 'condemned'::text])))
);
CREATE TABLE public.chunk_no_counters (
    container_id text NOT NULL,
    next_chunk_no bigint DEFAULT 0 NOT NULL
);
CREATE TABLE public.chunks (
    doc_id uuid NOT NULL,
    generation integer NOT NULL,
    "position" integer NOT NULL,
    id uuid NOT NULL,
    container_id text NOT NULL,
    chunk_no bigint NOT NULL,
    modality text DEFAULT 'text'::text NOT NULL,
    source_type text NOT NULL,
    block_type text NOT NULL,
    text text NOT NULL,
    embed_text text NOT NULL,
    page integer,
    page_end integer,
    line_start integer,
    line_end integer,
    heading_path text[] DEFAULT '{}'::text[] NOT NULL,
    key_path text,
    parent_section text,
    table_id text,
    row_group integer,
    offset_start integer NOT NULL,
    offset_end integer NOT NULL,
    content_hash text NOT NULL,
    token_count integer NOT NULL,
    windows integer NOT NULL,
    tsv tsvector NOT NULL,
    length integer NOT NULL,
    provenance jsonb NOT NULL,
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    generated text,
    CONSTRAINT chunks_generated_check CHECK ((generated = ANY (ARRAY['summary'::text, 'page'::text, 'visual'::text, 'caption'::text, 'transcript'::text])))
);
ALTER TABLE ONLY public.chunks ALTER COLUMN tsv SET STORAGE EXTERNAL;
CREATE SEQUENCE public.claim_ids
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.container_languages (
    container_id text NOT NULL,
    language text NOT NULL
);
CREATE TABLE public.containers (
    id text NOT NULL,
    manifest jsonb NOT NULL,
    etag text NOT NULL,
    state text DEFAULT 'active'::text NOT NULL,
    live_space bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    bucket text DEFAULT ''::text NOT NULL,
    CONSTRAINT containers_state_check CHECK ((state = ANY (ARRAY['active'::text, 'readonly'::text, 'archived'::text])))
);
CREATE TABLE public.dead_chunk_nos (
    container_id text NOT NULL,
    block bigint NOT NULL,
    chunk_nos bytea NOT NULL
);
CREATE TABLE public.dedup_pending (
    id bigint NOT NULL,
    container_id text NOT NULL,
    first_chunk_no bigint NOT NULL,
    last_chunk_no bigint NOT NULL,
    CONSTRAINT dedup_pending_check CHECK ((first_chunk_no <= last_chunk_no))
)
WITH (autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE public.dedup_pending ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.dedup_pending_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.documents (
    id uuid NOT NULL,
    container_id text NOT NULL,
    uri text NOT NULL,
    mime text DEFAULT 'application/octet-stream'::text NOT NULL,
    source_type text,
    title text,
    sha256 text,
    bytes bigint,
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    external_id text,
    parent_id uuid,
    live_generation integer,
    next_generation integer DEFAULT 1 NOT NULL,
    floor_generation integer DEFAULT 1 NOT NULL,
    live_chunks integer DEFAULT 0 NOT NULL,
    fingerprint text,
    language text,
    source_modified_at timestamp with time zone,
    source_mtime_ns bigint,
    first_fetched_at timestamp with time zone,
    fetched_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    request bigint DEFAULT 0 NOT NULL,
    floor_request bigint DEFAULT 0 NOT NULL,
    validators jsonb,
    recipe text,
    given_meta text,
    origin text DEFAULT 'file'::text NOT NULL,
    written_by text,
    token_name text,
    written_at timestamp with time zone DEFAULT now() NOT NULL,
    session text,
    version integer DEFAULT 1 NOT NULL,
    accepted_sha256 text,
    superseded_by uuid,
    superseded_request bigint,
    superseded_at timestamp with time zone,
    expires_at timestamp with time zone,
    restorable_until timestamp with time zone,
    CONSTRAINT documents_origin_check CHECK ((origin = ANY (ARRAY['person'::text, 'agent'::text, 'web'::text, 'file'::text])))
);
CREATE TABLE public.drift_adapters (
    id bigint NOT NULL,
    container_id text NOT NULL,
    way text NOT NULL,
    old_embedder text NOT NULL,
    old_version text NOT NULL,
    old_dims integer NOT NULL,
    new_embedder text NOT NULL,
    new_version text NOT NULL,
    new_dims integer NOT NULL,
    pairs integer NOT NULL,
    adapter bytea NOT NULL,
    measured jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT drift_adapters_new_dims_check CHECK ((new_dims > 0)),
    CONSTRAINT drift_adapters_old_dims_check CHECK ((old_dims > 0)),
    CONSTRAINT drift_adapters_pairs_check CHECK ((pairs > 0)),
    CONSTRAINT drift_adapters_way_check CHECK ((way = ANY (ARRAY['query'::text, 'forward'::text])))
);
ALTER TABLE ONLY public.drift_adapters ALTER COLUMN adapter SET STORAGE EXTERNAL;
ALTER TABLE public.drift_adapters ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.drift_adapters_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.duplicates (
    container_id text NOT NULL,
    chunk_no bigint NOT NULL,
    signature bytea NOT NULL,
    original bigint,
    CONSTRAINT duplicates_check CHECK ((original < chunk_no))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE UNLOGGED TABLE public.embed_rates (
    name text NOT NULL,
    level double precision NOT NULL,
    as_of timestamp with time zone NOT NULL,
    paused_until timestamp with time zone NOT NULL
);
CREATE TABLE public.embed_usage (
    job_id bigint NOT NULL,
    container_id text NOT NULL,
    embedder text NOT NULL,
    texts bigint NOT NULL,
    tokens bigint NOT NULL,
    cost double precision NOT NULL
);
CREATE TABLE public.embedded (
    doc_id uuid NOT NULL,
    collection_id bigint NOT NULL,
    generation integer NOT NULL,
    job_id bigint,
    mapped boolean DEFAULT false NOT NULL
);
CREATE TABLE public.embedder_references (
    space text NOT NULL,
    text text NOT NULL,
    vector bytea NOT NULL,
    max_tokens integer,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT embedder_references_max_tokens_check CHECK ((max_tokens >= 0))
);
CREATE TABLE public.embedding_cache (
    content_hash text NOT NULL,
    space text NOT NULL,
    vector bytea NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE ONLY public.embedding_cache ALTER COLUMN vector SET STORAGE EXTERNAL;
CREATE TABLE public.eval_runs (
    id bigint NOT NULL,
    container_id text NOT NULL,
    dataset text NOT NULL,
    setup text NOT NULL,
    space_id bigint,
    figures jsonb NOT NULL,
    passed boolean NOT NULL,
    principal text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.eval_runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.eval_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.former_spaces (
    id bigint NOT NULL,
    container_id text NOT NULL,
    removed_at timestamp with time zone DEFAULT now() NOT NULL,
    shared text
);
CREATE TABLE public.foundings (
    container_id text NOT NULL,
    job_id bigint NOT NULL
);
CREATE TABLE public.image_texts (
    sha256 text NOT NULL,
    engine text NOT NULL,
    text text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.installation (
    single boolean DEFAULT true NOT NULL,
    id text NOT NULL,
    holder text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    adopted_at timestamp with time zone,
    max_collections integer,
    CONSTRAINT installation_id_check CHECK ((id ~ '^[0-9a-f]{12}$'::text)),
    CONSTRAINT installation_single_check CHECK (single)
);
CREATE TABLE public.job_events (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    event text NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL
);
ALTER TABLE public.job_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.jobs (
    id bigint NOT NULL,
    kind text NOT NULL,
    container_id text NOT NULL,
    doc_id uuid,
    doc_key text,
    dedupe_key text,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    state text DEFAULT 'queued'::text NOT NULL,
    waits_for text,
    priority integer DEFAULT 0 NOT NULL,
    rank bigint DEFAULT 0 NOT NULL,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    paused_since timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 5 NOT NULL,
    claim_id bigint,
    lease_owner text,
    lease_expires timestamp with time zone,
    cancel_requested boolean DEFAULT false NOT NULL,
    progress_done bigint DEFAULT 0 NOT NULL,
    progress_total bigint,
    progress_note text,
    cause jsonb,
    warnings jsonb DEFAULT '[]'::jsonb NOT NULL,
    principal text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    result jsonb,
    CONSTRAINT jobs_state_check CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text, 'done'::text, 'failed'::text, 'cancelled'::text]))),
    CONSTRAINT jobs_waits_for_check CHECK ((waits_for = ANY (ARRAY['time'::text, 'key'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');
ALTER TABLE public.jobs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.keyword_stats (
    container_id text NOT NULL,
    live_chunks bigint DEFAULT 0 NOT NULL,
    live_length bigint DEFAULT 0 NOT NULL,
    unmerged_writes bigint DEFAULT 0 NOT NULL,
    unmerged_rows bigint DEFAULT 0 NOT NULL,
    dead_chunks bigint DEFAULT 0 NOT NULL,
    languages jsonb DEFAULT '{}'::jsonb NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.model_answers (
    container_id text NOT NULL,
    key text NOT NULL,
    doc_id uuid,
    purpose text NOT NULL,
    prompt_version text NOT NULL,
    model text NOT NULL,
    text text NOT NULL,
    stop text NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost double precision NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT model_answers_stop_check CHECK ((stop = ANY (ARRAY['end'::text, 'length'::text, 'refusal'::text])))
);
CREATE TABLE public.model_usage (
    job_id bigint NOT NULL,
    container_id text NOT NULL,
    purpose text NOT NULL,
    model text NOT NULL,
    calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost double precision NOT NULL
);
CREATE TABLE public.page_extractions (
    doc_id uuid NOT NULL,
    generation integer NOT NULL,
    page integer NOT NULL,
    state text NOT NULL,
    extraction jsonb,
    visual_importance smallint,
    raw text,
    cause jsonb,
    model text NOT NULL,
    prompt_version text NOT NULL,
    version text NOT NULL,
    page_hash text NOT NULL,
    next_page integer,
    pdf_sha256 text,
    page_pdf_sha256 text,
    next_page_pdf_sha256 text,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    cost double precision DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT page_extractions_page_check CHECK ((page > 0)),
    CONSTRAINT page_extractions_state_check CHECK ((state = ANY (ARRAY['done'::text, 'failed'::text]))),
    CONSTRAINT page_extractions_visual_importance_check CHECK (((visual_importance >= 1) AND (visual_importance <= 5)))
);
CREATE TABLE public.pages (
    doc_id uuid NOT NULL,
    generation integer NOT NULL,
    page integer NOT NULL,
    image_sha256 text,
    pdf_sha256 text,
    text text DEFAULT ''::text NOT NULL,
    width integer,
    height integer,
    line_start integer,
    line_end integer,
    visual real,
    CONSTRAINT pages_page_check CHECK ((page > 0)),
    CONSTRAINT pages_visual_check CHECK (((visual >= (0)::double precision) AND (visual <= (1)::double precision)))
);
CREATE TABLE public.point_counts (
    container_id text NOT NULL,
    chunk_no bigint NOT NULL,
    collection_id bigint NOT NULL,
    windows integer NOT NULL,
    CONSTRAINT point_counts_windows_check CHECK ((windows >= 0))
);
CREATE SEQUENCE public.posting_blocks
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.postings (
    container_id text NOT NULL,
    term text NOT NULL COLLATE pg_catalog."C",
    block bigint NOT NULL,
    chunk_nos bytea NOT NULL,
    tfs bytea NOT NULL,
    lens bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
ALTER TABLE ONLY public.postings ALTER COLUMN chunk_nos SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.postings ALTER COLUMN tfs SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.postings ALTER COLUMN lens SET STORAGE EXTERNAL;
CREATE TABLE public.saved_searches (
    id bigint NOT NULL,
    principal text NOT NULL,
    name text NOT NULL,
    request jsonb NOT NULL,
    saved_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.saved_searches ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.saved_searches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.schedules (
    container_id text NOT NULL,
    task text NOT NULL,
    cron text NOT NULL,
    last_at timestamp with time zone NOT NULL
);
CREATE TABLE public.secrets (
    name text NOT NULL,
    value bytea NOT NULL
);
CREATE TABLE public.signatures (
    container_id text NOT NULL,
    chunk_no bigint NOT NULL,
    bits bit varying NOT NULL
);
CREATE TABLE public.sources (
    container_id text NOT NULL,
    id uuid NOT NULL,
    root text NOT NULL,
    host text NOT NULL,
    folder text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    synced_at timestamp with time zone
);
CREATE TABLE public.spaces (
    id bigint NOT NULL,
    container_id text NOT NULL,
    embedder text NOT NULL,
    version text NOT NULL,
    dims integer NOT NULL,
    state text DEFAULT 'building'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    collection_id bigint,
    adapter_id bigint,
    embedder_dims integer,
    retired_at timestamp with time zone,
    keep_until timestamp with time zone,
    shared text,
    CONSTRAINT spaces_dims_check CHECK ((dims > 0)),
    CONSTRAINT spaces_embedder_dims_check CHECK ((embedder_dims > 0)),
    CONSTRAINT spaces_state_check CHECK ((state = ANY (ARRAY['building'::text, 'live'::text, 'retired'::text, 'dropping'::text])))
);
ALTER TABLE public.spaces ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.spaces_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE UNLOGGED TABLE public.stores_over_capacity (
    service text NOT NULL,
    reported_at timestamp with time zone NOT NULL,
    CONSTRAINT stores_over_capacity_service_check CHECK ((service = ANY (ARRAY['postgres'::text, 'qdrant'::text, 'minio'::text])))
);
CREATE TABLE public.summaries (
    doc_id uuid NOT NULL,
    generation integer NOT NULL,
    state text NOT NULL,
    front_matter jsonb DEFAULT '{}'::jsonb NOT NULL,
    text text DEFAULT ''::text NOT NULL,
    model text NOT NULL,
    prompt_version text NOT NULL,
    input_hash text NOT NULL,
    raw text,
    cause jsonb,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    cost double precision DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT summaries_state_check CHECK ((state = ANY (ARRAY['done'::text, 'failed'::text, 'skipped'::text])))
);
CREATE TABLE public.tokens (
    id bigint NOT NULL,
    sha256 bytea NOT NULL,
    principal text NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    containers text[],
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    needs_role boolean DEFAULT false NOT NULL,
    CONSTRAINT tokens_scopes_check CHECK (((cardinality(scopes) > 0) AND (scopes <@ ARRAY['read'::text, 'write'::text, 'delete'::text, 'create'::text, 'admin'::text]))),
    CONSTRAINT tokens_sha256_check CHECK ((octet_length(sha256) = 32))
)
WITH (fillfactor='80');
ALTER TABLE public.tokens ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.unmerged_postings (
    container_id text NOT NULL,
    term text NOT NULL COLLATE pg_catalog."C",
    block bigint NOT NULL,
    chunk_nos bytea NOT NULL,
    tfs bytea NOT NULL,
    lens bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05');
ALTER TABLE ONLY public.unmerged_postings ALTER COLUMN chunk_nos SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.unmerged_postings ALTER COLUMN tfs SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.unmerged_postings ALTER COLUMN lens SET STORAGE EXTERNAL;
CREATE TABLE public.uploaded_bytes (
    who text NOT NULL,
    day date NOT NULL,
    bytes bigint NOT NULL,
    notes integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.uploads (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    container_id text NOT NULL,
    sha256 text NOT NULL,
    filename text NOT NULL,
    mime text NOT NULL,
    bytes bigint NOT NULL,
    principal text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    bucket text DEFAULT ''::text NOT NULL
);
INSERT INTO public.alembic_version (version_num) VALUES
	('0007_saved_searches');
INSERT INTO public.archives (id, kind, container_id, sha256, bytes, filename, vectors, blobs, totals, contents_key, job_id, created_at, verified_at, bucket) OVERRIDING SYSTEM VALUE VALUES
	(1, 'backup', 'museum', 'cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc', 999, 'museum-1.latent.tar.zst', true, true, '{"documents": 1}', NULL, NULL, '2026-11-25 22:39:24.870541+00', NULL, '');
INSERT INTO public.audit (id, at, principal, action, container_id, object, request_id) OVERRIDING SYSTEM VALUE VALUES
	(1, '2026-11-25 22:39:24.870541+00', 'local:you', 'container.create', 'museum', NULL, NULL);
INSERT INTO public.blob_refs (doc_id, generation, role, part, sha256, mime, filename, bucket) VALUES
	('1796f15b-05db-54e8-8092-f3e94ca2707f', 1, 'original', 0, 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'text/markdown', 'lamp.md', '');
INSERT INTO public.blobs (sha256, bytes, state, touched_at, bucket) VALUES
	('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 54, 'present', '2026-11-25 22:39:24.870541+00', ''),
	('cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc', 999, 'present', '2026-11-25 22:39:24.870541+00', '');
INSERT INTO public.chunk_no_counters (container_id, next_chunk_no) VALUES
	('museum', 3);
INSERT INTO public.chunks (doc_id, generation, "position", id, container_id, chunk_no, modality, source_type, block_type, text, embed_text, page, page_end, line_start, line_end, heading_path, key_path, parent_section, table_id, row_group, offset_start, offset_end, content_hash, token_count, windows, tsv, length, provenance, meta, created_at, generated) VALUES
	('1796f15b-05db-54e8-8092-f3e94ca2707f', 1, 0, '56133825-4bf9-5e05-a7dd-cb741717cc95', 'museum', 0, 'text', 'markdown', 'paragraph', 'The lamp burns colza oil.', 'The lamp burns colza oil.', NULL, NULL, NULL, NULL, '{Lamp}', NULL, NULL, NULL, NULL, 0, 25, '3d86cc7ad2c26e0d76bf5d12e19f78d9977195e04503695e27265cc044f30742', 7, 1, '''lamp'':1', 5, '{"handler": "markdown", "handler_version": "1"}', '{}', '2026-11-25 22:39:24.870541+00', NULL),
	('1796f15b-05db-54e8-8092-f3e94ca2707f', 1, 1, '8b1caa97-4107-5713-9b69-f895d850c360', 'museum', 1, 'text', 'markdown', 'paragraph', 'Café, smørrebrød, 日本語.', 'Café, smørrebrød, 日本語.', NULL, NULL, NULL, NULL, '{Lamp}', NULL, NULL, NULL, NULL, 1, 26, '9af3fad05fc56d25d9b3cb0aad85382c6a9d0c45bc8935bedc44d530d6df4b6e', 7, 1, '''lamp'':1', 5, '{"handler": "markdown", "handler_version": "1"}', '{}', '2026-11-25 22:39:24.870541+00', NULL),
	('1796f15b-05db-54e8-8092-f3e94ca2707f', 1, 2, 'd87a96b7-c906-51a9-bfdb-9c7ddb743e65', 'museum', 2, 'text', 'markdown', 'paragraph', 'The lamp burns colza oil.', 'The lamp burns colza oil.', NULL, NULL, NULL, NULL, '{Lamp}', NULL, NULL, NULL, NULL, 2, 27, '3d86cc7ad2c26e0d76bf5d12e19f78d9977195e04503695e27265cc044f30742', 7, 1, '''lamp'':1', 5, '{"handler": "markdown", "handler_version": "1"}', '{}', '2026-11-25 22:39:24.870541+00', NULL);
INSERT INTO public.container_languages (container_id, language) VALUES
	('museum', 'english');
INSERT INTO public.containers (id, manifest, etag, state, live_space, created_at, updated_at, deleted_at, bucket) VALUES
	('museum', '{"id": "museum", "name": "Museum", "backup": {"cron": "0 3 * * *", "keep": 3}}', 'e1', 'active', 2, '2026-11-25 22:39:24.870541+00', '2026-11-25 22:39:24.870541+00', NULL, '');
INSERT INTO public.documents (id, container_id, uri, mime, source_type, title, sha256, bytes, meta, external_id, parent_id, live_generation, next_generation, floor_generation, live_chunks, fingerprint, language, source_modified_at, source_mtime_ns, first_fetched_at, fetched_at, created_at, updated_at, deleted_at, request, floor_request, validators, recipe, given_meta, origin, written_by, token_name, written_at, session, version, accepted_sha256, superseded_by, superseded_request, superseded_at, expires_at, restorable_until) VALUES
	('1796f15b-05db-54e8-8092-f3e94ca2707f', 'museum', 'file:///museum/lamp.md', 'text/markdown', 'markdown', 'Lamp', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 54, '{"room": "Nørrebro", "year": 1887}', NULL, NULL, 1, 2, 1, 3, 'f', 'english', NULL, 1700000000123456789, '2026-11-25 22:39:24.870541+00', '2026-11-25 22:39:24.870541+00', '2026-11-25 22:39:24.870541+00', '2026-11-25 22:39:24.870541+00', NULL, 0, 0, NULL, NULL, NULL, 'file', NULL, NULL, '2026-11-25 22:39:24.870541+00', NULL, 1, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.duplicates (container_id, chunk_no, signature, original) VALUES
	('museum', 0, '\x00', NULL),
	('museum', 2, '\x00', 0);
INSERT INTO public.embedding_cache (content_hash, space, vector, used_at) VALUES
	('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'local:v2', '\x00ff', '2026-11-25 22:39:24.870541+00');
INSERT INTO public.job_events (id, job_id, at, event, details) OVERRIDING SYSTEM VALUE VALUES
	(1, 1, '2026-11-25 22:39:24.995561+00', 'queued', '{}'),
	(2, 2, '2026-11-25 22:39:24.995764+00', 'queued', '{}');
INSERT INTO public.jobs (id, kind, container_id, doc_id, doc_key, dedupe_key, payload, state, waits_for, priority, rank, run_at, paused_since, attempts, max_attempts, claim_id, lease_owner, lease_expires, cancel_requested, progress_done, progress_total, progress_note, cause, warnings, principal, created_at, started_at, finished_at, result) OVERRIDING SYSTEM VALUE VALUES
	(1, 'ingest', 'museum', '1796f15b-05db-54e8-8092-f3e94ca2707f', NULL, NULL, '{"filename": "lamp.md"}', 'done', NULL, 0, 0, '2026-11-25 22:39:24.870541+00', NULL, 0, 5, NULL, NULL, NULL, false, 0, NULL, NULL, NULL, '[]', 'local:you', '2026-11-25 22:39:24.870541+00', NULL, '2026-11-25 22:39:24.870541+00', NULL),
	(2, 'ingest', 'museum', '1796f15b-05db-54e8-8092-f3e94ca2707f', NULL, NULL, '{"filename": "lamp.md"}', 'queued', NULL, 0, 0, '2026-11-25 22:39:24.870541+00', NULL, 0, 5, NULL, NULL, NULL, false, 0, NULL, NULL, NULL, '[]', 'local:you', '2026-11-25 22:39:24.870541+00', NULL, NULL, NULL);
INSERT INTO public.keyword_stats (container_id, live_chunks, live_length, unmerged_writes, unmerged_rows, dead_chunks, languages) VALUES
	('museum', 3, 13, 0, 0, 0, '{}');
INSERT INTO public.pages (doc_id, generation, page, image_sha256, pdf_sha256, text, width, height, line_start, line_end, visual) VALUES
	('1796f15b-05db-54e8-8092-f3e94ca2707f', 1, 1, 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', NULL, 'Lamp', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.postings (container_id, term, block, chunk_nos, tfs, lens) VALUES
	('museum', 'lamp', 1, '\x0000000002000000', '\x0101', '\x05000500');
INSERT INTO public.schedules (container_id, task, cron, last_at) VALUES
	('museum', 'backup', '0 3 * * *', '2026-01-01 03:00:00+00');
INSERT INTO public.signatures (container_id, chunk_no, bits) VALUES
	('museum', 0, B'1111111111111111111111111111111111111111111111111111111111111111'),
	('museum', 1, B'1111111111111111111111111111111111111111111111111111111111111111'),
	('museum', 2, B'1111111111111111111111111111111111111111111111111111111111111111');
INSERT INTO public.spaces (id, container_id, embedder, version, dims, state, created_at, collection_id, adapter_id, embedder_dims, retired_at, keep_until, shared) OVERRIDING SYSTEM VALUE VALUES
	(1, 'museum', 'local', 'v1', 384, 'retired', '2026-11-25 22:39:24.870541+00', NULL, NULL, NULL, NULL, NULL, NULL),
	(2, 'museum', 'local', 'v2', 384, 'live', '2026-11-25 22:39:24.870541+00', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.tokens (id, sha256, principal, name, scopes, containers, created_by, created_at, expires_at, last_used_at, revoked_at, needs_role) OVERRIDING SYSTEM VALUE VALUES
	(1, '\xdddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', 'guide', 'reader', '{read}', NULL, 'local:you', '2026-11-25 22:39:24.870541+00', NULL, NULL, NULL, false);
INSERT INTO public.unmerged_postings (container_id, term, block, chunk_nos, tfs, lens) VALUES
	('museum', 'café', 2, '\x01000000', '\x01', '\x0300');
INSERT INTO public.uploads (id, container_id, sha256, filename, mime, bytes, principal, created_at, bucket) VALUES
	('70741bf0-6039-46d1-b6a4-59e3e106b66c', 'museum', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'lamp.md', 'text/markdown', 54, 'local:you', '2026-11-25 22:39:24.870541+00', '');
SELECT pg_catalog.setval('public.archives_id_seq', 1, true);
SELECT pg_catalog.setval('public.audit_id_seq', 1, true);
SELECT pg_catalog.setval('public.claim_ids', 1, false);
SELECT pg_catalog.setval('public.dedup_pending_id_seq', 1, false);
SELECT pg_catalog.setval('public.drift_adapters_id_seq', 1, false);
SELECT pg_catalog.setval('public.eval_runs_id_seq', 1, false);
SELECT pg_catalog.setval('public.job_events_id_seq', 2, true);
SELECT pg_catalog.setval('public.jobs_id_seq', 2, true);
SELECT pg_catalog.setval('public.posting_blocks', 1, false);
SELECT pg_catalog.setval('public.saved_searches_id_seq', 1, false);
SELECT pg_catalog.setval('public.spaces_id_seq', 2, true);
SELECT pg_catalog.setval('public.tokens_id_seq', 1, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.archives
    ADD CONSTRAINT archives_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.blob_refs
    ADD CONSTRAINT blob_refs_pkey PRIMARY KEY (doc_id, generation, role, part);
ALTER TABLE ONLY public.blobs
    ADD CONSTRAINT blobs_pkey PRIMARY KEY (bucket, sha256);
ALTER TABLE ONLY public.chunk_no_counters
    ADD CONSTRAINT chunk_no_counters_pkey PRIMARY KEY (container_id);
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (doc_id, generation, "position");
ALTER TABLE ONLY public.container_languages
    ADD CONSTRAINT container_languages_pkey PRIMARY KEY (container_id, language);
ALTER TABLE ONLY public.containers
    ADD CONSTRAINT containers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.dead_chunk_nos
    ADD CONSTRAINT dead_chunk_nos_pkey PRIMARY KEY (container_id, block);
ALTER TABLE ONLY public.dedup_pending
    ADD CONSTRAINT dedup_pending_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.drift_adapters
    ADD CONSTRAINT drift_adapters_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.duplicates
    ADD CONSTRAINT duplicates_pkey PRIMARY KEY (container_id, chunk_no);
ALTER TABLE ONLY public.embed_rates
    ADD CONSTRAINT embed_rates_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.embed_usage
    ADD CONSTRAINT embed_usage_pkey PRIMARY KEY (job_id, embedder);
ALTER TABLE ONLY public.embedded
    ADD CONSTRAINT embedded_pkey PRIMARY KEY (doc_id, collection_id);
ALTER TABLE ONLY public.embedder_references
    ADD CONSTRAINT embedder_references_pkey PRIMARY KEY (space);
ALTER TABLE ONLY public.embedding_cache
    ADD CONSTRAINT embedding_cache_pkey PRIMARY KEY (content_hash, space);
ALTER TABLE ONLY public.eval_runs
    ADD CONSTRAINT eval_runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.former_spaces
    ADD CONSTRAINT former_spaces_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.foundings
    ADD CONSTRAINT foundings_pkey PRIMARY KEY (container_id);
ALTER TABLE ONLY public.image_texts
    ADD CONSTRAINT image_texts_pkey PRIMARY KEY (sha256, engine);
ALTER TABLE ONLY public.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (single);
ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT job_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.keyword_stats
    ADD CONSTRAINT keyword_stats_pkey PRIMARY KEY (container_id);
ALTER TABLE ONLY public.model_answers
    ADD CONSTRAINT model_answers_pkey PRIMARY KEY (container_id, key);
ALTER TABLE ONLY public.model_usage
    ADD CONSTRAINT model_usage_pkey PRIMARY KEY (container_id, job_id, purpose, model);
ALTER TABLE ONLY public.page_extractions
    ADD CONSTRAINT page_extractions_pkey PRIMARY KEY (doc_id, generation, page);
ALTER TABLE ONLY public.pages
    ADD CONSTRAINT pages_pkey PRIMARY KEY (doc_id, generation, page);
ALTER TABLE ONLY public.point_counts
    ADD CONSTRAINT point_counts_pkey PRIMARY KEY (container_id, chunk_no, collection_id);
ALTER TABLE ONLY public.postings
    ADD CONSTRAINT postings_pkey PRIMARY KEY (container_id, term, block);
ALTER TABLE ONLY public.saved_searches
    ADD CONSTRAINT saved_searches_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.saved_searches
    ADD CONSTRAINT saved_searches_principal_name_key UNIQUE (principal, name);
ALTER TABLE ONLY public.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (container_id, task);
ALTER TABLE ONLY public.secrets
    ADD CONSTRAINT secrets_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.signatures
    ADD CONSTRAINT signatures_pkey PRIMARY KEY (container_id, chunk_no);
ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_container_id_root_key UNIQUE (container_id, root);
ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_pkey PRIMARY KEY (container_id, id);
ALTER TABLE ONLY public.spaces
    ADD CONSTRAINT spaces_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.stores_over_capacity
    ADD CONSTRAINT stores_over_capacity_pkey PRIMARY KEY (service);
ALTER TABLE ONLY public.summaries
    ADD CONSTRAINT summaries_pkey PRIMARY KEY (doc_id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_sha256_key UNIQUE (sha256);
ALTER TABLE ONLY public.unmerged_postings
    ADD CONSTRAINT unmerged_postings_pkey PRIMARY KEY (container_id, term, block);
ALTER TABLE ONLY public.uploaded_bytes
    ADD CONSTRAINT uploaded_bytes_pkey PRIMARY KEY (who, day);
ALTER TABLE ONLY public.uploads
    ADD CONSTRAINT uploads_pkey PRIMARY KEY (id);
CREATE INDEX archives_blob ON public.archives USING btree (bucket, sha256);
CREATE INDEX archives_container ON public.archives USING btree (container_id, kind, id DESC);
CREATE INDEX audit_container ON public.audit USING btree (container_id, id DESC);
CREATE INDEX audit_principal ON public.audit USING btree (principal, id DESC);
CREATE INDEX blob_refs_blob ON public.blob_refs USING btree (bucket, sha256);
CREATE UNIQUE INDEX chunks_chunk_no ON public.chunks USING btree (container_id, chunk_no) INCLUDE (doc_id, generation);
CREATE INDEX chunks_document ON public.chunks USING btree (doc_id, generation) INCLUDE (container_id, chunk_no, id, windows, source_type, modality, page, page_end);
CREATE INDEX chunks_generated ON public.chunks USING btree (container_id, generated, chunk_no) INCLUDE (doc_id, generation, page) WHERE (generated IS NOT NULL);
CREATE INDEX chunks_id ON public.chunks USING btree (id);
CREATE INDEX dedup_pending_first ON public.dedup_pending USING btree (container_id, first_chunk_no, id);
CREATE INDEX documents_accepted ON public.documents USING btree (accepted_sha256) WHERE (accepted_sha256 IS NOT NULL);
CREATE INDEX documents_expiry ON public.documents USING btree (expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX documents_parent ON public.documents USING btree (parent_id) WHERE (parent_id IS NOT NULL);
CREATE INDEX documents_superseded ON public.documents USING btree (superseded_by) WHERE (superseded_by IS NOT NULL);
CREATE INDEX documents_uri ON public.documents USING btree (container_id, uri text_pattern_ops);
CREATE INDEX documents_written ON public.documents USING btree (container_id, written_at DESC, id) WHERE (deleted_at IS NULL);
CREATE INDEX drift_adapters_container ON public.drift_adapters USING btree (container_id, id);
CREATE INDEX duplicates_original ON public.duplicates USING btree (container_id, original) WHERE (original IS NOT NULL);
CREATE INDEX embed_usage_container ON public.embed_usage USING btree (container_id);
CREATE INDEX embedded_mapped ON public.embedded USING btree (collection_id, doc_id) WHERE mapped;
CREATE INDEX eval_runs_last ON public.eval_runs USING btree (container_id, dataset, setup, id DESC);
CREATE INDEX image_texts_age ON public.image_texts USING btree (created_at);
CREATE INDEX job_events_job ON public.job_events USING btree (job_id, id);
CREATE INDEX jobs_claim ON public.jobs USING btree (priority DESC, rank, id) WHERE ((state = 'queued'::text) AND (waits_for IS NULL));
CREATE UNIQUE INDEX jobs_coalesce ON public.jobs USING btree (dedupe_key) WHERE ((state = 'queued'::text) AND (dedupe_key IS NOT NULL));
CREATE INDEX jobs_document ON public.jobs USING btree (doc_id, id DESC) WHERE (doc_id IS NOT NULL);
CREATE INDEX jobs_due ON public.jobs USING btree (run_at, id) WHERE ((state = 'queued'::text) AND (waits_for = 'time'::text));
CREATE INDEX jobs_fair ON public.jobs USING btree (container_id, priority, rank) WHERE ((state = 'queued'::text) AND (waits_for IS NULL));
CREATE INDEX jobs_finished ON public.jobs USING btree (state, finished_at) WHERE (state = ANY (ARRAY['done'::text, 'failed'::text, 'cancelled'::text]));
CREATE INDEX jobs_keys ON public.jobs USING btree (waits_for, doc_key, priority DESC, rank, id) WHERE ((state = 'queued'::text) AND (doc_key IS NOT NULL));
CREATE INDEX jobs_listed ON public.jobs USING btree (container_id, state, id DESC);
CREATE INDEX jobs_queued_by ON public.jobs USING btree (principal) WHERE ((state = 'queued'::text) AND (principal <> 'local:you'::text));
CREATE INDEX jobs_running ON public.jobs USING btree (id) WHERE (state = 'running'::text);
CREATE UNIQUE INDEX jobs_serial ON public.jobs USING btree (doc_key) WHERE ((state = 'running'::text) AND (doc_key IS NOT NULL));
CREATE INDEX model_answers_document ON public.model_answers USING btree (doc_id) WHERE (doc_id IS NOT NULL);
CREATE INDEX model_answers_used ON public.model_answers USING btree (used_at);
CREATE INDEX spaces_container ON public.spaces USING btree (container_id, id);
CREATE UNIQUE INDEX spaces_one_building ON public.spaces USING btree (container_id) WHERE (state = 'building'::text);
CREATE UNIQUE INDEX spaces_one_live ON public.spaces USING btree (container_id) WHERE (state = 'live'::text);
CREATE INDEX summaries_front_matter ON public.summaries USING gin (front_matter jsonb_path_ops);
CREATE INDEX tokens_named ON public.tokens USING btree (principal, name);
CREATE INDEX uploaded_bytes_day ON public.uploaded_bytes USING btree (day);
CREATE INDEX uploads_blob ON public.uploads USING btree (bucket, sha256);
ALTER TABLE ONLY public.archives
    ADD CONSTRAINT archives_bucket_sha256_fkey FOREIGN KEY (bucket, sha256) REFERENCES public.blobs(bucket, sha256);
ALTER TABLE ONLY public.blob_refs
    ADD CONSTRAINT blob_refs_bucket_sha256_fkey FOREIGN KEY (bucket, sha256) REFERENCES public.blobs(bucket, sha256);
ALTER TABLE ONLY public.blob_refs
    ADD CONSTRAINT blob_refs_doc_id_fkey FOREIGN KEY (doc_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.chunk_no_counters
    ADD CONSTRAINT chunk_no_counters_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_doc_id_fkey FOREIGN KEY (doc_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.container_languages
    ADD CONSTRAINT container_languages_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.containers
    ADD CONSTRAINT containers_live_space_fkey FOREIGN KEY (live_space) REFERENCES public.spaces(id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE ONLY public.dedup_pending
    ADD CONSTRAINT dedup_pending_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.drift_adapters
    ADD CONSTRAINT drift_adapters_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.duplicates
    ADD CONSTRAINT duplicates_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.embed_usage
    ADD CONSTRAINT embed_usage_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.embedded
    ADD CONSTRAINT embedded_doc_id_fkey FOREIGN KEY (doc_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.eval_runs
    ADD CONSTRAINT eval_runs_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.foundings
    ADD CONSTRAINT foundings_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT job_events_job_id_fkey FOREIGN KEY (job_id) REFERENCES public.jobs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.model_answers
    ADD CONSTRAINT model_answers_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.model_answers
    ADD CONSTRAINT model_answers_doc_id_fkey FOREIGN KEY (doc_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.model_usage
    ADD CONSTRAINT model_usage_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.page_extractions
    ADD CONSTRAINT page_extractions_doc_id_fkey FOREIGN KEY (doc_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.pages
    ADD CONSTRAINT pages_doc_id_fkey FOREIGN KEY (doc_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.point_counts
    ADD CONSTRAINT point_counts_container_id_chunk_no_fkey FOREIGN KEY (container_id, chunk_no) REFERENCES public.chunks(container_id, chunk_no) ON DELETE CASCADE;
ALTER TABLE ONLY public.schedules
    ADD CONSTRAINT schedules_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.signatures
    ADD CONSTRAINT signatures_container_id_chunk_no_fkey FOREIGN KEY (container_id, chunk_no) REFERENCES public.chunks(container_id, chunk_no) ON DELETE CASCADE;
ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.spaces
    ADD CONSTRAINT spaces_adapter_id_fkey FOREIGN KEY (adapter_id) REFERENCES public.drift_adapters(id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE ONLY public.spaces
    ADD CONSTRAINT spaces_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.summaries
    ADD CONSTRAINT summaries_doc_id_fkey FOREIGN KEY (doc_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.uploads
    ADD CONSTRAINT uploads_bucket_sha256_fkey FOREIGN KEY (bucket, sha256) REFERENCES public.blobs(bucket, sha256);
ALTER TABLE ONLY public.uploads
    ADD CONSTRAINT uploads_container_id_fkey FOREIGN KEY (container_id) REFERENCES public.containers(id) ON DELETE CASCADE;
