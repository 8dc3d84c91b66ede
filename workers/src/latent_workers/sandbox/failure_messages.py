"""Why a task failed, in words a person can act on."""

from __future__ import annotations

import signal

from latent_core.domain.errors import IngestFailed
from latent_workers.sandbox.budget import MIB, Budget
from latent_workers.sandbox.frames import TaskFailed


def of_death(label: str, budget: Budget, status: int, tail: str) -> IngestFailed:
    """The child died by itself: its exit status and last words tell why."""
    if status == -signal.SIGXCPU:
        return of_cpu(label, budget)
    if "bad_alloc" in tail or "MemoryError" in tail or "out of memory" in tail.lower():
        return of_memory(label, budget)
    if status == -signal.SIGKILL:
        return IngestFailed(
            f"{label} was killed by the system (signal 9), most likely for want of memory",
            reason="killed",
        )
    if status < 0:
        return IngestFailed(f"{label} crashed (signal {-status})", reason="crash")
    return IngestFailed(f"{label} ended without an answer (exit status {status})", reason="crash")


def of_cpu(label: str, budget: Budget) -> IngestFailed:
    return IngestFailed(f"{label} used more than {budget.cpu_seconds} s of CPU", reason="cpu")


def of_wall(label: str, budget: Budget) -> IngestFailed:
    return IngestFailed(f"{label} took longer than {budget.wall_seconds:g} s", reason="wall")


def of_memory(label: str, budget: Budget) -> IngestFailed:
    return IngestFailed(
        f"{label} needed more than {budget.memory_bytes // MIB} MB of memory", reason="memory"
    )


def of_output(label: str, budget: Budget) -> IngestFailed:
    return IngestFailed(
        f"{label} gave more than {budget.output_bytes // MIB} MB of output", reason="output"
    )


def of_answer(label: str, budget: Budget, failed: TaskFailed) -> IngestFailed:
    """The child itself said what went wrong."""
    if failed.reason == "refused":
        refusal = IngestFailed(failed.message)
        refusal.details = failed.details
        return refusal
    if failed.reason == "memory":
        return of_memory(label, budget)
    return IngestFailed(f"{label} failed: {failed.message}", reason="error")


def of_nonsense(label: str) -> IngestFailed:
    return IngestFailed(f"{label} gave an answer that could not be read", reason="nonsense")
