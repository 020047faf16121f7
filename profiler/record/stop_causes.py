"""The verdict on a run: one table of causes, and the function that reads it.

Three witnesses: ECS's texts and codes in the task's event, the monitor, which alone saw the order
of the ends, and the exit code. The order of the table is their precedence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from profiler.core.ecs_terms import STOPPED_BY_USER
from profiler.core.optional_math import first_known, known
from profiler.record.hardware import most_telling_gpu_error
from profiler.record.record_model import LOCAL, Record, known_status
from profiler.record.run_outcome import (
    SIGKILL_EXIT_CODE,
    SIGTERM_EXIT_CODE,
    Cause,
    MemoryEvidence,
    Outcome,
    Status,
    describe_exit_code,
    is_vague,
    refusal_meaning,
)

NO_REASON = "essential container in task exited"
_FAILED_TO_START = "taskfailedtostart"
# Of a container that handles SIGTERM, and that does not, or not in time.
_STOPPED_EXIT_CODES = (0, SIGTERM_EXIT_CODE, SIGKILL_EXIT_CODE)
# Its command, or its working directory.
_COMMAND = r"\bexec:? |\bchdir to cwd\b|\bhcs::system::createprocess\b"
# The system's words for a file that cannot be executed. A lack of memory is none of them.
_NOT_EXECUTABLE = (
    *("no such file or directory", "permission denied", "operation not permitted"),
    *("not a directory", "is a directory", "too many levels of symbolic links"),
    *("text file busy", "argument list too long", "invalid argument"),
    "cannot run executable found relative to current directory",
    # Of Windows.
    *("the system cannot find the", "is not a valid win32 application"),
)
# Docker's words for a definition whose user or command the image does not have.
_NOT_IN_IMAGE = ("unable to find user", "unable to find group", "no command specified")
# The codes of Docker for a command that could not be started.
_COMMAND_EXIT_CODES = (None, 126, 127, 128)
_STOPS: Final[frozenset[Cause]] = frozenset(
    {"user", "spot", "scheduler", "infrastructure", "sidecar"}
)


class EventEnd(Struct, frozen=True, kw_only=True):
    """How a run ended by ECS's event alone; the cause is ``unknown`` if the event does not tell.

    ``reason``: the batch's own, else the task's, else another container's, after its name.
    ``out_of_memory``: ECS says so of the batch. ``first_end``: how another container of the task
    failed by itself, such as "log_router exited with 139 (SIGSEGV)".
    """

    cause: Cause
    exit_code: int | None = None
    reason: str | None = None
    out_of_memory: bool = False
    first_end: str | None = None


NO_EVENT: Final = EventEnd(cause="unknown")


class EventTexts(Struct, frozen=True, kw_only=True):
    """What an event says of the end, in lower case. ``stated`` is the task's reason.

    ``reasons`` are the task's and all containers'; ``texts`` with the stop code and without spaces,
    in which agents differ.
    """

    code: str
    stated: str
    reasons: str
    texts: str
    exit_code: int | None
    is_out_of_memory: bool
    has_started: bool
    is_on_fargate_spot: bool
    is_of_aws_batch: bool
    has_failed_container: bool

    def has_any_text(self, *texts: str) -> bool:
        return any(text.replace(" ", "") in self.texts for text in texts)

    @property
    def nothing_ran(self) -> bool:
        return self.exit_code is None

    @property
    def failed_to_start(self) -> bool:
        return self.code == _FAILED_TO_START or is_vague(self.stated)


class _ReportedEnd(Struct, frozen=True, kw_only=True):
    """What a report says of the end, beside the event; ``NO_EVENT`` says nothing."""

    record: Record
    event: EventEnd
    status: Status
    memory_evidence: MemoryEvidence | None


def _never_true(_: object) -> bool:
    return False


class _CauseRow(Struct, frozen=True, kw_only=True):
    """A cause, what shows it in the event or in the report, and its words.

    ``{end}`` is how another container ended, ``{code}`` the exit code, ``{batch}`` the container.
    """

    cause: Cause
    title: str
    sentence: str | None = None
    event: Callable[[EventTexts], bool] = _never_true
    report: Callable[[_ReportedEnd], bool] = _never_true


def _does_event_say(*texts: str) -> Callable[[EventTexts], bool]:
    return lambda said: said.has_any_text(*texts)


def _has_timed_out(said: EventTexts) -> bool:
    return said.is_of_aws_batch and "job attempt duration exceeded timeout" in said.stated


def _is_spot_interruption(said: EventTexts) -> bool:
    if said.nothing_ran and said.has_any_text(
        "spotinterruptionerror", "spot capacity is not available"
    ):
        return False  # a task that was never placed
    if said.has_any_text("spot task was interrupted", "spot interruption"):
        return True
    # Also the code of an instance that was terminated: its text decides.
    return (
        said.is_on_fargate_spot
        and said.has_any_text("termination notice")
        and not _is_host_failure(said)
    )


def _is_host_failure(said: EventTexts) -> bool:
    """Whether a host fails or is retired.

    https://docs.aws.amazon.com/AmazonECS/latest/developerguide/stopped-task-error-codes.html.
    """
    return said.has_any_text(
        "infrastructure health", "underlying infrastructure", "host ec2 (instance"
    )


def _is_bad_command(said: EventTexts) -> bool:
    if said.exit_code not in _COMMAND_EXIT_CODES:
        return False
    if said.has_any_text("executable file not found", "exec format error", *_NOT_IN_IMAGE):
        return True
    # A mount, too, can name a file that does not exist. A hook of the runtime is no command.
    is_of_command = re.search(_COMMAND, said.reasons) and not said.has_any_text("hook")
    return bool(is_of_command) and said.has_any_text(*_NOT_EXECUTABLE)


def _lacks_resources(said: EventTexts) -> bool:
    if not said.nothing_ran:
        return False
    return said.has_any_text(*_RESOURCES, *_SECRETS) or bool(refusal_meaning(said.stated))


def _could_not_read_secret(said: EventTexts) -> bool:
    """Whether it may not be read, or does not exist: a network that does not lead to it is a
    resource.
    """
    return (
        said.nothing_ran
        and said.has_any_text(*_SECRETS)
        and not says_unreached_network(said.reasons)
    )


def _could_not_pull_image(said: EventTexts) -> bool:
    """A sign-in that "cannot pull registry auth" is no image."""
    is_image = said.has_any_text("cannotpull", "pull image", "image pull", "manifest unknown")
    return said.nothing_ran and is_image and not said.has_any_text(*_SECRETS)


def says_unreached_network(reason: str) -> bool:
    """Whether a reason of ECS says that the network does not lead to a service of AWS, or to a
    registry.
    """
    said = reason.lower()
    return any(words in said for words in _UNREACHED)


def _waited_for_a_container(said: EventTexts) -> bool:
    is_unexplained = said.failed_to_start or (said.stated == NO_REASON and not said.has_started)
    return said.nothing_ran and is_unexplained and said.has_failed_container


_SECRETS = (
    *("pull secrets", "retrieve secret", "fetching secret data", "fetch secret"),
    *("registry auth", "getauthorizationtoken"),
)
_UNREACHED = (
    *("i/o timeout", "dial tcp", "connection issue", "deadline exceeded", "handshake timeout"),
    *("no route to host", "awaiting headers"),
)
_RESOURCES = (
    *("resourceinitializationerror", "provisioning to complete", "capacity is unavailable"),
    *("capacity is not available", "no container instances were found", "unable to place"),
    *("resource:", "cannotstartcontainererror", "cannotcreatevolumeerror"),
    *("cannotcreatecontainererror", "dockertimeouterror", "containerruntimeerror"),
    *("containerruntimetimeouterror", "unexpected ec2 error", "spotinterruptionerror"),
)


def _is_local_stop(seen: _ReportedEnd) -> bool:
    return seen.status == "stopped" and seen.record.launch_type == LOCAL


def _failed_by_itself(seen: _ReportedEnd) -> bool:
    """Whether the run failed, and the event knows no other cause."""
    is_explained = seen.event is not NO_EVENT and seen.event.cause != "failure"
    return seen.status == "failure" and not is_explained


def _lacked_gpu_memory(seen: _ReportedEnd) -> bool:
    return _failed_by_itself(seen) and bool(seen.record.likely_out_of_gpu_memory)


def _is_gpu_error(seen: _ReportedEnd) -> bool:
    return _failed_by_itself(seen) and most_telling_gpu_error(seen.record) is not None


def _was_stopped_by_another_end(seen: _ReportedEnd) -> bool:
    return seen.status == "stopped" and bool(seen.event.first_end)


def _has_status(status: Status) -> Callable[[_ReportedEnd], bool]:
    """The report's status, where the event does not know the end."""
    return lambda seen: seen.status == status and seen.event.cause == "unknown"


# The first row that the event or the report shows is the cause.
TABLE: Final = (
    _CauseRow(
        cause="timeout",
        title="Timed out",
        sentence="AWS Batch stopped the job because it ran longer than its timeout",
        event=_has_timed_out,
    ),
    _CauseRow(
        cause="user",
        title="Stopped on request",
        sentence="A person or a program stopped the task",
        event=_does_event_say("stopped by user", STOPPED_BY_USER),
        report=_is_local_stop,
    ),
    _CauseRow(
        cause="spot",
        title="Spot capacity reclaimed",
        sentence="AWS reclaimed the Spot capacity",
        event=_is_spot_interruption,
    ),
    _CauseRow(
        cause="infrastructure",
        title="Stopped by AWS",
        sentence="AWS stopped the task because of a problem with the underlying infrastructure",
        event=lambda said: _is_host_failure(said) or said.has_any_text("termination notice"),
    ),
    _CauseRow(
        cause="scheduler",
        title="Stopped by the ECS scheduler",
        sentence="The ECS scheduler stopped the task",
        event=_does_event_say(
            *("serviceschedulerinitiated", "scaling activity initiated"),
            *("failed elb health checks", "failed container health checks"),
        ),
    ),
    _CauseRow(
        cause="oom",
        title="Out of memory",
        sentence="Out of memory: a process of the container was killed at its memory limit",
        event=lambda said: said.is_out_of_memory,
        report=lambda seen: seen.memory_evidence not in (None, "ecs"),
    ),
    _CauseRow(
        cause="secrets",
        title="Secret could not be read",
        sentence="ECS could not read a secret or the credentials of a registry",
        event=_could_not_read_secret,
    ),
    _CauseRow(
        cause="image",
        title="Image could not be pulled",
        sentence="The container's image could not be pulled",
        event=_could_not_pull_image,
    ),
    _CauseRow(
        cause="command",
        title="Command could not be started",
        sentence="The container's command, its user or its working directory does not exist in its "
        "image, or cannot be used there",
        event=_is_bad_command,
    ),
    _CauseRow(
        cause="resources",
        title="No resources to start",
        sentence="ECS could not get the resources that the task needs to start",
        event=_lacks_resources,
    ),
    _CauseRow(
        cause="dependency",
        title="Another container failed",
        sentence="{end}, so {batch} did not start",
        event=_waited_for_a_container,
    ),
    _CauseRow(
        cause="not-started",
        title="Did not start",
        sentence="The task did not start",
        event=lambda said: said.nothing_ran and said.failed_to_start,
    ),
    _CauseRow(
        cause="sidecar",
        title="Stopped with its task",
        sentence="{end} before {batch} ended, so ECS stopped the task",
        report=_was_stopped_by_another_end,
    ),
    _CauseRow(
        cause="gpu-oom",
        title="Out of GPU memory",
        sentence="The run probably needed more GPU memory than it could get",
        report=_lacked_gpu_memory,
    ),
    _CauseRow(
        cause="gpu-error",
        title="GPU error",
        sentence="The GPU's driver reported {gpu_error} during the run",
        report=_is_gpu_error,
    ),
    _CauseRow(cause="running", title="Running", report=_has_status("running")),
    _CauseRow(
        cause="success",
        title="Success",
        event=lambda said: said.exit_code == 0,
        report=_has_status("success"),
    ),
    _CauseRow(
        cause="failure",
        title="Exit code {code}",
        sentence="The container exited with code {code}",
        event=lambda said: said.exit_code is not None,
        report=_has_status("failure"),
    ),
    _CauseRow(
        cause="unknown",
        title="Outcome unknown",
        event=lambda _: True,
        report=lambda _: True,
    ),
)
_ROWS: Final[Mapping[Cause, _CauseRow]] = {row.cause: row for row in TABLE}
# Whatever the exit code is. A job that ends with 0 at its timeout has not done its work.
_STATUSES: Final[Mapping[Cause, Status]] = {
    "running": "running",
    "success": "success",
    "failure": "failure",
    "timeout": "failure",
}
_TITLES: Final[Mapping[Status, str]] = {
    "success": "Success",
    "failure": "Failure",
    "stopped": "Stopped",
    "running": "Running",
    "unknown": "Outcome unknown",
}
# The words for a cause where nothing else of the run is known.
CAUSE_TITLES: Final[Mapping[Cause, str]] = {
    **{row.cause: row.title for row in TABLE},
    "failure": _TITLES["failure"],
}
_KILLED_IN_SUCCESS = (
    "A process in the container was killed because memory ran out, but the container exited "
    "successfully"
)


def outcome_of(
    record: Record | None,
    event: EventEnd = NO_EVENT,
    *,
    is_confirmed: bool = True,
    container: str | None = None,
) -> Outcome:
    """How a run ended, by the record of its report or last checkpoint and its task's event.

    ECS's own word on a stop or a kill comes first, then the monitor's, which alone saw the order
    of the ends, then the exit code. A report that is not confirmed counts only where ECS does not
    know the end. ``container``: the batch's name, if no report has it.
    """
    container = container or (None if record is None else record.container.name)
    if event.cause != "unknown" and not is_confirmed:
        record = None
    exit_code = event.exit_code
    evidence: MemoryEvidence | None = "ecs" if event.out_of_memory else None
    status: Status = "unknown"
    if record is not None:
        exit_code = first_known(exit_code, record.exit_code)
        evidence = evidence or _reported_evidence(record, event)
        status = known_status(record)
        if event is not NO_EVENT and status == "running":
            status = "unknown"  # a checkpoint, which is older than the event
    if status == "stopped" and _ended_by_itself(event):
        status = "unknown"
    cause = _cause_by_table(event, record, status, evidence)
    status = _status_of_cause(cause, exit_code, event, status)
    return _outcome_in_words(
        cause,
        status,
        exit_code=exit_code,
        evidence=evidence,
        reason=event.reason,
        end=event.first_end,
        batch=container,
        xid=known(most_telling_gpu_error, record),
    )


def _ended_by_itself(event: EventEnd) -> bool:
    """Whether the exit code is none with which a container ends that ECS stops."""
    return event.cause == "failure" and event.exit_code not in _STOPPED_EXIT_CODES


def _cause_by_table(
    event: EventEnd, record: Record | None, status: Status, evidence: MemoryEvidence | None
) -> Cause:
    """The cause in the first row of the table that the event or the report shows."""
    of_event = event.cause
    if status == "stopped" and of_event in ("success", "failure"):
        of_event = "unknown"  # the exit code does not tell who ended first
    if record is None:
        return of_event
    seen = _ReportedEnd(record=record, event=event, status=status, memory_evidence=evidence)
    return next(row.cause for row in TABLE if row.cause == of_event or row.report(seen))


def _reported_evidence(record: Record, event: EventEnd) -> MemoryEvidence | None:
    """The report's evidence of a kill for memory; an inference only if the end is the event's."""
    if record.out_of_memory_evidence == "kernel-counter":
        return "kernel-counter"
    if not record.likely_out_of_memory:
        return None
    if event.exit_code not in (None, record.exit_code):
        return None
    if record.out_of_memory_evidence == "exit-137-at-limit":
        return "exit-137-at-limit"
    return "memory-at-limit"


def _status_of_cause(
    cause: Cause, exit_code: int | None, event: EventEnd, reported: Status
) -> Status:
    """The status: the report's where the event does not know the end, or the batch was stopped."""
    if cause in _STATUSES:
        return _STATUSES[cause]
    if cause in _STOPS or reported == "stopped":
        return "stopped"
    if cause == "unknown" or (event is NO_EVENT and reported in ("success", "failure")):
        return reported
    return "success" if exit_code == 0 else "failure"


def _outcome_in_words(
    cause: Cause,
    status: Status,
    *,
    exit_code: int | None,
    evidence: MemoryEvidence | None,
    reason: str | None,
    end: str | None,
    batch: str | None,
    xid: int | None,
) -> Outcome:
    """The outcome with its words: the table's, but for a kill within a success, and without an
    exit code.
    """
    row = _ROWS[cause]
    title = row.title
    sentence = row.sentence
    if cause == "oom" and status == "success":
        title = "Success, but out of memory"
        sentence = _KILLED_IN_SUCCESS
    if cause == "unknown" or (cause == "failure" and exit_code is None):
        title = _TITLES[status]
        sentence = "The task was stopped before {batch} ended" if status == "stopped" else None
    if cause == "resources" and refusal_meaning(reason):
        sentence = f"ECS could not place the task: {refusal_meaning(reason)}"
    if sentence is not None and "{" in sentence:
        words = {
            "code": "unknown" if exit_code is None else describe_exit_code(exit_code),
            "end": end or "Another container ended",
            "batch": batch or "the batch",
            "gpu_error": "an error (Xid)" if xid is None else f"Xid {xid}",
        }
        title = title.format_map(words)
        sentence = sentence.format_map(words)
    return Outcome(
        status=status,
        cause=cause,
        title=title,
        sentence=sentence,
        exit_code=exit_code,
        reason=reason,
        memory_evidence=evidence,
    )


def written_outcome(
    cause: str | None,
    status: Status,
    *,
    exit_code: int | None = None,
    reason: str | None = None,
    first_end: str | None = None,
    container: str | None = None,
    xid: int | None = None,
) -> Outcome:
    """The outcome that a document or line has. A newer version's cause is read as its status."""
    causes = [row.cause for row in TABLE if row.cause in (cause, status)]
    exact = [each for each in causes if each == cause]
    return _outcome_in_words(
        next(iter([*exact, *causes]), "unknown"),
        status,
        exit_code=exit_code,
        evidence=None,
        reason=reason,
        end=first_end,
        batch=container,
        xid=xid,
    )


def cause_of_event(said: EventTexts) -> Cause:
    """The cause in the first row of the table that the event shows."""
    shown = (row.cause for row in TABLE if row.event(said))
    return next(shown, "unknown")
