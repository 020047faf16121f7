"""Jobs of AWS Batch as DescribeJobs and Batch's events have them, from their submission to their
end, and ECS's events of their tasks.
"""

import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

ACCOUNT = "111122223333"
REGION = "us-west-2"
CLUSTER = "AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666"
# What submitters put into a job: no output, log line or failure message may have it.
SECRETS = ("AKIAMADEUPMADEUP0001", "made-up-secret-value", "hunter2-made-up", "s3://made-up/key")
SECRET_VARIABLES = [
    {"name": "AWS_ACCESS_KEY_ID", "value": SECRETS[0]},
    {"name": "AWS_SECRET_ACCESS_KEY", "value": SECRETS[1]},
    {"name": "DB_PASSWORD", "value": SECRETS[2]},
]
_STAYS = ("containerProperties", "ecsProperties", "eksProperties", "nodeProperties")
_CONTAINER = "default"
# What a submission can have in place of its definition, and by which name.
_OVERRIDDEN = {
    "timeout": "timeout",
    "shareIdentifier": "shareIdentifier",
    "propagateTags": "propagateTags",
    "schedulingPriority": "schedulingPriorityOverride",
    "consumableResourceProperties": "consumableResourcePropertiesOverride",
}
_SIGKILL = 137
Json = dict[str, Any]


def arn(kind: str, name: str, region: str = REGION, service: str = "batch") -> str:
    return f"arn:aws:{service}:{region}:{ACCOUNT}:{kind}/{name}"


def job_id(number: int) -> str:
    """The id of the job with this number."""
    return str(UUID(bytes=hashlib.md5(f"job {number}".encode()).digest(), version=4))


def task_arn(of_job: str, attempt: int, region: str = REGION, cluster: str = CLUSTER) -> str:
    """The task that ran an attempt."""
    name = hashlib.md5(f"{of_job} {attempt}".encode()).hexdigest()
    return arn("task", f"{cluster}/{name}", region, "ecs")


def submitted(
    asked: Mapping[str, Any], queue: Json, definition: Json, number: int, now_ms: int
) -> list[Json]:
    """The job of a SubmitJob that Batch accepted; of an array, its children follow it."""
    made = job_id(number)
    job: Json = {
        "jobArn": arn("job", made),
        "jobId": made,
        "jobName": asked["jobName"],
        "jobQueue": queue["jobQueueArn"],
        "status": "PENDING" if asked.get("dependsOn") or "arrayProperties" in asked else "RUNNABLE",
        "attempts": [],
        "createdAt": now_ms,
        "jobDefinition": definition["jobDefinitionArn"],
        "retryStrategy": asked.get("retryStrategy")
        or definition.get("retryStrategy")
        or {"attempts": 1, "evaluateOnExit": []},
        "dependsOn": asked.get("dependsOn", []),
        "parameters": {**definition.get("parameters", {}), **asked.get("parameters", {})},
        "tags": asked.get("tags", {}),
        "platformCapabilities": definition.get("platformCapabilities", ["EC2"]),
        **_properties(asked, definition),
    }
    for name, override in _OVERRIDDEN.items():
        if override in asked or name in definition:
            job[name] = asked[override] if override in asked else definition[name]
    size = asked.get("arrayProperties", {}).get("size")
    if size is None:
        return [job]
    children = [_child(job, index) for index in range(size)]
    return [{**job, "arrayProperties": {"size": size, "statusSummary": {}}}, *children]


def _child(job: Json, index: int) -> Json:
    name = f"{job['jobId']}:{index}"
    array = {"index": index, "statusSummary": {}}
    status = "PENDING" if job["dependsOn"] else "RUNNABLE"
    own = {"jobId": name, "jobArn": arn("job", name), "arrayProperties": array, "status": status}
    return deepcopy(job) | own


def _properties(asked: Mapping[str, Any], definition: Json) -> Json:
    """The job's containers, with what its submission overrides."""
    (kind,) = (name for name in _STAYS if name in definition)
    given = deepcopy(definition[kind])
    if kind == "containerProperties":
        given = _overridden(given, asked.get("containerOverrides", {}))
        given.setdefault("environment", [])
        return {"container": given}
    if kind == "ecsProperties" and "ecsPropertiesOverride" in asked:
        (task,) = given["taskProperties"]
        (over,) = asked["ecsPropertiesOverride"]["taskProperties"]
        names = [one.get("name") for one in task["containers"]]
        for number, container in enumerate(over["containers"]):
            is_named = container.get("name") in names
            place = names.index(container["name"]) if is_named else number
            task["containers"][place] = _overridden(task["containers"][place], container)
    return {kind: given}


def _overridden(container: Json, overrides: Mapping[str, Any]) -> Json:
    """A requirement or a variable replaces the one of its kind or name."""
    changed = container | {
        name: overrides[name] for name in ("command", "vcpus", "memory") if name in overrides
    }
    for name, key in (("resourceRequirements", "type"), ("environment", "name")):
        merged = {one[key]: one for one in (*container.get(name, ()), *overrides.get(name, ()))}
        if merged:
            changed[name] = list(merged.values())
    return changed


def begin(job: Json, now_ms: int, *, instance_arn: str | None = None) -> None:
    """The next attempt runs."""
    place: Json = {"taskArn": task_arn(job["jobId"], len(job["attempts"]) + 1)}
    if instance_arn is not None:
        place["containerInstanceArn"] = instance_arn
    job |= {"status": "RUNNING", "startedAt": now_ms}
    job.pop("statusReason", None)
    if "ecsProperties" in job:
        job["ecsProperties"]["taskProperties"][0] |= place
    elif "container" in job:
        job["container"] |= place | {"logStreamName": _stream(job, place["taskArn"], _CONTAINER)}


def end(
    job: Json,
    now_ms: int,
    exit_code: int | None = 0,
    reason: str | None = None,
    *,
    status_reason: str = "Essential container in task exited",
    others: Mapping[str, int] | None = None,
) -> None:
    """The attempt ends: the job is repeated if it failed and has attempts left.

    ``others`` are the exit codes of a job's further containers by their names.
    """
    number = len(job["attempts"]) + 1
    task = task_arn(job["jobId"], number)
    attempt: Json = {"stoppedAt": now_ms, "statusReason": status_reason}
    if "startedAt" in job:
        attempt["startedAt"] = job["startedAt"]
    ended: Json = {} if exit_code is None else {"exitCode": exit_code}
    if reason is not None:
        ended["reason"] = reason
    if "ecsProperties" in job:
        attempt["container"] = {}
        attempt["taskProperties"] = [_task_end(job, task, ended, others or {})]
    else:
        stream = {"logStreamName": _stream(job, task, _CONTAINER)} if "startedAt" in job else {}
        instance = job["container"].get("containerInstanceArn")
        place = {} if instance is None else {"containerInstanceArn": instance}
        attempt["container"] = {"taskArn": task, **stream, **place, **ended}
        job["container"] |= ended
    job["attempts"].append(attempt)
    has_failed = exit_code != 0 or any((others or {}).values())
    is_repeated = has_failed and number < job["retryStrategy"]["attempts"]
    failed = "RUNNABLE" if is_repeated else "FAILED"
    job |= {"status": failed if has_failed else "SUCCEEDED", "statusReason": status_reason}
    if not is_repeated:
        job["stoppedAt"] = now_ms


def end_without_attempt(job: Json, now_ms: int, reason: str, **more: Any) -> None:
    """The job fails before any attempt: cancelled, or a job that it depends on failed."""
    job |= {"status": "FAILED", "statusReason": reason, "stoppedAt": now_ms, **more}


def terminate(job: Json, now_ms: int, reason: str) -> None:
    """Somebody ends the job: what runs is killed, and is not repeated."""
    if job["status"] == "RUNNING":
        end(job, now_ms, _SIGKILL, status_reason=reason)
    job |= {"status": "FAILED", "statusReason": reason, "stoppedAt": now_ms, "isTerminated": True}


def _task_end(job: Json, task: str, ended: Json, others: Mapping[str, int]) -> Json:
    first, *more = job["ecsProperties"]["taskProperties"][0]["containers"]
    containers = [{"name": first.get("name", _CONTAINER), **ended}]
    containers += [{"name": one["name"], "exitCode": others.get(one["name"], 0)} for one in more]
    for container in containers:
        container["logStreamName"] = _stream(job, task, container["name"])
    return {"taskArn": task, "containers": containers}


def _stream(job: Json, task: str, container: str) -> str:
    definition = job["jobDefinition"].rpartition("/")[2].partition(":")[0]
    return f"{definition[:200]}/{container}/{task.rpartition('/')[2]}"


def job_event(job: Json, now_ms: int) -> Json:
    """Batch's event of the job's present state."""
    return {
        "version": "0",
        "id": "c8f9c4b5-76e5-d76a-f980-7011e206042b",
        "detail-type": "Batch Job State Change",
        "source": "aws.batch",
        "account": ACCOUNT,
        "time": _time(now_ms),
        "region": job["jobArn"].split(":")[3],
        "resources": [job["jobArn"]],
        "detail": deepcopy(job),
    }


def queue_blocked_event(job: Json, reason: str, now_ms: int) -> Json:
    """Batch's event of a queue whose first job cannot start."""
    event = job_event(job, now_ms)
    return event | {
        "detail-type": "Batch Job Queue Blocked",
        "resources": [job["jobArn"], job["jobQueue"]],
        "detail": deepcopy(job) | {"statusReason": reason},
    }


def task_event(
    job: Json,
    attempt: int = 1,
    *,
    cluster: str = CLUSTER,
    containers: Sequence[Json] = ({"name": _CONTAINER, "exitCode": 0},),
    variables: Sequence[Json] = (),
    **detail: Any,
) -> Json:
    """ECS's event of the task of an attempt, on Fargate: Batch's variables are among the
    submitter's, which are secrets.
    """
    region = job["jobArn"].split(":")[3]
    task = task_arn(job["jobId"], attempt, region, cluster)
    definition = job["jobDefinition"].rpartition("/")[2].partition(":")[0]
    mixed = [*SECRET_VARIABLES, *batch_variables(job, attempt), *variables]
    override = {"name": _CONTAINER, "environment": mixed, "command": ["load", SECRETS[3]]}
    return {
        "version": "0",
        "detail-type": "ECS Task State Change",
        "source": "aws.ecs",
        "account": ACCOUNT,
        "region": region,
        "time": "2026-03-01T10:12:56Z",
        "resources": [task],
        "detail": {
            "taskArn": task,
            "clusterArn": arn("cluster", cluster, region, "ecs"),
            "taskDefinitionArn": arn("task-definition", f"{definition}:5", region, "ecs"),
            "group": f"family:{definition}",
            "launchType": "FARGATE",
            "lastStatus": "STOPPED",
            "cpu": "512",
            "memory": "2048",
            "containers": [dict(container) for container in containers],
            "overrides": {"containerOverrides": [override]},
            "createdAt": "2026-03-01T10:11:07.314Z",
            "pullStartedAt": "2026-03-01T10:11:19.058Z",
            "startedAt": "2026-03-01T10:11:29.1Z",
            "executionStoppedAt": "2026-03-01T10:12:32.316Z",
            "stoppedAt": "2026-03-01T10:12:56.341Z",
            "stopCode": "EssentialContainerExited",
            "stoppedReason": "Essential container in task exited",
            **detail,
        },
    }


def batch_variables(job: Json, attempt: int = 1, environment: str = "spot") -> list[Json]:
    """The variables that Batch gives to a container of the attempt."""
    queue = job["jobQueue"].rpartition("/")[2]
    values: dict[str, object] = {
        "AWS_BATCH_JOB_ID": job["jobId"],
        "AWS_BATCH_JQ_NAME": queue,
        "AWS_BATCH_CE_NAME": environment,
        "AWS_BATCH_JOB_ATTEMPT": attempt,
    }
    index = job.get("arrayProperties", {}).get("index")
    if index is not None:
        values["AWS_BATCH_JOB_ARRAY_INDEX"] = index
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def _time(now_ms: int) -> str:
    return f"{datetime.fromtimestamp(now_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
