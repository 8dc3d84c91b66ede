"""Kinds of archives: files with the contents of a container."""

from __future__ import annotations

from enum import StrEnum


class ArchiveKind(StrEnum):
    EXPORT = "export"
    BACKUP = "backup"
    IMPORT = "import"
