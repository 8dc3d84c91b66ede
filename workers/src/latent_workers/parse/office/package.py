"""A ZIP package of XML parts, read within limits: nothing is unpacked to a disk, and no entity is resolved."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import unquote

from lxml import etree
from lxml.etree import _Element as Element

from latent_core.domain.errors import IngestFailed

MIB: Final = 1024 * 1024
MAX_PARTS: Final = 20_000
MAX_PART: Final = 48 * MIB
"""Bytes of an XML part that is read as a tree, which takes several times as much memory."""
MAX_READ: Final = 256 * MIB
"""Bytes of all parts that are read together. Pictures and films are not read."""
MAX_RATIO: Final = 500
"""Of an unpacked part's size to its packed one; XML of real files reaches about 100."""
_SMALL: Final = MIB
"""Below it the ratio says nothing."""
_PIECE: Final = MIB
_DOCTYPE: Final = re.compile(rb"<!(?:DOCTYPE|ENTITY)")
_RELATIONSHIPS: Final = "_rels"


class Relationship(NamedTuple):
    kind: str
    """The last part of its type: ``slide``, ``image``."""
    target: str
    """The part's name in the package; the address of an external one."""


class Package:
    """``IngestFailed`` names what is wrong with a package that cannot be read."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._left = MAX_READ
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as exc:
            raise self._damaged(str(exc)) from exc
        infos = self._zip.infolist()
        if len(infos) > MAX_PARTS:
            raise self._bomb(f"{len(infos):,} parts; the limit is {MAX_PARTS:,}")
        # Names differ in case between the list and the archive in some files.
        self._infos = {info.filename.lstrip("/").replace("\\", "/").lower(): info for info in infos}

    def __contains__(self, part: str) -> bool:
        return part.lower() in self._infos

    def names(self) -> list[str]:
        return [info.filename.lstrip("/") for info in self._infos.values()]

    def read(self, part: str) -> bytes:
        info = self._checked(part, MAX_PART)
        try:
            return self._zip.read(info)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as exc:
            raise self._damaged(f"{part}: {exc}") from exc

    def pieces(self, part: str) -> Iterator[bytes]:
        """A part piece by piece, for one that is not held in memory."""
        info = self._checked(part, MAX_READ)
        try:
            with self._zip.open(info) as file:
                while piece := file.read(_PIECE):
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as exc:
            raise self._damaged(f"{part}: {exc}") from exc

    def xml(
        self,
        part: str,
        *,
        of_each: str | None = None,
        shrink: Callable[[Element], None] | None = None,
    ) -> Element:
        """The root. ``shrink`` is called with each element ``of_each``, when it is complete, and may remove from it."""
        if of_each is None or shrink is None:
            return parse_xml(self.read(part), self._name, part)
        return _shrunk(self.read(part), self._name, part, of_each, shrink)

    def relationships(self, part: str = "") -> dict[str, Relationship]:
        """Those of a part, or of the package, by id."""
        folder, _, file = part.rpartition("/")
        listed = posixpath.join(folder, _RELATIONSHIPS, f"{file}.rels")
        if listed not in self:
            return {}
        return {
            one.get("Id", ""): Relationship(
                one.get("Type", "").rpartition("/")[2], _resolved(folder, one)
            )
            for one in self.xml(listed)
            if isinstance(one.tag, str)
        }

    def _checked(self, part: str, limit: int) -> zipfile.ZipInfo:
        info = self._infos.get(part.lower())
        if info is None:
            raise self._damaged(f"it lacks {part}")
        if info.flag_bits & 1:
            raise IngestFailed(
                f"'{self._name}' has encrypted parts: save it without encryption",
                reason="encrypted",
            )
        size, packed = info.file_size, max(1, info.compress_size)
        if size > limit:
            raise self._bomb(f"{part} has {size:,} bytes; the limit is {limit:,}")
        if size > _SMALL and size > MAX_RATIO * packed:
            raise self._bomb(f"{part} is packed {size // packed} times smaller")
        self._left -= size
        if self._left < 0:
            raise self._bomb(f"its parts have more than {MAX_READ:,} bytes")
        return info

    def _damaged(self, cause: str) -> IngestFailed:
        return IngestFailed(
            f"'{self._name}' is damaged ({cause[:200]}): open it in its program and save it again",
            reason="damaged",
        )

    def _bomb(self, cause: str) -> IngestFailed:
        return IngestFailed(
            f"'{self._name}' unpacks to too much ({cause}): split it or save it in parts",
            reason="size",
        )


_SAFE: Final[dict[str, Any]] = {
    "resolve_entities": False,
    "load_dtd": False,
    "no_network": True,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}
"""Of every parser of XML."""


def refuse_entities(data: bytes, name: str, part: str) -> None:
    """``IngestFailed`` if the beginning of a part has a document type."""
    if _DOCTYPE.search(data[:MIB].replace(b"\0", b"")):
        raise IngestFailed(
            f"'{name}' defines its own XML entities in {part}, which may read files or grow without end: "
            "open it in its program and save it again",
            reason="entities",
        )


def parse_xml(data: bytes, name: str, part: str) -> Element:
    """The root. A document type, with which entities come, is refused: these formats have none."""
    refuse_entities(data, name, part)
    try:
        return etree.fromstring(data, etree.XMLParser(**_SAFE))
    except (etree.XMLSyntaxError, ValueError) as exc:
        raise _not_xml(name, part, exc) from exc


def _shrunk(
    data: bytes, name: str, part: str, of_each: str, shrink: Callable[[Element], None]
) -> Element:
    """As ``parse_xml``, for a part whose whole tree would take ten times the memory of its words."""
    refuse_entities(data, name, part)
    parsing = etree.iterparse(io.BytesIO(data), events=("end",), tag=f"{{*}}{of_each}", **_SAFE)
    try:
        for _, element in parsing:
            shrink(element)
    except (etree.XMLSyntaxError, ValueError) as exc:
        raise _not_xml(name, part, exc) from exc
    return parsing.root


def _not_xml(name: str, part: str, exc: Exception) -> IngestFailed:
    if isinstance(exc, etree.XMLSyntaxError) and exc.lineno == 0 and "unknown error" in str(exc):
        raise MemoryError from exc  # libxml2 had no memory for a node, and none for the message
    return IngestFailed(
        f"'{name}' is damaged ({part}: {str(exc)[:200]}): open it in its program and save it again",
        reason="damaged",
    )


def _resolved(folder: str, relationship: Element) -> str:
    target = relationship.get("Target", "")
    if relationship.get("TargetMode") == "External":
        return str(target)
    path = unquote(target.partition("#")[0])
    joined = path if path.startswith("/") else posixpath.join(folder, path)
    return str(posixpath.normpath(joined)).lstrip("/")


# Strict and transitional files use different namespaces for the same elements: local names tell them apart well enough.


def local(element: Element) -> str:
    """The tag without its namespace; empty for what is no element."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Element | None, name: str) -> str | None:
    """An attribute by its local name."""
    if element is None:
        return None
    for key, value in element.attrib.items():
        if str(key).rpartition("}")[2] == name:
            return str(value)
    return None


def child(element: Element | None, *path: str) -> Element | None:
    """The first child along local names."""
    for name in path:
        if element is None:
            return None
        element = next((one for one in element if local(one) == name), None)
    return element


def children(element: Element | None, name: str) -> list[Element]:
    return [] if element is None else [one for one in element if local(one) == name]


def whole_number(text: str | None, default: int = 0) -> int:
    try:
        return int(text or "")
    except ValueError:
        return default


def properties(package: Package) -> dict[str, Any]:
    """``title``, ``author``, ``date`` and ``modified`` of an Office package, as far as they are given."""
    part = next(
        (r.target for r in package.relationships().values() if r.kind == "core-properties"), ""
    )
    if part not in package:
        return {}
    named = {
        "title": "title",
        "creator": "author",
        "created": "date",
        "modified": "modified",
    }
    found = {
        named.get(local(one), ""): " ".join((one.text or "").split()) for one in package.xml(part)
    }
    return {key: value for key, value in found.items() if key and value}
