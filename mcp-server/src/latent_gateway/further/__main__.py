"""A further gateway process. Run by the first one:

    python -m latent_gateway.further MESSAGES CONNECTIONS MEMORY

with the numbers of two sockets and of a file, and a pickled ``Handoff`` on standard input, which closes when the first process dies.
"""

from __future__ import annotations

import pickle
import socket
import sys

from latent_core.runtime import process
from latent_core.runtime.imports import quick_imports
from latent_core.runtime.lifeline import signal_on_parent_death, watch_parent


def main() -> None:
    signal_on_parent_death()
    messages, connections, memory = map(int, sys.argv[1:])
    with quick_imports():
        from latent_gateway.auth.shared_memory import SharedMemory
        from latent_gateway.further.serving import serve

        handoff = pickle.load(sys.stdin.buffer)
    watch_parent(sys.stdin.fileno())
    sockets = socket.socket(fileno=messages), socket.socket(fileno=connections)
    process.run(serve(handoff, *sockets, SharedMemory(memory, handoff.number)))


if __name__ == "__main__":
    main()
