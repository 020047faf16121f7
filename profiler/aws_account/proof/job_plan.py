"""What ``task-profiler setup proof --queue`` will do: three programs as jobs of a Fargate queue of
AWS Batch, each by the monitor's image with ``run`` before it.

The plan only reads. A job of the queue that succeeded shows how jobs run there, or the definition
that the user names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.forwarder_stack import ForwarderStack, read_named_or_default_stack
from profiler.aws_account.job_queues import missing_queue_error
from profiler.aws_account.proof.plan import (
    FARGATE_MB,
    GROUP_PREFIX,
    PYTHON,
    SCENARIOS,
    VCPU,
    ProofPlan,
    awslogs_configuration,
    delivery_of_stack,
    estimated_fargate_usd,
    witness_program,
)
from profiler.aws_account.proof.proof_options import ProofOptions
from profiler.aws_account.registered_definitions import read_items
from profiler.aws_account.report_prerequisites import ReportPathReader
from profiler.core.aws_clients import AwsClient
from profiler.core.commands_to_copy import aws_command_line, command_line
from profiler.core.ecs_terms import FARGATE, arn_account, arn_part, arn_region, family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.text import did_you_mean, on_one_line
from profiler.record.batch_job import resource_name
from profiler.record.batch_job_detail import SUCCEEDED
from profiler.record.family_identity import PROOF_FAMILY
from profiler.sizing.fargate_sizes import Size
from profiler.task_definitions.monitor_container import default_image

CONTAINER = "default"  # Batch's name for the container of ``containerProperties``
JOB_PLAN_RIGHTS = (
    "batch:DescribeComputeEnvironments",
    "batch:DescribeJobDefinitions",
    "batch:DescribeJobQueues",
    "batch:ListJobs",
)
JOB_RIGHTS = (
    "batch:DeregisterJobDefinition",
    "batch:DescribeJobs",
    "batch:RegisterJobDefinition",
    "batch:SubmitJob",
    "batch:TerminateJob",
)
_SMALL = Size(0.25, 512)
_SIZES = {"success": Size(VCPU, FARGATE_MB), "failure": _SMALL, "memory": _SMALL}
_ON_FARGATE = ("FARGATE", "FARGATE_SPOT")
_ENABLED = "ENABLED"
_VALID = "VALID"
_MAX_JOBS = 100
_TIMEOUT_SECONDS = 600
_SHARE = "taskprofilerproof"  # a queue with a scheduling policy asks for one
_UNLOGGED = "BatchJobs posts one message a job, of which no line tells"


class JobPlace(Struct, frozen=True, kw_only=True):
    """How jobs run in the queue: ``source`` shows it, in words. ``parts`` are members of
    ``containerProperties``.
    """

    source: str
    parts: Mapping[str, Any]


class JobsPlan(ProofPlan, frozen=True, kw_only=True):
    """The proof by jobs of a queue. ``definitions`` are by the program's name."""

    queue: str
    queue_arn: str
    share: str | None
    place: JobPlace
    image: str
    definitions: Mapping[str, Mapping[str, Any]]

    def plan_document(self) -> Mapping[str, object]:
        """The plan for people and programs."""
        network = mapping_or_empty(self.place.parts.get("networkConfiguration"))
        filters = () if self.delivery is None else ("the stack's subscription filter on it",)
        return {
            "queue": self.queue,
            "stack": self.stack.name if self.has_stack else None,
            "as": self.place.source,
            "registers": PROOF_FAMILY,
            "runs": list(self.scenarios),
            "publicAddress": network.get("assignPublicIp") == _ENABLED,
            "executionRole": self.place.parts.get("executionRoleArn"),
            "image": self.image,
            "makes": [self.log_group_name, *filters],
            **self.last_document_members((*JOB_PLAN_RIGHTS, *JOB_RIGHTS)),
        }


def make_jobs_plan(
    options: ProofOptions, new_id: str, open_client: OpenClient, warn: Callable[[str], object]
) -> JobsPlan:
    """Plan the proof. Raises TaskProfilerError if it cannot run there."""
    stack = read_named_or_default_stack(open_client, options.stack)
    client = open_client("batch")
    queue = _read_queue(open_client, options.queue or "")
    _check_environments(client, queue)
    _check_definitions(client)
    place = _job_place(options, client, queue)
    arn = str(queue["jobQueueArn"])
    region = arn_region(arn) or ""
    image = options.image or default_image(arn)
    group = f"{GROUP_PREFIX}{new_id}"
    definitions = {
        name: _job_definition(
            name, place, image, awslogs_configuration(group, region, PROOF_FAMILY)
        )
        for name in SCENARIOS
    }
    name = str(queue["jobQueueName"])
    paths = ReportPathReader(open_client)
    problems = tuple(_plan_problems(place, image, _log_stream_arns(arn, group), paths))
    for sentence in sorted(paths.problems):
        warn(sentence)
    platform = mapping_or_empty(place.parts.get("runtimePlatform"))
    return JobsPlan(
        kind="jobs",
        id=new_id,
        region=region,
        stack=stack,
        scenarios=SCENARIOS,
        container=CONTAINER,
        stream_prefix=PROOF_FAMILY,
        memory_mb=round(_SMALL.memory_mb),
        delivery=delivery_of_stack(stack, open_client),
        problems=problems,
        usd=estimated_fargate_usd(
            _SIZES.values(), region, text_or_none(platform.get("cpuArchitecture"))
        ),
        network_mode="awsvpc",
        is_on_fargate=True,
        capacity_remedy=f"See why: {command_line('doctor', '--queue', name, region=region)}.",
        unlogged_notices=_unlogged_note(stack),
        queue=name,
        queue_arn=arn,
        share=_SHARE if queue.get("schedulingPolicyArn") else None,
        place=place,
        image=image,
        definitions=definitions,
    )


def _unlogged_note(stack: ForwarderStack) -> str:
    return _UNLOGGED if stack.parameters.get("BatchJobs") == "true" else ""


def _read_queue(open_client: OpenClient, name: str) -> Mapping[str, Any]:
    """The queue, which takes jobs."""
    with aws_errors(f"The queue {name} cannot be read", "batch:DescribeJobQueues"):
        found = open_client("batch").describe_job_queues(jobQueues=[name])["jobQueues"]
    if not found:
        raise missing_queue_error(open_client, name)
    queue: Mapping[str, Any] = found[0]
    title = queue["jobQueueName"]
    if queue["state"] != _ENABLED:
        command = aws_command_line(
            "batch", "update-job-queue", "--job-queue", title, "--state", _ENABLED
        )
        raise TaskProfilerError(f"The queue {title} is {queue['state']}. Enable it: {command}.")
    if queue.get("status") not in (None, _VALID):
        reason = on_one_line(str(queue.get("statusReason") or "AWS gives no reason"))
        raise TaskProfilerError(f"The queue {title} is {queue['status']}: {reason}")
    return queue


def _check_environments(client: AwsClient, queue: Mapping[str, Any]) -> None:
    """Raise TaskProfilerError if jobs of the queue can run anywhere but on Fargate."""
    title = queue["jobQueueName"]
    arns = [place["computeEnvironment"] for place in queue.get("computeEnvironmentOrder", ())]
    with aws_errors(
        f"The compute environments of the queue {title} cannot be read",
        "batch:DescribeComputeEnvironments",
    ):
        found = client.describe_compute_environments(computeEnvironments=arns)
    environments = found["computeEnvironments"]
    types = {_environment_type(environment) for environment in environments}
    if not types or not types <= {*_ON_FARGATE}:
        others = ", ".join(sorted(types - {*_ON_FARGATE})) or "no environment"
        raise TaskProfilerError(
            f"The queue {title} is not one of Fargate alone ({others}): name another with --queue, "
            "or an ECS cluster with --cluster."
        )
    if not any(_does_take_jobs(environment) for environment in environments):
        raise TaskProfilerError(
            f"No compute environment of the queue {title} is enabled and valid: "
            f"{command_line('doctor', '--queue', title)} says why."
        )


def _environment_type(environment: Mapping[str, Any]) -> str:
    orchestration = environment.get("containerOrchestrationType")
    resources = mapping_or_empty(environment.get("computeResources"))
    if orchestration == "EKS":
        return "EKS"
    return text_or_none(resources.get("type")) or str(environment.get("type"))


def _does_take_jobs(environment: Mapping[str, Any]) -> bool:
    is_enabled = environment.get("state") in (None, _ENABLED)
    return is_enabled and environment.get("status") in (None, _VALID)


def _check_definitions(client: AwsClient) -> None:
    """Raise TaskProfilerError if the definition is somebody's own: its jobs would be ours."""
    for definition in own_name_definitions(client):
        if not log_group_of_definition(definition).startswith(GROUP_PREFIX):
            raise TaskProfilerError(
                f"The job definition {PROOF_FAMILY} has a revision that setup proof did not "
                "register: deregister it, or give it another name."
            )


def own_name_definitions(client: AwsClient) -> list[Mapping[str, Any]]:
    """The active definitions with the name of the proof's. Raises TaskProfilerError."""
    with aws_errors("The proof's job definition cannot be read", "batch:DescribeJobDefinitions"):
        return [
            *read_items(
                client,
                "describe_job_definitions",
                "jobDefinitions",
                jobDefinitionName=PROOF_FAMILY,
                status="ACTIVE",
            )
        ]


def log_group_of_definition(definition: Mapping[str, Any]) -> str:
    """The log group of a definition's container; empty for none, or several containers."""
    logging = mapping_or_empty(
        mapping_or_empty(definition.get("containerProperties")).get("logConfiguration")
    )
    return text_or_none(mapping_or_empty(logging.get("options")).get("awslogs-group")) or ""


def _job_place(options: ProofOptions, client: AwsClient, queue: Mapping[str, Any]) -> JobPlace:
    """What jobs of the queue, or the definition of ``--like``, need besides their program."""
    title = queue["jobQueueName"]
    if options.like is not None:
        names = [options.like]
        source = f"The job definition {options.like}"
    else:
        names = _newest_definitions(client, title)
        source = f"A job of the queue {title}"
    parts: dict[str, Any] = {}
    if names:
        parts = next(filter(None, map(_fargate_properties, _read_definitions(client, names))), {})
    if options.like is not None and not parts and options.execution_role is None:
        raise TaskProfilerError(
            f"There is no job definition {options.like!r} for Fargate with an execution role: name "
            "another with --like, or a role with --execution-role."
            f"{_similar_definition(client, options.like)}"
        )
    if options.execution_role is not None:
        source = source if parts else "The options"
        parts["executionRoleArn"] = options.execution_role
    if not parts:
        raise TaskProfilerError(
            f"No job of the queue {title} that succeeded shows how its jobs run: name a job "
            "definition with --like, or a role with --execution-role."
        )
    return JobPlace(source=source, parts=parts)


def _similar_definition(client: AwsClient, name: str) -> str:
    """A sentence with the definition that may be meant, after a space; "" if that is unknown, or
    there is one of this name, which lacks what is needed.
    """
    try:
        with aws_errors("The job definitions", "batch:DescribeJobDefinitions"):
            listed = read_items(
                client, "describe_job_definitions", "jobDefinitions", status="ACTIVE"
            )
            known = sorted({str(one["jobDefinitionName"]) for one in listed})
    except TaskProfilerError:
        return ""
    wanted = family_of(name)
    return "" if wanted in known else did_you_mean([wanted], known)


def _newest_definitions(client: AwsClient, queue: str) -> list[str]:
    """The ARNs of the definitions of the queue's jobs that succeeded."""
    with aws_errors(f"The jobs of the queue {queue} cannot be listed", "batch:ListJobs"):
        jobs = read_items(
            client, "list_jobs", "jobSummaryList", jobQueue=queue, jobStatus=SUCCEEDED
        )
        arns = [
            text_or_none(mapping_or_empty(job).get("jobDefinition"))
            for job in islice(jobs, _MAX_JOBS)
        ]
    return [*dict.fromkeys(filter(None, arns))]


def _read_definitions(client: AwsClient, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """The definitions of these ARNs, or of one name the newest."""
    ask: Mapping[str, object] = {"jobDefinitions": list(names)}
    if len(names) == 1 and ":" not in names[0]:
        ask = {"jobDefinitionName": names[0], "status": "ACTIVE"}
    with aws_errors("The job definitions cannot be read", "batch:DescribeJobDefinitions"):
        found = [*read_items(client, "describe_job_definitions", "jobDefinitions", **ask)]
    return sorted(found, key=lambda one: -one["revision"])


def _fargate_properties(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What a definition for Fargate with an execution role has for all programs; else nothing."""
    if FARGATE not in definition.get("platformCapabilities", ()):
        return {}
    tasks = mappings_in_list(
        mapping_or_empty(definition.get("ecsProperties")).get("taskProperties")
    )
    properties = next(tasks, mapping_or_empty(definition.get("containerProperties")))
    if not properties.get("executionRoleArn"):
        return {}
    names = ("executionRoleArn", "networkConfiguration", "runtimePlatform")
    return {name: properties[name] for name in names if properties.get(name)}


def _job_definition(
    scenario: str, place: JobPlace, image: str, logging: Mapping[str, object]
) -> Mapping[str, Any]:
    """The definition of one program, which needs no overrides: ECS limits their length."""
    size = _SIZES[scenario]
    program = [PYTHON, "-I", "-c", witness_program(), scenario]
    return {
        "jobDefinitionName": PROOF_FAMILY,
        "type": "container",
        "platformCapabilities": [FARGATE],
        "retryStrategy": {"attempts": 1},
        "timeout": {"attemptDurationSeconds": _TIMEOUT_SECONDS},
        "containerProperties": {
            **place.parts,
            "image": image,
            "command": ["run", "--no-history", "--name", PROOF_FAMILY, "--", *program],
            "resourceRequirements": [
                {"type": "VCPU", "value": f"{size.vcpu:g}"},
                {"type": "MEMORY", "value": str(size.memory_mb)},
            ],
            "logConfiguration": logging,
        },
    }


def _log_stream_arns(arn: str, group: str) -> frozenset[str]:
    partition = arn_part(arn, 1) or "aws"
    place = f"arn:{partition}:logs:{arn_region(arn)}:{arn_account(arn)}:log-group:{group}"
    return frozenset([f"{place}:log-stream:{PROOF_FAMILY}/{CONTAINER}/*"])


def _plan_problems(
    place: JobPlace, image: str, streams: frozenset[str], paths: ReportPathReader
) -> Iterator[str]:
    """What keeps the jobs from starting, or from logging."""
    arn = str(place.parts["executionRoleArn"])
    role = resource_name(arn)
    may_pull = paths.may_role_pull(arn, image)
    pull = paths.denial_of_role(may_pull, "execution role", role, f"the pull of {image}")
    if pull is not None:
        yield f"{pull.text} {pull.remedy}".rstrip()
    permission = paths.may_role_write(role, streams)
    if permission == "no role":
        yield f"There is no execution role {role}, so Batch starts no job."
    what = "logs:PutLogEvents for the log group"
    writing = paths.denial_of_role(permission, "execution role", role, what)
    if writing is not None:
        yield f"{writing.text} {writing.remedy}".rstrip()
