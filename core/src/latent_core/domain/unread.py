"""File types that no parser reads, by suffix: a sync skips and counts them.

A type that gets a parser leaves this list; a test compares it with the parsers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KEYNOTE: Final = "Keynote"
"""Shares the suffix ``key`` with secrets; only the content tells them apart."""
UNREAD_TYPES: Final[Mapping[str, str]] = {
    "pages": "Pages",
    "numbers": "Numbers",
    "doc": "Word 97",
    "ppt": "PowerPoint 97",
    "pps": "PowerPoint 97",
    "xlsb": "binary Excel",
    "ods": "OpenDocument spreadsheet",
    "odp": "OpenDocument presentation",
    "one": "OneNote",
    "vsdx": "Visio",
    "mobi": "Kindle",
    "azw3": "Kindle",
    "djvu": "DjVu",
    "zip": "ZIP",
    "tar": "tar",
    "gz": "gzip",
    "tgz": "gzip",
    "bz2": "bzip2",
    "xz": "xz",
    "zst": "zstandard",
    "7z": "7-Zip",
    "rar": "RAR",
    "jar": "Java archive",
    "war": "Java archive",
    "whl": "Python wheel",
    "iso": "disk image",
    "dmg": "disk image",
    "deb": "package",
    "rpm": "package",
    "avif": "AVIF",
    "heic": "HEIC",
    "psd": "Photoshop",
    "mp3": "MP3",
    "wav": "WAV",
    "flac": "FLAC",
    "ogg": "Ogg",
    "m4a": "M4A",
    "mp4": "MP4",
    "mov": "QuickTime",
    "avi": "AVI",
    "mkv": "Matroska",
    "webm": "WebM",
    "sqlite": "SQLite",
    "sqlite3": "SQLite",
    "db": "database",
    "parquet": "Parquet",
    "arrow": "Arrow",
    "npy": "NumPy",
    "npz": "NumPy",
    "pkl": "pickle",
    "pickle": "pickle",
    "h5": "HDF5",
    "hdf5": "HDF5",
    "onnx": "ONNX",
    "pt": "PyTorch",
    "safetensors": "safetensors",
}


def unread_type(path: str) -> str | None:
    """The name of a file's type if no parser reads it."""
    name, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return UNREAD_TYPES.get(suffix.lower()) if name and dot else None
