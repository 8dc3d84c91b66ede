"""A further gateway process. Run by the first one:

    python -m latent_gateway.further MESSAGES CONNECTIONS

with the numbers of two sockets, and a pickled ``Handoff`` on standard input, which closes when the first process dies.
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
    messages, connections = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    with quick_imports():
        from latent_gateway.further.serving import serve

        handoff = pickle.load(sys.stdin.buffer)
    watch_parent(sys.stdin.fileno())
    process.run(serve(handoff, messages, connections))


if __name__ == "__main__":
    main()
