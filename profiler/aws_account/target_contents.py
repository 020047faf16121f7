"""What the JSON of a target of EventBridge or EventBridge Scheduler starts: an ECS task, a job of
AWS Batch, or an execution of a state machine of Step Functions.
"""

import json
from collections.abc import Mapping
from typing import Any

from profiler.core.json_fields import mapping_or_empty, text_or_none, with_capitalized_names
from profiler.core.json_levels import within_levels

TASK_PARAMETERS = "EcsParameters"
TASK_DEFINITION_ARN = "TaskDefinitionArn"
JOB_PARAMETERS = "BatchParameters"
JOB_DEFINITION = "JobDefinition"
# Scheduler's universal target for RunTask: the whole request is its input.
# https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-targets-universal.html
RUN_TASK_ARN = "arn:aws:scheduler:::aws-sdk:ecs:runTask"

# … and for a state machine's executions, for which it also has a target of its own.
_START_EXECUTION = (
    "arn:aws:scheduler:::aws-sdk:sfn:startExecution",
    "arn:aws:scheduler:::aws-sdk:sfn:startSyncExecution",
)

# … and for SubmitJob of AWS Batch, which Scheduler has no other target for.
SUBMIT_JOB_ARN = "arn:aws:scheduler:::aws-sdk:batch:submitJob"


def _task_of_parameters(target: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster and the task definition of a target that starts a task."""
    return {
        "cluster_arn": target["Arn"],
        "definition_arn": target[TASK_PARAMETERS][TASK_DEFINITION_ARN],
    }


def is_universal_target(arn: str, call: str) -> bool:
    """Whether the target is this universal one, in whatever partition."""
    return arn.partition(":scheduler:")[2] == call.partition(":scheduler:")[2]


def is_state_machine_arn(arn: object) -> bool:
    """Whether the target of a rule or a schedule is a state machine, in whatever partition."""
    return isinstance(arn, str) and ":states:" in arn and ":stateMachine:" in arn


def machine_arn_without_version(arn: str) -> str:
    """The ARN of a state machine without a version or an alias."""
    return ":".join(arn.split(":")[:7])


def machine_name_of_arn(arn: str) -> str:
    """The name in the ARN of a state machine, of a version or of an alias."""
    return machine_arn_without_version(arn).rpartition(":")[2]


def is_machine_version(machine_arn: str) -> bool:
    """Whether the ARN of a state machine names one of its versions."""
    return machine_arn.removeprefix(f"{machine_arn_without_version(machine_arn)}:").isdecimal()


def is_machine_starting_arn(arn: str) -> bool:
    """Whether the target of a schedule starts a state machine, itself or by a universal target."""
    return is_state_machine_arn(arn) or any(
        is_universal_target(arn, call) for call in _START_EXECUTION
    )


def execution_target(machine_arn: str) -> dict[str, Any]:
    """A target that starts a state machine."""
    return {"cluster_arn": machine_arn, "definition_arn": "", "machine_arn": machine_arn}


def _job_of_parameters(target: Mapping[str, Any]) -> dict[str, Any]:
    """The queue and the job of a rule's target."""
    job = mapping_or_empty(target[JOB_PARAMETERS])
    return {
        "cluster_arn": target["Arn"],
        "definition_arn": text_or_none(job.get(JOB_DEFINITION)) or "",
        "job_name": text_or_none(job.get("JobName")) or "",
    }


def _universal_request(target: Mapping[str, Any]) -> Mapping[str, Any]:
    """The input of a universal target, whose names begin with capitals, or as in the API of the
    service. One that cannot be read starts nothing.
    """
    try:
        return mapping_or_empty(
            with_capitalized_names(json.loads(within_levels(target.get("Input") or "{}")))
        )
    except ValueError:
        return {}


def task_of_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster and the task definition of a request of RunTask."""
    return {
        "cluster_arn": text_or_none(request.get("Cluster")) or "default",
        "definition_arn": text_or_none(request.get("TaskDefinition")) or "",
        "request": request,
    }


def job_of_request(request: Mapping[str, Any], caller_arn: str) -> dict[str, Any]:
    """The queue and the job of a request of SubmitJob, which the schedule or the state machine of
    this ARN makes.
    """
    return {
        "cluster_arn": whole_arn(
            text_or_none(request.get("JobQueue")) or "", "batch", "job-queue", caller_arn
        ),
        "definition_arn": text_or_none(request.get(JOB_DEFINITION)) or "",
        "job_name": text_or_none(request.get("JobName")) or "",
    }


def whole_arn(name: str, service: str, kind: str, caller_arn: str) -> str:
    """The ARN of a cluster or a queue of a request: in the account and the Region of its caller."""
    if name.startswith("arn:"):
        return name
    partition, _, place = caller_arn.removeprefix("arn:").partition(":")
    _, region, account = f"{place}:::".split(":")[:3]
    return f"arn:{partition}:{service}:{region}:{account}:{kind}/{name}"


def start_of_rule_target(
    target: Mapping[str, Any], *, with_jobs: bool, with_machines: bool
) -> dict[str, Any] | None:
    """What a rule's target starts, as fields of :class:`ScheduledTarget`; None if it is nothing
    that was asked for.
    """
    if TASK_PARAMETERS in target:
        return _task_of_parameters(target)
    if with_jobs and JOB_PARAMETERS in target:
        return _job_of_parameters(target)
    if with_machines and is_state_machine_arn(target.get("Arn")):
        return execution_target(target["Arn"])
    return None


def start_of_schedule(schedule: Mapping[str, Any], *, with_machines: bool) -> dict[str, Any] | None:
    """What a schedule starts, as fields of :class:`ScheduledTarget`; None if it is nothing that was
    asked for.
    """
    target = schedule["Target"]
    arn = target.get("Arn")
    if TASK_PARAMETERS in target:
        return _task_of_parameters(target)
    if is_universal_target(str(arn), RUN_TASK_ARN):
        return task_of_request(_universal_request(target))
    if is_universal_target(str(arn), SUBMIT_JOB_ARN):
        return job_of_request(_universal_request(target), str(schedule.get("Arn")))
    if not (with_machines and is_machine_starting_arn(str(arn))):
        return None
    if is_state_machine_arn(arn):
        return execution_target(str(arn))
    return execution_target(text_or_none(_universal_request(target).get("StateMachineArn")) or "")
