"""Words of pages with their boxes: those of OCR are kept, those of PDFs are read on request and forgotten.

Revision ID: 0013_page_words
Revises: 0012_container_sizes
"""

from alembic import op

revision = "0013_page_words"
down_revision = "0012_container_sizes"
branch_labels = None
depends_on = None

CHANGE = """
ALTER TABLE pages
    ADD COLUMN IF NOT EXISTS words jsonb,            -- [[text, left, top, right, bottom], ...], edges in 1/10000 of the page
    ADD COLUMN IF NOT EXISTS words_at timestamptz;   -- when they were read from the PDF; NULL: by OCR, with the text
CREATE INDEX IF NOT EXISTS pages_words_age ON pages (words_at) WHERE words_at IS NOT NULL;
"""


def upgrade() -> None:
    op.execute(CHANGE)


def downgrade() -> None:
    raise RuntimeError("revisions are not taken back; restore a backup instead")
