"""Understanding: chunks, summaries and page extractions that a language model wrote, its answers and their cost.

Revision ID: 0005_understanding
Revises: 0004_sources
"""

from alembic import op

revision = "0005_understanding"
down_revision = "0004_sources"
branch_labels = None
depends_on = None

CHANGE = """
-- NULL: read from the source. Else what a model wrote about it; provenance.generated names model, prompt and time.
ALTER TABLE chunks ADD COLUMN generated text
    CHECK (generated IN ('summary', 'page', 'visual', 'caption', 'transcript'));
CREATE INDEX chunks_generated ON chunks (container_id, generated, chunk_no) INCLUDE (doc_id, generation, page)
WHERE generated IS NOT NULL;

CREATE TABLE summaries (
    doc_id         uuid PRIMARY KEY REFERENCES documents (id) ON DELETE CASCADE,
    generation     integer NOT NULL,
    state          text NOT NULL CHECK (state IN ('done', 'failed', 'skipped')),
    front_matter   jsonb NOT NULL DEFAULT '{}',
    text           text NOT NULL DEFAULT '',
    model          text NOT NULL,             -- <provider>/<model>
    prompt_version text NOT NULL,
    input_hash     text NOT NULL,             -- of everything that the model read
    raw            text,                      -- of a failed one: the model's answer
    cause          jsonb,                     -- why it failed or was skipped
    input_tokens   bigint NOT NULL DEFAULT 0,
    output_tokens  bigint NOT NULL DEFAULT 0,
    cost           double precision NOT NULL DEFAULT 0,
    created_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX summaries_front_matter ON summaries USING gin (front_matter jsonb_path_ops);

CREATE TABLE page_extractions (
    doc_id               uuid NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    generation           integer NOT NULL,
    page                 integer NOT NULL CHECK (page > 0),
    state                text NOT NULL CHECK (state IN ('done', 'failed')),
    extraction           jsonb,               -- NULL: failed
    visual_importance    smallint CHECK (visual_importance BETWEEN 1 AND 5),
    raw                  text,                -- of a failed one: the model's answer
    cause                jsonb,
    model                text NOT NULL,
    prompt_version       text NOT NULL,
    version              text NOT NULL,       -- of the schema
    page_hash            text NOT NULL,       -- of everything that the model read
    next_page            integer,             -- that it consulted; NULL: none
    pdf_sha256           text,
    page_pdf_sha256      text,
    next_page_pdf_sha256 text,
    input_tokens         bigint NOT NULL DEFAULT 0,
    output_tokens        bigint NOT NULL DEFAULT 0,
    cost                 double precision NOT NULL DEFAULT 0,
    created_at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (doc_id, generation, page)
);

-- Each answer of a model, so that none is paid for twice. It goes with its container, its document, or after some
-- weeks without use.
CREATE TABLE model_answers (
    container_id   text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    key            text NOT NULL,             -- SHA-256 of purpose, prompt version, model, input hash, schema version
    doc_id         uuid REFERENCES documents (id) ON DELETE CASCADE,
    purpose        text NOT NULL,
    prompt_version text NOT NULL,
    model          text NOT NULL,
    text           text NOT NULL,
    stop           text NOT NULL CHECK (stop IN ('end', 'length', 'refusal')),
    input_tokens   bigint NOT NULL,
    output_tokens  bigint NOT NULL,
    cost           double precision NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    used_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (container_id, key)
);
CREATE INDEX model_answers_document ON model_answers (doc_id) WHERE doc_id IS NOT NULL;
CREATE INDEX model_answers_used ON model_answers (used_at);

-- Usage of language models by each job; it outlives the job's row. Job 0: no job, a question.
CREATE TABLE model_usage (
    job_id         bigint NOT NULL,
    container_id   text NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    purpose        text NOT NULL,
    model          text NOT NULL,
    calls          bigint NOT NULL,
    input_tokens   bigint NOT NULL,
    output_tokens  bigint NOT NULL,
    cost           double precision NOT NULL,
    PRIMARY KEY (container_id, job_id, purpose, model)
);
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
