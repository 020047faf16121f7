"""Ends of runs as ECS's event and the monitor's report tell them, and what each run came to."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from profiler.record.run_outcome import Cause, Status
from profiler.record.stopped_task import StoppedTask
from tests.stopped_tasks import report
from tests.task_events import task

EXITED = "EssentialContainerExited"
NO_START = "TaskFailedToStart"
OOM = "OutOfMemoryError: Container killed due to memory usage"
_GENERIC = "Essential container in task exited"
_VAGUE = "Task failed to start"
_HOST = "Host EC2 (instance i-0123456789abcdef0) terminated."
_CANNOT_START = (
    "CannotStartContainerError: Error response from daemon: failed to create task for container: "
    "failed to create shim task: OCI runtime create failed: runc create failed: unable to start "
    "container process: {}: unknown"
)
_CWD = 'error during container init: chdir to cwd ("/app") set in config.json failed: {}'
_SECRET = (
    "ResourceInitializationError: unable to pull secrets or registry auth: execution resource "
    "retrieval failed: unable to retrieve secret from asm: service call has been retried 1 time(s): "
    "failed to fetch secret arn:aws:secretsmanager:us-west-2:111122223333:secret:db from secrets "
    "manager: AccessDeniedException: not authorized to perform: secretsmanager:GetSecretValue"
)
_EFS = (
    "ResourceInitializationError: failed to invoke EFS utils commands to set up EFS volumes: stderr:"
    " mount.nfs4: mounting failed, reason given by server: No such file or directory"
)
_KERNEL = {"likelyOutOfMemory": True, "outOfMemoryEvidence": "kernel-counter"}
_AT_LIMIT = {"likelyOutOfMemory": True, "outOfMemoryEvidence": "exit-137-at-limit"}


class RunEnd(Struct, frozen=True, kw_only=True):
    """An end: what the event and the report say, and what the run came to.

    ``reported`` are fields of the report's record, None without a report. ``said`` is a part of
    the sentence. ``is_retried``: the kill for memory is proven.
    """

    name: str
    event: Mapping[str, Any]
    reported: Mapping[str, Any] | None
    status: Status
    cause: Cause
    said: str = ""
    is_retried: bool = False

    @property
    def task(self) -> StoppedTask:
        return task(**self.event)

    @property
    def line(self) -> str | None:
        return None if self.reported is None else report(**self.reported)


def _end(
    name: str,
    *,
    exit_code: int | None = None,
    own: str | None = None,
    code: str | None = EXITED,
    reason: str | None = _GENERIC,
    others: Mapping[str, int | None] | None = None,
    others_said: str | None = None,
    reported: Mapping[str, Any] | None = None,
    status: Status,
    cause: Cause,
    said: str = "",
    is_retried: bool = False,
    **detail: Any,
) -> RunEnd:
    listed: list[dict[str, Any]] = [{"name": "batch", "exitCode": exit_code, "reason": own}]
    for other, its_code in (others or {}).items():
        listed.append({"name": other, "exitCode": its_code, "reason": others_said})
    if code == NO_START:
        detail.setdefault("startedAt", None)
    return RunEnd(
        name=name,
        event={"containers": listed, "stopCode": code, "stoppedReason": reason, **detail},
        reported=reported,
        status=status,
        cause=cause,
        said=said,
        is_retried=is_retried,
    )


def _cwd(why: str) -> str:
    return _CANNOT_START.format(_CWD.format(why))


def _not_started(name: str, cause: Cause, said: str, own: str | None = None, **more: Any) -> RunEnd:
    more.setdefault("reason", _VAGUE if own else None)
    return _end(name, own=own, code=NO_START, status="failure", cause=cause, said=said, **more)


def _stop(name: str, cause: Cause, **more: Any) -> RunEnd:
    return _end(name, status="stopped", cause=cause, **more)


_ROUTER = {"log_router": 139}
_STOPPED = {"status": "stopped", "exitCode": 0}
_SIGTERM = {"status": "stopped", "exitCode": 143}

ENDS: tuple[RunEnd, ...] = (
    # Exit codes
    _end("success", exit_code=0, status="success", cause="success"),
    _end(
        "success with its report",
        exit_code=0,
        reported={"status": "success", "exitCode": 0},
        status="success",
        cause="success",
    ),
    _end("exit 3", exit_code=3, status="failure", cause="failure", said="exited with code 3"),
    _end(
        "exit 3 with its report",
        exit_code=3,
        reported={"status": "failure", "exitCode": 3},
        status="failure",
        cause="failure",
        said="exited with code 3",
    ),
    _end("137 alone", exit_code=137, status="failure", cause="failure", said="137 (SIGKILL)"),
    _end(
        "137 far below the limit",
        exit_code=137,
        reported={"status": "failure", "exitCode": 137, "likelyOutOfMemory": False},
        status="failure",
        cause="failure",
        said="137 (SIGKILL)",
    ),
    _end("139", exit_code=139, status="failure", cause="failure", said="139 (SIGSEGV)"),
    _end("nothing known", status="unknown", cause="unknown"),
    _end(
        "the report alone knows the end",
        reported={"status": "success", "exitCode": 0},
        status="success",
        cause="success",
    ),
    # Memory
    _end(
        "ECS's reason",
        exit_code=137,
        own=OOM,
        status="failure",
        cause="oom",
        said="Out of memory",
        is_retried=True,
    ),
    _end(
        "ECS's reason without a code",
        own=OOM,
        status="failure",
        cause="oom",
        said="Out of memory",
        is_retried=True,
    ),
    _end(
        "the kernel's kill with 137",
        exit_code=137,
        reported={"status": "failure", "exitCode": 137, **_KERNEL},
        status="failure",
        cause="oom",
        said="Out of memory",
        is_retried=True,
    ),
    _end(
        "the kernel's kill behind a shell's 1",
        exit_code=1,
        reported={"status": "failure", "exitCode": 1, **_KERNEL},
        status="failure",
        cause="oom",
        said="Out of memory",
        is_retried=True,
    ),
    _end(
        "137 at the limit",
        exit_code=137,
        reported={"status": "failure", "exitCode": 137, **_AT_LIMIT},
        status="failure",
        cause="oom",
        said="Out of memory",
    ),
    _end(
        "the monitor alone ran out of memory",
        exit_code=137,
        others={"task-monitor": 137},
        others_said=OOM,
        status="failure",
        cause="failure",
        said="137 (SIGKILL)",
    ),
    _end(
        "success with a reason of memory",
        exit_code=0,
        own=OOM,
        status="success",
        cause="oom",
        said="the container exited successfully",
    ),
    _end(
        "success after the kernel's kill of a child",
        exit_code=0,
        reported={"status": "success", "exitCode": 0, **_KERNEL},
        status="success",
        cause="oom",
        said="the container exited successfully",
    ),
    # Stops
    _stop(
        "user",
        "user",
        exit_code=143,
        code="UserInitiated",
        reason="Task stopped by user",
        reported=_SIGTERM,
        said="A person or a program",
    ),
    _stop(
        "user after the kernel's kill",
        "user",
        exit_code=143,
        code="UserInitiated",
        reason="Task stopped by user",
        reported={**_SIGTERM, **_KERNEL},
        said="A person or a program",
    ),
    _stop("Spot", "spot", exit_code=143, code="SpotInterruption", reason=None, said="Spot"),
    _stop(
        "TerminationNotice with Spot's text",
        "spot",
        code="TerminationNotice",
        reason="Your Spot Task was interrupted.",
        said="Spot",
    ),
    _stop(
        "TerminationNotice on FARGATE_SPOT",
        "spot",
        code="TerminationNotice",
        reason=None,
        capacityProviderName="FARGATE_SPOT",
        said="Spot",
    ),
    _stop(
        "TerminationNotice on EC2",
        "infrastructure",
        code="TerminationNotice",
        reason=_HOST,
        launchType="EC2",
        capacityProviderName="on-demand-asg",
        said="infrastructure",
    ),
    _stop(
        "TerminationNotice without a text",
        "infrastructure",
        code="TerminationNotice",
        reason=None,
        launchType="EC2",
        capacityProviderName="on-demand-asg",
        said="infrastructure",
    ),
    _stop("host", "infrastructure", exit_code=137, code=None, reason=_HOST, said="infrastructure"),
    _stop(
        "health of the infrastructure",
        "infrastructure",
        exit_code=0,
        code="InfrastructureHealth",
        reason=None,
        said="infrastructure",
    ),
    _stop(
        "scheduler",
        "scheduler",
        exit_code=143,
        code="ServiceSchedulerInitiated",
        reason="Scaling activity initiated by (deployment ecs-svc/1)",
        said="scheduler",
    ),
    # Other containers
    _stop(
        "a log router crashed before exit 0",
        "sidecar",
        exit_code=0,
        others=_ROUTER,
        reported=_STOPPED,
        said="log_router exited with 139 (SIGSEGV) before batch ended",
    ),
    _stop(
        "a log router crashed before 143",
        "sidecar",
        exit_code=143,
        others=_ROUTER,
        reported=_SIGTERM,
        said="log_router exited with 139 (SIGSEGV) before batch ended",
    ),
    _stop(
        "a log router crashed before a kill after the stop timeout",
        "sidecar",
        exit_code=137,
        others=_ROUTER,
        reported={"status": "stopped", "exitCode": 137},
        said="log_router exited with 139 (SIGSEGV) before batch ended",
    ),
    _stop(
        "two containers failed, of which one stopped the batch",
        "sidecar",
        exit_code=143,
        others={"log_router": 139, "envoy": 1, "task-monitor": 1, "agent": 143},
        reported=_SIGTERM,
        said="log_router exited with 139 (SIGSEGV) or envoy exited with 1 before batch ended",
    ),
    _stop(
        "another container was killed, perhaps by ECS",
        "unknown",
        exit_code=143,
        others={"log_router": 137},
        reported=_SIGTERM,
        said="stopped before batch ended",
    ),
    _stop(
        "stopped, and nobody says by whom",
        "unknown",
        exit_code=0,
        reported=_STOPPED,
        said="stopped before batch ended",
    ),
    _end(
        "a side container ended after the batch",
        exit_code=0,
        others={"log_router": 143},
        reported={"status": "success", "exitCode": 0},
        status="success",
        cause="success",
    ),
    _end(
        "the batch failed by itself, and a report says stopped",
        exit_code=3,
        others=_ROUTER,
        reported={"status": "stopped", "exitCode": 3},
        status="failure",
        cause="failure",
        said="exited with code 3",
    ),
    _not_started(
        "an init container failed",
        "dependency",
        "migrate exited with 1, so batch did not start",
        reason=_VAGUE,
        others={"migrate": 1},
    ),
    _not_started(
        "a container that ECS killed beside one that did not start",
        "not-started",
        "did not start",
        reason=_VAGUE,
        others={"log_router": 137},
    ),
    # What did not start
    _not_started(
        "a command that PATH does not have",
        "command",
        "command",
        _CANNOT_START.format('exec: "etl": executable file not found in $PATH'),
    ),
    _not_started(
        "a command that does not exist",
        "command",
        "command",
        _CANNOT_START.format('exec: "/app/etl": stat /app/etl: no such file or directory'),
    ),
    _not_started(
        "a command of another processor",
        "command",
        "command",
        _CANNOT_START.format("exec /app/etl: exec format error"),
    ),
    _not_started(
        "a command that may not be executed",
        "command",
        "command",
        _CANNOT_START.format('exec: "/app/etl.py": permission denied'),
    ),
    *(
        _not_started(
            f"a command: {why}",
            "command",
            "command",
            _CANNOT_START.format(f'exec: "/app/etl": {why}'),
        )
        for why in (
            "is a directory",
            "text file busy",
            "operation not permitted",
            "cannot run executable found relative to current directory",
        )
    ),
    *(
        _not_started(
            f"a command on Windows: {why}",
            "command",
            "command",
            reason="CannotStartContainerError: Error response from daemon: container 5f0e encountered "
            f"an error during hcs::System::CreateProcess: C:\\app\\etl.exe: {why}: unknown",
        )
        for why in (
            "The system cannot find the file specified.",
            "etl.exe is not a valid Win32 application.",
        )
    ),
    _not_started(
        "a user that the image does not have",
        "command",
        "its user",
        "CannotCreateContainerError: Error response from daemon: unable to find user etl: no "
        "matching entries in passwd file",
    ),
    _not_started(
        "neither the definition nor the image has a command",
        "command",
        "command",
        "CannotCreateContainerError: Error response from daemon: No command specified",
    ),
    _not_started(
        "no memory for the command",
        "resources",
        "resources",
        _CANNOT_START.format('exec: "/app/etl": cannot allocate memory'),
    ),
    *(
        _not_started(f"a working directory: {why}", "command", "working directory", _cwd(why))
        for why in ("no such file or directory", "permission denied", "not a directory")
    ),
    _end(
        "a command that does not exist, on EC2",
        exit_code=127,
        own=_CANNOT_START.format('exec: "etl": executable file not found in $PATH'),
        launchType="EC2",
        status="failure",
        cause="command",
        said="command",
    ),
    _not_started("a secret that may not be read", "secrets", "secret", reason=_SECRET),
    _not_started(
        "a registry that may not be read",
        "secrets",
        "registry",
        reason="ResourceInitializationError: The task cannot pull registry auth from Amazon ECR",
    ),
    *(
        _not_started(f"no network to {what}", "resources", "resources", reason=reason)
        for what, reason in (
            (
                "a registry",
                (
                    "ResourceInitializationError: unable to pull secrets or registry auth: The task "
                    "cannot pull registry auth from Amazon ECR: There is a connection issue between "
                    "the task and Amazon ECR. Check your task network configuration."
                ),
            ),
            (
                "a secret",
                (
                    "ResourceInitializationError: unable to pull secrets or registry auth: execution "
                    "resource retrieval failed: unable to retrieve secret from asm: RequestError: send "
                    "request failed caused by: Post https://secretsmanager.us-west-2.amazonaws.com/: "
                    "dial tcp 10.0.0.1:443: i/o timeout"
                ),
            ),
            (
                "a parameter, on EC2",
                (
                    "Fetching secret data from SSM Parameter Store in us-west-2: RequestCanceled: "
                    "request context canceled caused by: context deadline exceeded"
                ),
            ),
        )
    ),
    _not_started(
        "an image that does not exist",
        "image",
        "image could not be pulled",
        reason="CannotPullContainerError: pull image manifest has been retried 5 time(s)",
    ),
    _not_started(
        "no capacity",
        "resources",
        "resources",
        reason="Capacity is unavailable at this time. Please try again later.",
    ),
    _not_started(
        "no Spot capacity at the start",
        "resources",
        "resources",
        reason="SpotInterruptionError: The Fargate Spot capacity is not available.",
    ),
    *(
        _end(
            f"no Spot capacity at the start, with the code of an interruption: {reason}",
            code="SpotInterruption",
            reason=reason,
            status="failure",
            cause="resources",
            said="resources",
            startedAt=None,
        )
        for reason in (
            "SpotInterruptionError: The Fargate Spot capacity is not available.",
            "The Fargate Spot capacity is not available.",
        )
    ),
    *(
        _not_started(f"RunTask: {reason}", "resources", said, reason=reason)
        for reason, said in (
            ("AGENT", "could not place the task: the ECS agent of the container instance is not"),
            ("ATTRIBUTE", "no container instance has an attribute that the task requires"),
            ("EMPTY CAPACITY PROVIDER", "the capacity provider has no container instance"),
            ("NO ACTIVE INSTANCES", "the capacity provider has no active container instance"),
            ("LOCATION", "no container instance is in an Availability Zone of the subnets"),
            (
                "MemberOf placement constraint unsatisfied.",
                "no container instance meets the placement constraints",
            ),
            ("TaskFailedToStart: ATTRIBUTE", "has an attribute that the task requires"),
            ("TaskFailedToStart: RESOURCE:CPU", "resources"),
            ("RESOURCE:MEMORY", "resources"),
            ("No Container Instances were found in your cluster.", "resources"),
        )
    ),
    _not_started("a volume", "resources", "resources", reason=_EFS),
    _not_started(
        "a log group that is missing",
        "resources",
        "resources",
        reason="ResourceInitializationError: failed to validate logger args: create stream has been "
        "retried 1 times: failed to create Cloudwatch log stream: ResourceNotFoundException",
    ),
    _not_started(
        "a network interface",
        "resources",
        "resources",
        reason="Timeout waiting for network interface provisioning to complete.",
    ),
    _not_started("a text that is new", "not-started", "did not start", reason="Something new"),
    # GPU, timeout
    _end(
        "an Xid",
        exit_code=1,
        reported={"exitCode": 1, "gpus": [{"uuid": "GPU-1", "index": 0, "xids": [31]}]},
        status="failure",
        cause="gpu-error",
        said="reported Xid 31 during the run",
    ),
    _end(
        "GPU memory that grew to its limit",
        exit_code=1,
        reported={"exitCode": 1, "likelyOutOfGpuMemory": True},
        status="failure",
        cause="gpu-oom",
        said="more GPU memory than it could get",
    ),
    _end(
        "an Xid that is a note",
        exit_code=1,
        reported={"exitCode": 1, "gpus": [{"uuid": "GPU-1", "index": 0, "xids": [45]}]},
        status="failure",
        cause="failure",
        said="exited with code 1",
    ),
    _end(
        "a timeout of AWS Batch",
        exit_code=137,
        code="UserInitiated",
        reason="Job attempt duration exceeded timeout",
        clusterArn="arn:aws:ecs:us-west-2:111122223333:cluster/AWSBatch-gpu-0f1e",
        status="failure",
        cause="timeout",
        said="timeout",
    ),
)
