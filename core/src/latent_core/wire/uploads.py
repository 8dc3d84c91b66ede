"""Uploads: bytes that wait for their ingest."""

from __future__ import annotations

from pydantic import BaseModel

from latent_core.domain.envelope import Envelope


class UploadView(BaseModel):
    file_ref: str
    filename: str
    mime: str
    bytes: int
    sha256: str


class UploadAnswer(Envelope):
    upload: UploadView
