"""What ``task-profiler setup proof --cluster`` will do: where its tasks run, their roles, and what
stays.

The plan only reads. A schedule or service of the cluster shows how tasks run there, or the family
that the user names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.clusters_and_log_groups import check_clusters
from profiler.aws_account.doctor.definition_checks import add_monitor_command, start_problems
from profiler.aws_account.eventbridge_calls import ScheduleReader
from profiler.aws_account.forwarder_stack import read_named_or_default_stack
from profiler.aws_account.instance_monitors import InstanceMonitorReader
from profiler.aws_account.planned_family import PlannedFamily, plan_addition
from profiler.aws_account.proof.plan import (
    FARGATE_MB,
    GROUP_PREFIX,
    ON_INSTANCE,
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
from profiler.aws_account.registered_definitions import (
    TaskDefinitions,
    missing_definition_named,
    read_items,
    read_services,
)
from profiler.aws_account.report_prerequisites import ReportPathReader, task_role
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.target_placement import missing_provider
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import (
    EC2,
    FARGATE,
    MANAGED_INSTANCES,
    arn_region,
    cluster_name,
    family_of,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, text_or_none, with_uncapitalized_names
from profiler.record.family_identity import PROOF_FAMILY
from profiler.sizing.fargate_sizes import Size
from profiler.task_definitions.containers import log_target, read_containers
from profiler.task_definitions.definition_json import TaskDefinitionDocument, read_described
from profiler.task_definitions.monitor_changes import AddMonitorOptions
from profiler.task_definitions.monitor_container import DEFAULT_STREAM_PREFIX, default_image

BATCH = "batch"
_ACTIVE = "ACTIVE"
_DELETED = "INACTIVE"  # ECS describes a deleted cluster for some time
_BATCH_MB = 256
_AWSVPC = "awsvpcConfiguration"
_AWSVPC_MODE = "awsvpc"
_INSTANCE_MB = 512
# On an instance, a share and no limit: three tasks have room beside others.
_SHARE = 128
# The actions of the plan, in addition to those of the proof.
PLAN_RIGHTS = (
    "ecs:DescribeClusters",
    "ecs:DescribeServices",
    "ecs:DescribeTaskDefinition",
    "ecs:ListServices",
    "ecs:ListTaskDefinitions",
    "events:ListEventBuses",
    "events:ListRules",
    "events:ListTargetsByRule",
    "scheduler:GetSchedule",
    "scheduler:ListSchedules",
)
PROOF_RIGHTS = (
    "ecs:DeleteTaskDefinitions",
    "ecs:DeregisterTaskDefinition",
    "ecs:ListTasks",
    "ecs:RegisterTaskDefinition",
    "ecs:RunTask",
    "ecs:StopTask",
    "iam:DeleteRolePolicy",
    "iam:PutRolePolicy",
)
_CAPACITY = "Give the cluster capacity for a task of one vCPU, or choose --like or --subnets."


class TaskPlace(Struct, frozen=True, kw_only=True):
    """How tasks run in the cluster.

    ``source``: what shows it, in words. ``run`` are arguments of RunTask, ``definition`` is the
    name of the family's definition, None: there is none.
    """

    source: str
    definition: str | None
    run: Mapping[str, Any] = {}

    @property
    def has_network(self) -> bool:
        """Whether it has subnets, or is on instances, which may need none."""
        network = mapping_or_empty(
            mapping_or_empty(self.run.get("networkConfiguration")).get(_AWSVPC)
        )
        return bool(network.get("subnets")) or self.run.get("launchType") == EC2


class TasksPlan(ProofPlan, frozen=True, kw_only=True):
    """The proof by tasks of a cluster.

    ``planned`` is the family with its monitor. ``policy_streams``: the streams that a policy must
    allow for the time of the proof.
    """

    cluster: str
    place: TaskPlace
    planned: PlannedFamily
    plain: Mapping[str, object]
    policy_streams: tuple[str, ...]

    @property
    def definition(self) -> Mapping[str, Any]:
        return self.planned.changed.definition

    @property
    def role(self) -> str | None:
        return task_role(self.definition)

    def plan_document(self) -> Mapping[str, object]:
        """The plan for people and programs."""
        network = mapping_or_empty(
            mapping_or_empty(self.place.run.get("networkConfiguration")).get(_AWSVPC)
        )
        strategy = self.place.run.get("capacityProviderStrategy", ())
        return {
            "cluster": self.cluster,
            "stack": self.stack.name if self.has_stack else None,
            "as": self.place.source,
            "registers": PROOF_FAMILY,
            "runs": list(self.scenarios),
            "launchType": self.place.run.get("launchType"),
            "capacityProviders": [item["capacityProvider"] for item in strategy],
            "networkMode": self.definition["networkMode"],
            "subnets": network.get("subnets", []),
            "securityGroups": network.get("securityGroups", []),
            "publicAddress": network.get("assignPublicIp") == "ENABLED",
            "taskRole": self.definition.get("taskRoleArn"),
            "executionRole": self.definition.get("executionRoleArn"),
            "image": self.planned.changed.monitor and self.planned.changed.monitor.image,
            "makes": [self.log_group_name, *self._temporary_things_texts()],
            **self.last_document_members((*PLAN_RIGHTS, *PROOF_RIGHTS)),
        }

    def _temporary_things_texts(self) -> Iterator[str]:
        if self.delivery is not None:
            yield "the stack's subscription filter on it"
        if self.policy_streams:
            yield f"the inline policy {self.resource_name} of the role {self.role}"


def make_tasks_plan(
    options: ProofOptions, new_id: str, open_client: OpenClient, warn: Callable[[str], object]
) -> TasksPlan:
    """Plan the proof. Raises TaskProfilerError if it cannot run there."""
    named_cluster = options.cluster or ""
    stack = read_named_or_default_stack(open_client, options.stack)
    ecs = open_client("ecs")
    cluster = _described_cluster(open_client, named_cluster)
    account_arn = str(cluster["clusterArn"])
    region = arn_region(account_arn) or ""
    definitions = TaskDefinitions(ecs)
    _check_family(ecs, definitions)
    place = _with_network(_find_task_place(options, named_cluster, open_client), options)
    like = _similar_definition(place, definitions)
    place = _with_launch_type(place, like, cluster.get("defaultCapacityProviderStrategy", ()))
    _check_providers(place, cluster)
    image = options.image or default_image(account_arn)
    plain = _batch_definition(
        like, place, options, group=f"{GROUP_PREFIX}{new_id}", image=image, region=region
    )
    _check_subnets(place, plain)
    planned = plan_addition(
        PROOF_FAMILY,
        TaskDefinitionDocument(definition=plain, arn=account_arn),
        options=AddMonitorOptions(container=BATCH, image=image),
    )
    paths = ReportPathReader(open_client)
    role = task_role(plain)
    permission = paths.may_role_write(role, planned.report_stream_arns)
    policy_streams: tuple[str, ...] = ()
    if role and permission in ("denied", "unknown"):
        policy_streams = tuple(sorted(planned.report_stream_arns))
        permission = None  # the proof's own policy allows it
    problems = start_problems(planned, permission, paths, add_monitor_command(PROOF_FAMILY))
    scenarios: tuple[str, ...] = SCENARIOS
    if InstanceMonitorReader(ecs, warn).is_family_reported(PROOF_FAMILY, plain, [named_cluster]):
        scenarios = (*SCENARIOS, ON_INSTANCE)
    for sentence in sorted(paths.problems):
        warn(sentence)
    is_on_fargate = plain["requiresCompatibilities"] == [FARGATE]
    return TasksPlan(
        kind="tasks",
        id=new_id,
        region=region,
        cluster=named_cluster,
        stack=stack,
        container=BATCH,
        stream_prefix=DEFAULT_STREAM_PREFIX,
        memory_mb=_BATCH_MB,
        network_mode=str(plain["networkMode"]),
        is_on_fargate=is_on_fargate,
        capacity_remedy=_CAPACITY,
        place=place,
        planned=planned,
        plain=plain,
        scenarios=scenarios,
        delivery=delivery_of_stack(stack, open_client),
        policy_streams=policy_streams,
        problems=tuple(f"{problem.text} {problem.advice or ''}".rstrip() for problem in problems),
        usd=_estimated_usd(plain, region) if is_on_fargate else None,
    )


def _similar_definition(place: TaskPlace, definitions: TaskDefinitions) -> Mapping[str, object]:
    """The definition that shows how tasks run there."""
    if place.definition is None:
        return {"requiresCompatibilities": [FARGATE], "networkMode": _AWSVPC_MODE}
    with missing_definition_named(definitions, place.definition):
        return read_described(definitions.describe, place.definition).definition


def _described_cluster(open_client: OpenClient, name: str) -> Mapping[str, Any]:
    """The cluster as ECS describes it. Raises TaskProfilerError if no task can run there."""
    ecs = open_client("ecs")
    with aws_errors(f"The cluster {cluster_name(name)} cannot be read", "ecs:DescribeClusters"):
        described = ecs.describe_clusters(clusters=[name])["clusters"]
    status = described[0].get("status", _ACTIVE) if described else _DELETED
    if status == _DELETED:
        check_clusters(open_client, (name,))
        raise TaskProfilerError(
            f"There is no ECS cluster {cluster_name(name)}: check the name, --region and --profile."
        )
    if status != _ACTIVE:
        raise TaskProfilerError(
            f"The ECS cluster {cluster_name(name)} is {status}, so no task can start there: run "
            "the command again when it is ACTIVE."
        )
    cluster: Mapping[str, Any] = described[0]
    return cluster


def _check_providers(place: TaskPlace, cluster: Mapping[str, Any]) -> None:
    """Raise TaskProfilerError if the cluster lacks a capacity provider of the tasks: ECS lets one
    be removed with which a schedule starts tasks.
    """
    missing = missing_provider(place.run.get("capacityProviderStrategy"), cluster)
    if missing is not None:
        name = cluster_name(str(cluster["clusterArn"]))
        raise TaskProfilerError(
            f"{place.source} starts tasks with the capacity provider {missing}, which the cluster "
            f"{name} does not have, so ECS starts none: give it to the cluster, or name a family "
            "with --like."
        )


def _check_subnets(place: TaskPlace, plain: Mapping[str, object]) -> None:
    """Raise TaskProfilerError if the tasks need subnets, and none are known."""
    network = place.run.get("networkConfiguration", {}).get(_AWSVPC, {})
    if plain["networkMode"] == _AWSVPC_MODE and not network.get("subnets"):
        raise TaskProfilerError(
            f"{place.source} does not show in which subnets its tasks run: name them with "
            "--subnets and --security-groups."
        )


def _check_family(ecs: AwsClient, definitions: TaskDefinitions) -> None:
    """Raise TaskProfilerError if the family is somebody's own: its schedules would start ours."""
    with aws_errors("The family of the proof cannot be read", "ecs:ListTaskDefinitions"):
        arns = read_items(
            ecs, "list_task_definitions", "taskDefinitionArns", familyPrefix=PROOF_FAMILY
        )
        revisions = [arn for arn in arns if family_of(arn) == PROOF_FAMILY]
    for arn in revisions:
        document = read_described(definitions.describe, arn)
        containers = read_containers(document.definition)
        groups = [log_target(container).group or "" for container in containers]
        if not all(group.startswith(GROUP_PREFIX) for group in groups):
            raise TaskProfilerError(
                f"The family {PROOF_FAMILY} has a revision that setup proof did not register: "
                "deregister it, or give it another name."
            )


def _find_task_place(
    options: ProofOptions, named_cluster: str, open_client: OpenClient
) -> TaskPlace:
    """The first schedule or service of the cluster, of the family of ``--like`` if it is given."""
    cluster = cluster_name(named_cluster)
    places = []
    for target in ScheduleReader(open_client).read_targets():
        is_like = options.like in (None, target.family)
        if cluster_name(target.cluster_arn) == cluster and is_like:
            place = TaskPlace(
                source=f"The {target.title}",
                definition=target.definition_arn,
                run=_run_arguments_of_target(target),
            )
            places.append(place)
    if places:
        # A target without subnets may be one that starts nothing.
        return next((place for place in places if place.has_network), places[0])
    ecs = open_client("ecs")
    with aws_errors(
        f"The services of the cluster {cluster} could not be read",
        "ecs:ListServices and ecs:DescribeServices",
    ):
        for service in read_services(ecs, named_cluster):
            arn = str(service.get("taskDefinition", ""))
            if arn and options.like in (None, family_of(arn)):
                return TaskPlace(
                    source=f"The service {service['serviceName']}",
                    definition=arn,
                    run=_run_arguments_of_service(service),
                )
    if options.like is not None:
        return TaskPlace(source=f"The family {options.like}", definition=options.like)
    if options.subnets:
        return TaskPlace(source="The options", definition=None)
    raise TaskProfilerError(
        f"No schedule and no service of the cluster {cluster} shows how tasks run there: name "
        "--subnets, --task-role and --execution-role, or a family with --like."
    )


def _run_arguments_of_service(service: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of RunTask in a service."""
    names = ("launchType", "capacityProviderStrategy", "platformVersion", "networkConfiguration")
    run = {name: service[name] for name in names if service.get(name)}
    if "capacityProviderStrategy" in run:
        run.pop("launchType", None)
    return run


def _run_arguments_of_target(target: ScheduledTarget) -> dict[str, Any]:
    """The arguments of RunTask in a target: its members begin with capitals, RunTask's do not."""
    started = target.request
    if started is None:
        started = target.content.get("Target", target.content)["EcsParameters"]
    return _run_arguments_of_service(with_uncapitalized_names(started))


def _with_network(place: TaskPlace, options: ProofOptions) -> TaskPlace:
    if not (options.subnets or options.security_groups):
        return place
    network = dict(
        mapping_or_empty(mapping_or_empty(place.run.get("networkConfiguration")).get(_AWSVPC))
    )
    if options.subnets:
        network["subnets"] = list(options.subnets)
    if options.security_groups:
        network["securityGroups"] = list(options.security_groups)
    run = {**place.run, "networkConfiguration": {_AWSVPC: network}}
    return replace(place, run=run)


def _with_launch_type(
    place: TaskPlace, like: Mapping[str, object], default_strategy: Sequence[Mapping[str, Any]]
) -> TaskPlace:
    """The place with what a family alone says: the first of its launch types, by the cluster's
    default capacity providers if they have it.
    """
    if "launchType" in place.run or "capacityProviderStrategy" in place.run:
        return place
    required = _required_launch_types(like)
    by_default = replace(place, run={**place.run, "capacityProviderStrategy": [*default_strategy]})
    if default_strategy and required[0] in _launch_types(by_default, like):
        return by_default
    named = [launch_type for launch_type in required if launch_type != MANAGED_INSTANCES]
    if not named:
        raise TaskProfilerError(
            f"{place.source} shows no capacity provider, without which no task starts on Managed "
            "Instances: give the cluster a default capacity provider strategy, or name a family "
            "with --like whose schedule or service has one."
        )
    return replace(place, run={**place.run, "launchType": named[0]})


def _batch_definition(
    like: Mapping[str, object],
    place: TaskPlace,
    options: ProofOptions,
    *,
    group: str,
    image: str,
    region: str,
) -> dict[str, Any]:
    """The definition of the batch alone."""
    launch_types = _launch_types(place, like)
    is_on_fargate = launch_types == [FARGATE]
    default_mode = _AWSVPC_MODE if MANAGED_INSTANCES in launch_types else "bridge"
    batch = {
        "name": BATCH,
        "image": image,
        "essential": True,
        "cpu": 0 if is_on_fargate else _SHARE,
        "memory": _BATCH_MB,
        "entryPoint": [PYTHON, "-I", "-c", witness_program()],
        "command": [SCENARIOS[0]],
        "logConfiguration": awslogs_configuration(group, region, DEFAULT_STREAM_PREFIX),
    }
    definition = {
        "family": PROOF_FAMILY,
        "requiresCompatibilities": launch_types,
        "networkMode": like.get("networkMode", default_mode),
        "cpu": str(VCPU * 1024) if is_on_fargate else None,
        "memory": str(FARGATE_MB if is_on_fargate else _INSTANCE_MB),
        "taskRoleArn": options.task_role or like.get("taskRoleArn"),
        "executionRoleArn": options.execution_role or like.get("executionRoleArn"),
        "runtimePlatform": like.get("runtimePlatform"),
        "containerDefinitions": [batch],
    }
    return {name: value for name, value in definition.items() if value}


def _required_launch_types(like: Mapping[str, object]) -> list[str]:
    """The launch types that the definition requires; EC2 without one."""
    required = like.get("requiresCompatibilities")
    return [str(each) for each in required] if isinstance(required, list) and required else [EC2]


def _launch_types(place: TaskPlace, like: Mapping[str, object]) -> list[str]:
    """The launch types of the tasks: the place's own, or those of its capacity providers. Whether
    a provider that is not Fargate's has instances of the account or managed ones, the definition
    that runs there knows.
    """
    launch_type: str | None = place.run.get("launchType")
    if launch_type:
        return [launch_type]
    providers = [item["capacityProvider"] for item in place.run["capacityProviderStrategy"]]
    if all(provider.startswith(FARGATE) for provider in providers):
        return [FARGATE]
    return [each for each in _required_launch_types(like) if each != FARGATE] or [EC2]


def _estimated_usd(definition: Mapping[str, Any], region: str) -> float | None:
    architecture = text_or_none(
        mapping_or_empty(definition.get("runtimePlatform")).get("cpuArchitecture")
    )
    return estimated_fargate_usd([Size(VCPU, FARGATE_MB)] * len(SCENARIOS), region, architecture)
