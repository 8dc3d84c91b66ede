"""The examples of docs/client.md, the README and docs/how-to/clients.md run as they stand."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, Final

import pytest

from latent_client import SyncClient
from tests.support.fake_gateway.gateway import TOKEN, FakeGateway

REPOSITORY: Final = Path(__file__).parents[2]
GUIDE: Final = REPOSITORY / "docs" / "client.md"
BLOCK: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


async def test_the_examples_run(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) >= 6
    names: dict[str, Any] = {"url": gateway.url, "token": TOKEN}
    for number, block in enumerate(blocks):
        code = compile(block, f"client.md[{number}]", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, names)  # noqa: S307 - our own guide
        if inspect.isawaitable(running):
            await running


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("README.md", "Rotate the signing key at noon."),
        ("docs/how-to/clients.md", "The lamp's oil is colza oil."),
    ],
)
def test_an_example_of_a_program_runs_and_prints_a_hit(
    page: str,
    text: str,
    gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gateway.put("notes", "file:///notes/keys.md", b"Rotate the signing key at noon.")
    (tmp_path / "report.pdf").write_bytes(b"The lamp's oil is colza oil.")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".latent").mkdir()
    (tmp_path / ".latent" / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    [block] = BLOCK.findall((REPOSITORY / page).read_text(encoding="utf-8"))
    exec(compile(block.replace("http://127.0.0.1:7801", gateway.url), page, "exec"), {})
    assert text in capsys.readouterr().out


def test_the_guide_names_every_method() -> None:
    table = GUIDE.read_text(encoding="utf-8").partition("## Every method")[2]
    named = set(re.findall(r"`(\w+)`", table))
    methods = {name for name in dir(SyncClient) if not name.startswith("_")}
    assert named == methods - {"run", "iterate", "close"}
