"""Frames, the order in which the vector child works, and what it loads."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.errors import Unavailable
from latent_core.vectors.edge.child import Inbox
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.edge.peers import MAX_UNSENT_BYTES, Peer
from latent_core.vectors.edge.protocol import (
    MAX_FRAME,
    VERSION,
    Fault,
    FrameDecoder,
    ProtocolError,
    ProtocolFrame,
    VectorOp,
    VectorReply,
    VectorRequest,
    cut,
    encode,
)
from latent_core.vectors.edge.supervisor import SupervisorTimeouts
from tests.support.oracles.vector_oracle import named

SOON = 60.0
DIMS = 2
ARGS = st.dictionaries(st.text(max_size=8), st.integers(-(2**53), 2**53) | st.none() | st.text())
REQUESTS = st.builds(
    VectorRequest,
    id=st.integers(1, 2**53),
    op=st.sampled_from(VectorOp),
    deadline=st.floats(allow_nan=False, allow_infinity=False),
    collection=st.text(),
    args=ARGS,
    body=st.binary(max_size=300),
)
REPLIES = st.builds(
    VectorReply,
    id=st.integers(0, 2**53),
    fault=st.none() | st.sampled_from(Fault),
    message=st.text(),
    args=ARGS,
    body=st.binary(max_size=300),
)


def _pieces(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(stream), *(at % (len(stream) + 1) for at in cuts)})
    return (stream[start:end] for start, end in pairwise(edges))


def _frames(stream: bytes, cuts: list[int]) -> list[ProtocolFrame]:
    decoder = FrameDecoder()
    return [frame for piece in _pieces(stream, cuts) for frame in decoder.feed(piece)]


@settings(max_examples=60, deadline=None)
@given(st.lists(REQUESTS, max_size=5), st.lists(st.integers(0, 5000), max_size=20))
def test_requests_arrive_as_they_were_sent_however_the_stream_is_cut(
    requests: list[VectorRequest], cuts: list[int]
) -> None:
    stream = b"".join(request.encode() for request in requests)
    assert [VectorRequest.decode(frame) for frame in _frames(stream, cuts)] == requests


@settings(max_examples=60, deadline=None)
@given(st.lists(REPLIES, max_size=5), st.lists(st.integers(0, 5000), max_size=20))
def test_replies_arrive_as_they_were_sent_however_the_stream_is_cut(
    replies: list[VectorReply], cuts: list[int]
) -> None:
    stream = b"".join(reply.encode() for reply in replies)
    assert [VectorReply.decode(frame) for frame in _frames(stream, cuts)] == replies


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=12, max_size=200))
def test_noise_is_never_taken_for_more_than_a_protocol_error(noise: bytes) -> None:
    try:
        frames = list(FrameDecoder().feed(noise))
    except ProtocolError:
        return
    assert not frames or noise.startswith(b"LV")


def _framed(head: bytes, *, magic: bytes = b"LV", version: int = VERSION) -> bytes:
    return struct.pack("<2sBxII", magic, version, len(head), 0) + head


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (_framed(b"{}", magic=b"HT"), "starts with"),
        (_framed(b"{}", version=VERSION + 1), "version"),
        (struct.pack("<2sBxII", b"LV", VERSION, 2, MAX_FRAME), "over"),
        (_framed(b"{not json"), "not JSON"),
        (_framed(b"[1]"), "an object"),
    ],
)
def test_a_stream_that_is_not_ours_is_refused(stream: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        list(FrameDecoder().feed(stream))


@pytest.mark.parametrize("head", [{}, {"id": 1, "op": "boil", "fault": "unheard of"}])
def test_a_frame_of_another_meaning_is_refused(head: dict[str, Any]) -> None:
    (frame,) = FrameDecoder().feed(_framed(json.dumps(head).encode()))
    decoders: list[Callable[[ProtocolFrame], object]] = [VectorRequest.decode, VectorReply.decode]
    for decode in decoders:
        with pytest.raises(ProtocolError):
            decode(frame)


def test_a_frame_over_the_bound_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="over"):
        encode({}, bytes(MAX_FRAME))


def test_records_are_cut_exactly_or_not_at_all() -> None:
    assert cut(b"aabbcc", 2) == [b"aa", b"bb", b"cc"]
    assert cut(b"") == []
    with pytest.raises(ProtocolError):
        cut(b"abc", 2)


def _request(number: int, op: VectorOp, body: bytes = b"") -> VectorRequest:
    return VectorRequest(number, op, time.monotonic() + SOON, "c", {}, body)


@pytest.fixture
def peer() -> Iterator[Peer]:
    ours, theirs = socket.socketpair()
    with theirs:
        yield (opened := Peer(ours, is_owner=True))
        opened.close()


def _lose_collection(inbox: Inbox) -> list[int]:
    order = []
    while (popped := inbox.pop()) is not None:
        order.append(popped[1].id)
    return order


def test_searches_overtake_other_reads_and_reads_overtake_writes(peer: Peer) -> None:
    inbox = Inbox()
    arrived = (
        VectorOp.UPSERT,
        VectorOp.COUNT,
        VectorOp.SEARCH,
        VectorOp.DELETE,
        VectorOp.SCROLL,
        VectorOp.SEARCH,
    )
    for number, op in enumerate(arrived):
        inbox.push(peer, _request(number, op))
    assert _lose_collection(inbox) == [2, 5, 1, 4, 0, 3]


def test_a_write_is_served_even_while_searches_never_end(peer: Peer) -> None:
    inbox = Inbox()
    inbox.push(peer, _request(0, VectorOp.UPSERT))
    popped = 0
    for number in range(1, 1000):
        inbox.push(peer, _request(number, VectorOp.SEARCH))
        served = inbox.pop()
        popped += 1
        if served is not None and served[1].op is VectorOp.UPSERT:
            break
    assert popped < 100


def test_what_was_cancelled_is_never_begun(peer: Peer) -> None:
    inbox = Inbox()
    for number, op in enumerate((VectorOp.SEARCH, VectorOp.UPSERT, VectorOp.SEARCH)):
        inbox.push(peer, _request(number, op, b"12345"))
    for number in (0, 1, 77):
        inbox.cancel(peer, number)
    assert inbox.bytes == 15
    assert _lose_collection(inbox) == [2]
    assert inbox.bytes == 0


class Engine:
    """A vector child, spoken to frame by frame."""

    def __init__(
        self, folder: Path, process: subprocess.Popen[bytes], connection: socket.socket
    ) -> None:
        self.folder = folder
        self.process = process
        self.connection = connection
        self._decoder = FrameDecoder()
        self._heard: list[VectorReply] = []

    def send(self, *requests: VectorRequest) -> None:
        """All in one piece, so that the child takes them in at once."""
        self.connection.sendall(b"".join(request.encode() for request in requests))

    def hear(self, count: int) -> list[VectorReply]:
        while len(self._heard) < count:
            data = self.connection.recv(1 << 16)
            assert data, "the child has hung up"
            self._heard += [VectorReply.decode(frame) for frame in self._decoder.feed(data)]
        heard, self._heard = self._heard[:count], self._heard[count:]
        return heard

    def ask(self, request: VectorRequest) -> VectorReply:
        self.send(request)
        return self.hear(1)[0]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """With one empty collection, ``c``."""
    ours, theirs = socket.socketpair()
    program = [
        sys.executable,
        "-I",
        "-m",
        "latent_core.vectors.edge.child",
        "--folder",
        str(tmp_path),
    ]
    options = ["--socket", str(theirs.fileno()), "--min-free-bytes", "0"]
    process = subprocess.Popen(
        [*program, *options], stdin=subprocess.PIPE, pass_fds=(theirs.fileno(),)
    )
    theirs.close()
    ours.settimeout(SOON)
    with ours:
        engine = Engine(tmp_path, process, ours)
        assert engine.hear(1)[0].id == 0
        create = VectorRequest(1, VectorOp.CREATE, time.monotonic() + SOON, "c", {"dims": DIMS})
        assert engine.ask(create).fault is None
        yield engine
        process.kill()
        process.communicate()


def _upsert(number: int, *, deadline: float | None = None) -> VectorRequest:
    body = named(f"{number}").bytes + named("doc").bytes
    body += struct.pack("=qqff", 1, number, 1.0, number)
    until = time.monotonic() + SOON if deadline is None else deadline
    return VectorRequest(number, VectorOp.UPSERT, until, "c", {"n": 1, "dims": DIMS}, body)


def _count(number: int) -> VectorRequest:
    return VectorRequest(number, VectorOp.COUNT, time.monotonic() + SOON, "c", {"generation": None})


def _search(number: int) -> VectorRequest:
    args = {"dims": DIMS, "k": 3, "filtered": False}
    body = struct.pack("=ff", 1.0, 0.0)
    return VectorRequest(number, VectorOp.SEARCH, time.monotonic() + SOON, "c", args, body)


def test_the_child_answers_a_search_before_the_writes_that_came_before_it(engine: Engine) -> None:
    engine.send(*(_upsert(number) for number in range(10, 30)), _search(30))
    replies = engine.hear(21)
    assert [reply.id for reply in replies] == [30, *range(10, 30)]
    assert all(reply.fault is None for reply in replies)


def test_the_child_never_begins_what_is_overdue(engine: Engine) -> None:
    engine.send(_upsert(10, deadline=time.monotonic() - 1), _upsert(11))
    assert [reply.fault for reply in engine.hear(2)] == [Fault.TIMED_OUT, None]
    assert engine.ask(_count(12)).args == {"count": 1}


def test_the_child_never_begins_what_was_cancelled(engine: Engine) -> None:
    cancel = VectorRequest(10, VectorOp.CANCEL, time.monotonic() + SOON)
    engine.send(_upsert(10), cancel, _upsert(11))
    assert engine.hear(1)[0].id == 11
    assert engine.ask(_count(12)).args == {"count": 1}


def test_the_child_answers_a_ping_before_all_work(engine: Engine) -> None:
    engine.send(_upsert(10), _search(11), VectorRequest(12, VectorOp.PING, time.monotonic() + SOON))
    assert [reply.id for reply in engine.hear(3)] == [12, 11, 10]


def test_the_child_refuses_a_request_it_cannot_serve_and_goes_on(engine: Engine) -> None:
    broken = VectorRequest(
        10, VectorOp.UPSERT, time.monotonic() + SOON, "c", {"n": 5, "dims": DIMS}, b"short"
    )
    reply = engine.ask(broken)
    assert reply.fault is Fault.UNAVAILABLE
    assert "latent doctor" in reply.message
    assert engine.ask(_count(11)).args == {"count": 0}


def test_the_child_ends_when_its_owner_talks_nonsense(engine: Engine) -> None:
    engine.connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert engine.process.wait(SOON) != 0


def test_the_child_ends_when_its_lifeline_closes(engine: Engine) -> None:
    assert engine.process.stdin is not None
    engine.process.stdin.close()
    assert engine.process.wait(SOON) != 0


def test_the_child_exits_cleanly_on_request(engine: Engine) -> None:
    engine.send(_upsert(10))
    engine.hear(1)
    assert engine.ask(VectorRequest(11, VectorOp.CLOSE, time.monotonic() + SOON)).fault is None
    assert engine.process.wait(SOON) == 0


def _ended_process() -> dict[str, float]:
    """As the record of a folder names it: a process that ran, and does no more."""
    gone = subprocess.Popen(["true"])
    record = {"pid": gone.pid, "started": psutil.Process(gone.pid).create_time()}
    gone.wait()
    return record


async def test_a_leftover_child_that_does_not_end_by_itself_is_ended(engine: Engine) -> None:
    """Its lifeline stays open here, although its owner is gone."""
    started = psutil.Process(engine.process.pid).create_time()
    record = {"child": {"pid": engine.process.pid, "started": started}, "owner": _ended_process()}
    (engine.folder / "engine.json").write_text(json.dumps(record), encoding="utf-8")
    index = await EdgeVectorIndex.open(engine.folder, timeouts=SupervisorTimeouts(leftover=0.1))
    assert await index.count("c") == 0
    await index.close()
    assert engine.process.wait(SOON) == -signal.SIGKILL


async def test_a_holder_that_nobody_knows_is_never_killed(engine: Engine) -> None:
    with pytest.raises(Unavailable, match="unknown process"):
        await EdgeVectorIndex.open(engine.folder, timeouts=SupervisorTimeouts(leftover=0.1))
    assert engine.ask(_count(10)).args == {"count": 0}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("latent_core.vectors.edge.child", {"pydantic", "psutil", "asyncio", "qdrant_edge"}),
        ("latent_core.vectors.edge.index", {"qdrant_edge", "simsimd"}),
    ],
)
def test_neither_side_loads_what_only_the_other_needs(module: str, unwanted: set[str]) -> None:
    program = f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
    )
    assert not unwanted & set(json.loads(done.stdout))


def test_requests_of_a_process_that_is_gone_are_not_begun(peer: Peer) -> None:
    inbox = Inbox()
    ours, theirs = socket.socketpair()
    leaving = Peer(ours, is_owner=False)
    kept = _request(1, VectorOp.UPSERT)
    inbox.push(leaving, _request(1, VectorOp.UPSERT))
    inbox.push(peer, kept)
    theirs.close()
    assert list(leaving.receive()) == []
    assert inbox.pop() == (peer, kept)
    assert inbox.pop() is None
    leaving.close()


def test_a_process_that_reads_no_replies_is_dropped_and_never_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        peer = Peer(ours, is_owner=False)
        reply = b"x" * (MAX_UNSENT_BYTES // 4)
        for _ in range(3):
            peer.send(reply)
            assert peer.is_open
        for _ in range(2):
            peer.send(reply)
        assert not peer.is_open
        peer.close()
