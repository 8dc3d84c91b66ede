"""How the stand-in for a Qdrant server misbehaves on demand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.support.servers.qdrant_refusals import (
    FakeRefusal,
    disk_quota,
    insufficient_storage,
    rate_limited,
    service_error,
)


class QdrantFault(StrEnum):
    SILENT = "silent"
    """Reads the request and does not answer for as long as anybody waits."""
    HUNG_UP = "hung_up"
    NOT_COMPLETED = "not_completed"
    """Writes are done after the ``timeout`` of the request: they answer ``wait_timeout``."""
    LOST = "lost"
    """Writes answer ``completed``, and are not done."""
    SERVER_ERROR = "server_error"
    DISK_FULL = "disk_full"
    FILE_ERROR = "file_error"
    """The disk is full where the server has not checked it before it writes."""
    DISK_QUOTA = "disk_quota"
    MEMORY_QUOTA = "memory_quota"
    TOO_MANY = "too_many"
    TOO_MANY_PLAIN = "too_many_plain"
    """429 of something before the server: without ``Retry-After``."""
    RECOVERING = "recovering"
    """503: a shard is replaced by a snapshot."""
    NOT_READABLE = "not_readable"
    """The collection is being created."""
    NO_REPLICA = "no_replica"
    DEAD_REPLICA = "dead_replica"
    """The write consistency cannot be reached."""
    NO_LEADER = "no_leader"
    RECOVERY_MODE = "recovery_mode"
    TIMED_OUT = "timed_out"
    BAD_GATEWAY = "bad_gateway"
    """A proxy before the server."""
    NO_ROUTE = "no_route"
    """A proxy that knows no server while it is away."""


@dataclass(frozen=True, slots=True)
class QdrantFaultPlan:
    """What the next ``times`` requests whose path contains ``only`` get instead of a good answer."""

    kind: QdrantFault
    times: int = 1
    only: str = ""


REFUSALS: Final[dict[QdrantFault, FakeRefusal]] = {
    QdrantFault.SERVER_ERROR: service_error("task panicked"),
    # lib/collection/src/shards/local_shard/shard_ops.rs
    QdrantFault.DISK_FULL: service_error(
        "No space left on device: WAL buffer size exceeds available disk space"
    ),
    # ``From<std::io::Error>`` in lib/collection/src/operations/types.rs
    QdrantFault.FILE_ERROR: service_error("File IO error: No space left on device (os error 28)"),
    QdrantFault.DISK_QUOTA: disk_quota(95, 90),
    QdrantFault.MEMORY_QUOTA: insufficient_storage(
        "Resident memory usage is at 88% of total memory. It reached the configured limit of 90% and has to fall "
        "below 85% before this node takes writes again. Help: Reduce memory usage (e.g. delete points or drop "
        "collections), or raise `max_resident_memory_percent` in the global quota config."
    ),
    QdrantFault.TOO_MANY: rate_limited(
        "Read",
        ": Operation requires 1 tokens but only 0.0 were available. Retry after 3s",
        retry_after=3,
    ),
    QdrantFault.TOO_MANY_PLAIN: FakeRefusal(429, "Too Many Requests", plain=True),
    # lib/collection/src/shards/replica_set/partial_snapshot_meta.rs
    QdrantFault.RECOVERING: FakeRefusal(
        503, "Shard temporarily unavailable: partial snapshot recovery is in progress"
    ),
    # lib/collection/src/shards/replica_set/execute_read_operation.rs
    QdrantFault.NOT_READABLE: service_error("0 of 0 read operations failed"),
    # lib/collection/src/shards/replica_set/update.rs
    QdrantFault.NO_REPLICA: service_error(
        "The replica set for shard 0 on peer 4711 has no active replica"
    ),
    # lib/api/src/grpc/transport_channel_pool.rs, by ``From<tonic::Status>``
    QdrantFault.DEAD_REPLICA: service_error(
        "2 out of 3 shards failed to apply operation. First error captured: Service internal error: Tonic status error: "
        "code: 'The service is currently unavailable', message: \"Failed to connect to http://node-2:6335/, error: "
        'transport error"'
    ),
    # lib/storage/src/content_manager/consensus_manager.rs
    QdrantFault.NO_LEADER: service_error(
        "Waiting for consensus operation commit failed. Timeout set at: 10 seconds"
    ),
    # lib/collection/src/shards/dummy_shard.rs, by replica_set/execute_read_operation.rs
    QdrantFault.RECOVERY_MODE: service_error(
        "1 of 1 read operations failed:\n  Service internal error: Failed to retrieve,  Qdrant was restarted after "
        "it ran out of memory"
    ),
    # lib/collection/src/operations/types.rs
    QdrantFault.TIMED_OUT: FakeRefusal(
        408, "Timeout: Timeout error: Operation 'Count' timed out after 2s"
    ),
    QdrantFault.NO_ROUTE: FakeRefusal(404, "404 page not found", plain=True),
    QdrantFault.BAD_GATEWAY: FakeRefusal(502, "<html><h1>502 Bad Gateway</h1></html>", plain=True),
}
