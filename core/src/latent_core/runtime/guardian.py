"""Runs one command and ends it when the owner is gone. Run as a script, never imported:

    python -I -S guardian.py cwd=DIR log=FILE log_bytes=N grace=SECONDS
        [uid=N gid=N] [text=STDIN] [remove=DIR] -- ARGV…

Standard input is the lifeline: it closes when the owner closes it or dies. Then, and on SIGTERM, the command
gets SIGINT, SIGQUIT and SIGKILL, each after a bounded wait. If the guardian itself is killed, the kernel
sends the command SIGINT (Linux).

Standard output and error are the log, opened for appending. The exit status is that of the command,
128 + n when signal n ended it. The script has no dependencies and imports little, because it runs as long
as the server and should take little memory.
"""

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOG_CHECK_SECONDS = 30.0
QUIT_SECONDS = 8.0  # Postgres itself kills what ignores SIGQUIT after five seconds
KILL_SECONDS = 5.0
LOG = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
NOT_STARTED = 71
NOT_ENDED = 72
PR_SET_PDEATHSIG = 1


def main() -> int:
    end_of_options = sys.argv.index("--")
    options = dict(word.split("=", 1) for word in sys.argv[1:end_of_options])
    os.chdir(options["cwd"])  # a later start recognises us by this folder
    wake = wake_pipe()
    log, log_bytes = options["log"], int(options["log_bytes"])
    rotate(log, log_bytes)
    # Blocked during the fork: our handlers would lose signals that arrive before the command exists.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    pid = os.fork()
    if pid == 0:
        become(sys.argv[end_of_options + 1 :], options)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    status = watch(pid, wake, log, log_bytes)
    if status is None:
        status = end(pid, wake, float(options["grace"]))
        remove(options.get("remove", ""))
    if status is None:
        return NOT_ENDED
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def wake_pipe() -> int:
    """Signals interrupt ``select`` through a pipe, even those that arrive just before it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for signum in SIGNALS:
        signal.signal(signum, lambda *_: None)
    return reader


def become(argv: "list[str]", options: "dict[str, str]") -> None:
    """In the child: execute the command."""
    guardian = os.getppid()
    try:
        os.dup2(preloaded(options.get("text", "")), 0)
        prctl = death_signal()
        if "uid" in options:
            os.setgroups([])
            os.setgid(int(options["gid"]))
            os.setuid(int(options["uid"]))
        os.umask(0o077)
        prctl()
        for signum in (*SIGNALS, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if os.getppid() == guardian:
            os.execve(argv[0], argv, {"LC_ALL": "C"})
    except (OSError, ImportError) as exc:
        os.write(LOG, f"FATAL: cannot run {argv[0]}: {exc}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def preloaded(text: str) -> int:
    """A pipe that contains ``text``; a few lines fit its buffer."""
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    return reader


def death_signal() -> "Callable[[], object]":
    """A call that asks the kernel for SIGINT when the guardian dies. To be made after setuid, which
    clears it; imported before, since the other user may not be able to read our libraries."""
    if sys.platform != "linux":
        return lambda: None
    import ctypes  # only in the child: a megabyte the guardian can do without

    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)


def watch(pid: int, wake: int, log: str, log_bytes: int) -> "int | None":
    """The command's status if it ended by itself; None if it must be ended."""
    while True:
        if (status := reap(pid)) is not None:
            return status
        ready, _, _ = select.select([0, wake], [], [], LOG_CHECK_SECONDS)
        if 0 in ready and not os.read(0, 4096):
            return None
        if wake in ready and set(os.read(wake, 4096)) != {signal.SIGCHLD}:
            return None
        rotate(log, log_bytes)


def rotate(log: str, log_bytes: int) -> None:
    """Keep one older file. Copy and truncate, since every process of the server has the file open."""
    if os.fstat(LOG).st_size <= log_bytes:
        return
    try:
        with open(log, "rb") as current, open(log + ".1", "wb") as older:
            current.seek(-log_bytes, os.SEEK_END)
            while block := current.read(65536):
                older.write(block)
    except OSError as exc:  # a full disk: truncating matters more than keeping
        os.write(LOG, f"WARNING: the older log is not kept: {exc.strerror}\n".encode())
    os.ftruncate(LOG, 0)


def end(pid: int, wake: int, grace: float) -> "int | None":
    for signum, seconds in ((signal.SIGINT, grace), (signal.SIGQUIT, QUIT_SECONDS)):
        os.kill(pid, signum)
        if (status := wait(pid, wake, seconds)) is not None:
            return status
    for each in [pid, *children(pid)]:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return wait(pid, wake, KILL_SECONDS)


def remove(folder: str) -> None:
    """Remove the socket folder, which a killed owner cannot do."""
    try:
        os.rmdir(folder)
    except OSError:  # none given, or not empty: the next start cleans up
        return


def wait(pid: int, wake: int, seconds: float) -> "int | None":
    deadline = time.monotonic() + seconds
    while (status := reap(pid)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        if select.select([wake], [], [], left)[0]:
            os.read(wake, 4096)
    return status


def reap(pid: int) -> "int | None":
    done, status = os.waitpid(pid, os.WNOHANG)
    return status if done else None


def children(pid: int) -> "list[int]":
    """Direct children; without /proc (macOS) from ps."""
    if os.path.exists("/proc/self/stat"):
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and parent(name) == pid]
    with os.popen("ps -A -o pid= -o ppid=") as listing:
        pairs = [line.split() for line in listing]
    return [int(child) for child, owner in pairs if int(owner) == pid]


def parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile
        return 0


if __name__ == "__main__":
    sys.exit(main())
