from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageStat

from latent_core.domain.chunk import Modality, SourceType
from latent_core.domain.errors import IngestFailed
from latent_workers.chunk.pages import image_chunk, with_name
from latent_workers.parse.image.parser import words_of
from latent_workers.parse.parsed import ParsedDocument
from latent_workers.parse.registry import HEAD_BYTES, detect
from latent_workers.parse.run import parse_file
from latent_workers.render.page import RenderOptions
from latent_workers.render.run import RenderedPage, render
from latent_workers.sandbox.pool import Sandbox

ORIENTATION = 0x0112


def striped(mode: str = "RGB", size: tuple[int, int] = (120, 80)) -> Image.Image:
    """Black and white stripes in any mode."""
    gray = Image.new("L", size, 255)
    pen = ImageDraw.Draw(gray)
    for top in range(0, size[1], 20):
        pen.rectangle((0, top, size[0], top + 9), fill=0)
    if mode == "I;16":
        return gray.convert("I").point(lambda value: value * 16).convert("I;16")
    if mode in ("LA", "RGBA"):
        image = gray.convert(mode)
        image.putalpha(gray.point(lambda value: 255 - value))  # white is transparent
        return image
    return gray.convert(mode)


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


async def parsed(sandbox: Sandbox, path: Path) -> ParsedDocument:
    return await parse_file(sandbox, path, name=path.name, source_type=SourceType.IMAGE)


async def thumbnail(sandbox: Sandbox, path: Path, **options: Any) -> RenderedPage:
    async with render(
        sandbox,
        path,
        name=path.name,
        source_type=SourceType.IMAGE,
        options=RenderOptions(**options),
    ) as pages:
        (page,) = [page async for page in pages]
    return page


def png_of_size(width: int, height: int) -> bytes:
    """A PNG that says it is that large, and is not."""
    whole = io.BytesIO()
    Image.new("L", (1, 1)).save(whole, "PNG")
    data = bytearray(whole.getvalue())
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


@pytest.mark.parametrize("form", ["png", "jpeg", "webp", "gif", "bmp", "tiff"])
def test_an_image_is_known_by_its_bytes_whatever_it_is_called(tmp_path: Path, form: str) -> None:
    head = saved(tmp_path / f"a.{form}", striped()).read_bytes()[:HEAD_BYTES]
    for name in (f"a.{form}", "notes.md"):
        detected = detect(name, head)
        assert (detected.source_type, detected.mime) == (SourceType.IMAGE, f"image/{form}")


@pytest.mark.parametrize(
    ("brand", "what"), [(b"heic", "HEIC"), (b"mif1", "HEIC"), (b"avif", "AVIF")]
)
def test_pictures_that_cannot_be_read_are_refused_by_name(brand: bytes, what: str) -> None:
    with pytest.raises(IngestFailed, match=f"an? {what} image; save it as JPEG or PNG"):
        detect("photo.jpg", b"\0\0\0\x18ftyp" + brand + bytes(100))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
async def test_every_kind_of_colour_becomes_a_thumbnail_one_can_see(
    sandbox: Sandbox, tmp_path: Path, mode: str
) -> None:
    path = saved(tmp_path / "a.tiff", striped(mode))
    assert (await parsed(sandbox, path)).scanned_pages == (1,)
    page = await thumbnail(sandbox, path)
    assert page.mime == "image/webp"
    image = Image.open(io.BytesIO(page.image)).convert("L")
    assert image.size == (page.width, page.height) == (120, 80)
    assert ImageStat.Stat(image).stddev[0] > 100
    assert image.getpixel((60, 15)) == pytest.approx(255, abs=20)


async def test_a_photograph_stands_as_its_camera_was_held(sandbox: Sandbox, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    path = saved(tmp_path / "a.jpg", striped(size=(120, 80)), exif=exif)
    found = await parsed(sandbox, path)
    assert (found.meta["width"], found.meta["height"]) == (80, 120)
    page = await thumbnail(sandbox, path)
    assert (page.width, page.height) == (80, 120)


async def test_a_thumbnail_has_its_longest_edge_and_small_images_stay_as_they_are(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    path = saved(tmp_path / "a.png", striped(size=(1000, 400)))
    page = await thumbnail(sandbox, path, max_edge=500)
    assert (page.width, page.height) == (500, 200)
    page = await thumbnail(sandbox, path, max_edge=2048)
    assert (page.width, page.height) == (1000, 400)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (png_of_size(30_000, 30_000), "more than 100 million pixels"),
        (png_of_size(300, 300), "damaged image"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "damaged image"),
    ],
)
async def test_bombs_and_broken_pictures_are_refused_by_name(
    sandbox: Sandbox, tmp_path: Path, data: bytes, why: str
) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(data)
    for attempt in (parsed(sandbox, path), thumbnail(sandbox, path)):
        with pytest.raises(IngestFailed, match=rf"'a\.png' (has|is a) {why}"):
            await attempt


@pytest.mark.parametrize("form", ["gif", "tiff", "webp"])
async def test_of_several_images_in_a_file_the_first_is_read_and_the_others_are_reported(
    sandbox: Sandbox, tmp_path: Path, form: str
) -> None:
    frames = [Image.new("L", (60, 60), gray) for gray in (0, 100, 200)]
    path = saved(tmp_path / f"a.{form}", frames[0], save_all=True, append_images=frames[1:])
    (warning,) = (await parsed(sandbox, path)).warnings
    assert warning.message.startswith("Only the first of 3 images")
    image = Image.open(io.BytesIO((await thumbnail(sandbox, path)).image)).convert("L")
    assert image.getpixel((30, 30)) == pytest.approx(0, abs=10)


class Letters:
    """Tokens are characters."""

    def count(self, texts: Any) -> list[int]:
        return [len(text) for text in texts]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [(at, at + 1) for at in range(len(text))]


def test_an_image_is_one_chunk_of_the_text_it_shows() -> None:
    shown = ParsedDocument("GRAND TOTAL\n\n12 lamps", title="receipt 7")
    chunk = image_chunk(with_name(shown), Letters())
    assert chunk.text == "GRAND TOTAL\n\n12 lamps"
    assert chunk.embed_text == "receipt 7\n\nGRAND TOTAL\n\n12 lamps"
    assert (chunk.modality, chunk.source_type) == (Modality.IMAGE, SourceType.IMAGE)
    assert (chunk.place.page, chunk.place.offset_end) == (1, len(chunk.text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vehicle_form-2.jpg", "vehicle form 2"),
        ("Übersicht (Entwurf).PNG", "Übersicht Entwurf"),
        ("___.png", "image"),
    ],
)
def test_an_image_without_text_is_found_by_its_name(name: str, text: str) -> None:
    silent = ParsedDocument("", title=words_of(name))
    assert image_chunk(with_name(silent), Letters()).text == text
