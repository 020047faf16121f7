"""Writes the documents of the task metadata endpoint v4, in the shapes of the ECS agent on EC2."""

import hashlib
from dataclasses import dataclass
from typing import Any

from tests.e2e.container import ContainerFacts
from tests.e2e.specs import ContainerSpec, TaskSpec

_UNITS_PER_CPU = 1024
_LEAST_CPU_UNITS = 2  # what the agent reports for a container without CPU setting


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """A task definition with the id of one run."""

    spec: TaskSpec
    task_id: str

    @property
    def task_arn(self) -> str:
        return self._arn("task", self.task_id)

    def container_arn(self, container_name: str) -> str:
        """Return the ARN of a container of this run; its last part is random in ECS and derived here."""
        digest = hashlib.sha256(f"{self.task_id}/{container_name}".encode()).hexdigest()
        suffix = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))
        return self._arn("container", f"{self.task_id}/{suffix}")

    def docker_name(self, container_name: str) -> str:
        plain = "".join(letter for letter in container_name if letter.isalnum() or letter == "-")
        return f"ecs-{self.spec.family}-{self.spec.revision}-{plain}-{self.task_id[:20]}"

    def labels(self, container_name: str) -> dict[str, str]:
        prefix = "com.amazonaws.ecs."
        return {
            f"{prefix}cluster": self.spec.cluster,
            f"{prefix}container-name": container_name,
            f"{prefix}task-arn": self.task_arn,
            f"{prefix}task-definition-family": self.spec.family,
            f"{prefix}task-definition-version": self.spec.revision,
        }

    def log_stream(self, container: ContainerSpec) -> str:
        """Return the stream into which the awslogs driver would write."""
        return f"ecs/{container.name}/{self.task_id}"

    def _arn(self, kind: str, path: str) -> str:
        spec = self.spec
        return f"arn:aws:ecs:{spec.region}:{spec.account_id}:{kind}/{spec.cluster}/{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """Times of the task; the stop is absent until an essential container has stopped."""

    pull_started_at: str
    pull_stopped_at: str
    execution_stopped_at: str | None = None


def container_document(
    task: TaskIdentity, spec: ContainerSpec, facts: ContainerFacts, desired_status: str
) -> dict[str, Any]:
    """Return one entry of `Containers`, which is also the answer at the endpoint's root."""
    document: dict[str, Any] = {
        "DockerId": facts.docker_id,
        "Name": spec.name,
        "DockerName": task.docker_name(spec.name) if facts.docker_id else "",
        "Image": spec.image,
        "ImageID": facts.image_id,
        "Labels": task.labels(spec.name),
        "DesiredStatus": desired_status,
        "KnownStatus": facts.known_status,
        "Limits": {
            "CPU": round(spec.cpus * _UNITS_PER_CPU) if spec.cpus else _LEAST_CPU_UNITS,
            "Memory": spec.memory_mib or 0,
        },
        "Type": spec.type,
        "ContainerARN": task.container_arn(spec.name),
        "Networks": [{"NetworkMode": "host", "IPv4Addresses": [""]}],
    }
    late = {
        "ExitCode": facts.exit_code,
        "CreatedAt": facts.created_at,
        "StartedAt": facts.started_at,
        "FinishedAt": facts.finished_at,
    }
    document |= {name: value for name, value in late.items() if value is not None}
    if spec.read_only_mounts:
        document["Volumes"] = [{"Source": str(one), "Destination": target} for one, target in spec.read_only_mounts]
    return document | _log_options(task, spec)


def task_document(
    task: TaskIdentity, times: TaskTimes, desired_status: str, containers: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the answer of `/task`; `containers` holds documents of `container_document`."""
    document: dict[str, Any] = {
        "Cluster": task.spec.cluster,
        "TaskARN": task.task_arn,
        "Family": task.spec.family,
        "Revision": task.spec.revision,
        "DesiredStatus": desired_status,
        "KnownStatus": _known_status([container["KnownStatus"] for container in containers]),
        "PullStartedAt": times.pull_started_at,
        "PullStoppedAt": times.pull_stopped_at,
        "AvailabilityZone": f"{task.spec.region}a",
        "LaunchType": "EC2",
        "Containers": containers,
    }
    if times.execution_stopped_at is not None:
        document["ExecutionStoppedAt"] = times.execution_stopped_at
    limits = {"CPU": task.spec.limit_vcpu, "Memory": task.spec.limit_memory_mib}
    known = {name: value for name, value in limits.items() if value is not None}
    return document | ({"Limits": known} if known else {})


def _known_status(containers: list[str]) -> str:
    """Return the status of a task whose containers have these: it runs until the last one has stopped."""
    if all(status == "STOPPED" for status in containers):
        return "STOPPED"
    return "RUNNING" if all(status in {"RUNNING", "STOPPED"} for status in containers) else "PENDING"


def _log_options(task: TaskIdentity, spec: ContainerSpec) -> dict[str, Any]:
    if spec.log_group is None:
        return {}
    options = {
        "awslogs-group": spec.log_group,
        "awslogs-region": task.spec.region,
        "awslogs-stream": task.log_stream(spec),
    }
    return {"LogDriver": "awslogs", "LogOptions": options}
