"""How a run ended: the words of records, documents and notifications."""

import signal
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from profiler.core.errors import FIRST_SIGNAL_EXIT_CODE
from profiler.core.optional_math import known

EndStatus = Literal["success", "failure", "stopped", "unknown"]
Status = Literal["success", "failure", "stopped", "running", "unknown"]
# Why a run ended, in one word: ``task.outcome`` of a document.
Cause = Literal[
    "success",
    "failure",
    "oom",
    "gpu-oom",
    "gpu-error",
    "timeout",
    "user",
    "spot",
    "scheduler",
    "infrastructure",
    "sidecar",
    "image",
    "secrets",
    "command",
    "dependency",
    "resources",
    "not-started",
    "unknown",
    "running",
]
# The words before ``task.outcome``, which documents and events keep.
StopCategory = Literal[
    "oom", "spot", "user", "scheduler", "infrastructure", "image", "resources", "exit", "unknown"
]
OutOfMemoryEvidence = Literal["kernel-counter", "exit-137-at-limit", "memory-at-limit"]

# What shows that memory ran out: ECS's own word, or the report's evidence.
MemoryEvidence = Literal["ecs", "kernel-counter", "exit-137-at-limit", "memory-at-limit"]

SIGKILL_EXIT_CODE = 137  # from the kernel's OOM killer, or from ECS after the stop timeout
SIGTERM_EXIT_CODE = 143  # from ECS, to stop a container

OUT_OF_MEMORY = "out of memory"
PREDICATES: Mapping[Status, str] = {
    "success": "succeeded",
    "failure": "failed",
    "stopped": "was stopped",
    "running": "is running",
    "unknown": "ended with an unknown result",
}
# Their group is "failure", which hides what to look for.
_GPU_WORDS: Mapping[Cause, str] = {"gpu-oom": "out of GPU memory", "gpu-error": "GPU error"}
_CATEGORIES: Mapping[Cause, StopCategory] = {
    "success": "exit",
    "failure": "exit",
    "gpu-oom": "exit",
    "gpu-error": "exit",
    "oom": "oom",
    "user": "user",
    "spot": "spot",
    "scheduler": "scheduler",
    "infrastructure": "infrastructure",
    "image": "image",
    "secrets": "resources",
    "command": "resources",
    "resources": "resources",
}

# ECS's reason, in lower case, for a task that did not start, where it gives no better one.
_VAGUE_REASON = "task failed to start"
# Reasons of RunTask, or of a stopped task, that are codes alone, in lower case, and what each says
# of the cluster:
# https://docs.aws.amazon.com/AmazonECS/latest/developerguide/api_failures_messages.html
_REFUSALS = {
    "agent": "the ECS agent of the container instance is not connected",
    "attribute": "no container instance has an attribute that the task requires",
    "empty capacity provider": "the capacity provider has no container instance",
    "no active instances": "the capacity provider has no active container instance",
    "location": "no container instance is in an Availability Zone of the subnets",
    "inactive": "the container instance was deregistered",
    "missing": "the cluster does not have the container instance",
    "memberof placement constraint unsatisfied": (
        "no container instance meets the placement constraints"
    ),
}
_REFUSAL_PREFIX = "taskfailedtostart:"  # of the reason of a stopped task


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended: its status, and why.

    :mod:`profiler.record.stop_causes` decides it. ``cause`` is ``task.outcome`` of the document.
    ``title`` says why in a few words, ``sentence`` in one without its full stop, None if there is
    nothing to add to the status. ``reason``: ECS's text, the batch's own, else the task's, else
    another container's, after its name. ``memory_evidence``: what shows that memory ran out,
    ``ecs`` for ECS's own word; it may stand beside another cause.
    """

    status: Status
    cause: Cause
    title: str
    sentence: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    memory_evidence: MemoryEvidence | None = None

    @property
    def exit_code_text(self) -> str | None:
        """The exit code as :func:`describe_exit_code` writes it; None if it is unknown."""
        return known(describe_exit_code, self.exit_code)

    @property
    def additional_reason(self) -> str | None:
        """The reason, if it says more than ``sentence``."""
        return None if is_vague(self.reason) else self.reason

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether it is the cause of the end, or a process was killed for it beside a success."""
        return self.cause == "oom"

    @property
    def count_group(self) -> str:
        """Under which word lists count and colour the run: its status, or out of memory."""
        return OUT_OF_MEMORY if self.cause == "oom" else self.status

    @property
    def word(self) -> str:
        """What the page's lists call the end: its group, or what failed of a GPU."""
        return _GPU_WORDS.get(self.cause, self.count_group)

    @property
    def stop_category(self) -> StopCategory:
        """The word for the cause before ``task.outcome``."""
        if self.cause == "failure" and self.exit_code is None:
            return "unknown"
        return _CATEGORIES.get(self.cause, "unknown")


def end_status_of(exit_code: int | None, *, was_stopped: bool) -> EndStatus:
    """The status of a run that has ended.

    A requested stop takes precedence: a batch that handles SIGTERM exits with 0 although its work
    is not done.
    """
    if was_stopped:
        return "stopped"
    if exit_code == 0:
        return "success"
    if exit_code is not None:
        return "failure"
    return "unknown"


def describe_exit_code(exit_code: int) -> str:
    """The exit code, with the name of the signal that it reports: ``1``, ``137 (SIGKILL)``."""
    try:
        return f"{exit_code} ({signal.Signals(exit_code - FIRST_SIGNAL_EXIT_CODE).name})"
    except ValueError:
        return str(exit_code)


def is_vague(reason: str | None) -> bool:
    """Whether ECS's reason says only that the task did not start."""
    return (reason or "").strip().rstrip(".").lower() == _VAGUE_REASON


def refusal_meaning(reason: str | None) -> str:
    """What RunTask's reason says of the cluster, if the reason is a code alone; else nothing."""
    code = (reason or "").strip().lower().removeprefix(_REFUSAL_PREFIX)
    return _REFUSALS.get(code.strip().rstrip("."), "")


def explained_refusal(reason: str) -> str:
    """RunTask's reason, followed by its meaning if it is a code alone."""
    meaning = refusal_meaning(reason)
    return f"{reason} ({meaning})" if meaning else reason
