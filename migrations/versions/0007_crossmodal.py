"""Search by image: what OCR read in pictures that were only asked about, and how much of a page is picture.

Revision ID: 0007
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Of pages drawn before it stays NULL until they are drawn again: nothing is known of them.
PAGES = "ALTER TABLE pages ADD COLUMN visual real CHECK (visual BETWEEN 0 AND 1)"

IMAGE_TEXTS = """
-- Text of uploaded pictures, by the bytes and by the engine that read them; forgotten after some days.
CREATE TABLE image_texts (
    sha256     text NOT NULL,
    engine     text NOT NULL,
    text       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (sha256, engine)
);
CREATE INDEX image_texts_age ON image_texts (created_at);
"""


def upgrade() -> None:
    op.execute(PAGES)
    op.execute(IMAGE_TEXTS)


def downgrade() -> None:
    op.execute("DROP TABLE image_texts")
    op.execute("ALTER TABLE pages DROP COLUMN visual")
