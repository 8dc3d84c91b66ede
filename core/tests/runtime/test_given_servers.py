"""Suites for servers that a run was given: without an address they are skipped by name, with one they must reach it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support import REPOSITORY
from tests.support.servers.launch import POSTGRES, QDRANT, S3, qdrant_address

TESTS = "core/tests"
REST = f"{TESTS}/vectors/test_vectors_qdrant.py::TestContractByRest::test_an_empty_collection_answers_nothing"
BLOBS = f"{TESTS}/blobs/test_blobs_s3.py::TestContractOfTheGivenServer::test_what_is_absent_is_not_found"
ROWS = (
    f"{TESTS}/runtime/test_observability.py::test_the_oldest_transaction_is_that_of_somebody_else"
)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that is taken and at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def run_of(folder: Path, tests: tuple[str, ...], given: dict[str, str]) -> dict[str, list[str]]:
    """Another run of pytest, told these addresses only: names by how they ended."""
    inherited = os.environ.items()  # noqa: TID251 - handed on to a process, not read
    kept = {k: v for k, v in inherited if not k.startswith(("LLC_TEST_", "PYTEST_"))}
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, f"--basetemp={folder / 'inner'}", f"--junitxml={report}", *tests],
        cwd=REPOSITORY,
        env=kept | given,
        capture_output=True,
        timeout=110,
        check=False,
    )
    ends: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):  # our own report
        end = "passed" if len(case) == 0 else case[0].tag
        ends.setdefault(end, []).append(case.attrib["classname"].rpartition(".")[2])
    return ends


@pytest.mark.slow
def test_a_suite_whose_address_is_given_and_leads_to_nobody_fails_and_is_not_skipped(
    tmp_path: Path, nobody: str
) -> None:
    given = {
        POSTGRES: f"postgresql://latent@{nobody}/latent",
        QDRANT: f"http://{nobody}",
        S3: f"http://{nobody}",
    }
    ends = run_of(tmp_path, (REST, BLOBS, ROWS), given)
    assert sorted(ends.pop("error")) == [
        "TestContractByRest",
        "TestContractOfTheGivenServer",
        "test_observability",
    ]
    assert ends == {}


def test_a_suite_whose_address_is_not_given_is_skipped_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(QDRANT, raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"VectorIndex: not run, since {QDRANT}"):
        qdrant_address("VectorIndex")
