"""Job definitions of AWS Batch, as RegisterJobDefinition takes them or DescribeJobDefinitions
returns them.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from profiler.core.commands_to_copy import aws_command_line
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.optional_math import all_known, without_float_error
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.task_definitions.definition_json import JOB_ANSWER, JOB_FORMS
from profiler.task_definitions.job_as_task_definition import asked_amount, with_amounts

ECS, ONE_CONTAINER, EKS, NODES = JOB_FORMS
_ARN = "jobDefinitionArn"
# Members of an answer that RegisterJobDefinition does not accept.
_READ_ONLY = frozenset({_ARN, "revision", "status", "containerOrchestrationType"})
# The name that Batch gives to the only container of containerProperties.
DEFAULT_CONTAINER = "default"


class JobDefinition(Struct, frozen=True, kw_only=True):
    """A definition that RegisterJobDefinition accepts.

    ``arn`` is that of the answer it was read from; None for a definition that was written.
    """

    definition: Mapping[str, object]
    arn: str | None = None

    @property
    def name(self) -> str | None:
        return text_or_none(self.definition.get("jobDefinitionName"))


class ContainerShare(Struct, frozen=True):
    """What a container asks for: vCPUs and MiB."""

    vcpu: float = 0
    memory_mb: float = 0

    def __add__(self, other: "ContainerShare") -> "ContainerShare":
        """The sum."""
        return ContainerShare(
            without_float_error(self.vcpu + other.vcpu),
            without_float_error(self.memory_mb + other.memory_mb),
        )

    def __sub__(self, other: "ContainerShare") -> "ContainerShare":
        """The difference."""
        return ContainerShare(
            without_float_error(self.vcpu - other.vcpu),
            without_float_error(self.memory_mb - other.memory_mb),
        )

    @property
    def is_legal_on_fargate(self) -> bool:
        return Size(self.vcpu, self.memory_mb) in LEGAL_SIZES

    @property
    def text(self) -> str:
        return f"{self.vcpu:g} vCPU, {self.memory_mb:.0f} MiB"


def read_job_definition(document: Mapping[str, object], source_name: str) -> JobDefinition:
    """The definition in a document that is one, or an answer with one of them.

    Raises TaskProfilerError.
    """
    definition = document
    if JOB_ANSWER in document:
        listed = list(mappings_in_list(document[JOB_ANSWER]))
        if len(listed) != 1:
            name = ("--job-definitions", "NAME:REVISION")
            raise TaskProfilerError(
                f"{source_name} has {len(listed)} job definitions: give an answer with one, as "
                f"'{aws_command_line('batch', 'describe-job-definitions', *name)}' prints it."
            )
        definition = listed[0]
    arn = text_or_none(definition.get(_ARN))
    if arn:
        definition = {name: value for name, value in definition.items() if name not in _READ_ONLY}
        tags = mapping_or_empty(definition.get("tags"))
        own_tags = {name: tags[name] for name in tags if not name.lower().startswith("aws:")}
        if own_tags != tags:
            definition = {**definition, "tags": own_tags}
    return JobDefinition(definition=definition, arn=arn)


def container_form(definition: Mapping[str, object]) -> str | None:
    """The member with the containers; None without one. A multi-node definition may have others
    inside.
    """
    if definition.get("type") == "multinode":
        return NODES
    for form in reversed(JOB_FORMS):
        if definition.get(form):
            return form
    return None


def task_properties(definition: Mapping[str, object]) -> Mapping[str, object]:
    """The only element of the ``taskProperties`` of ``ecsProperties``.

    Raises TaskProfilerError.
    """
    listed = list(mappings_in_list(mapping_or_empty(definition.get(ECS)).get("taskProperties")))
    containers = listed[0].get("containers") if len(listed) == 1 else None
    if (
        not isinstance(containers, list)
        or not containers
        or not all(isinstance(container, dict) for container in containers)
    ):
        raise TaskProfilerError(
            f"The {ECS} of the job definition have no list taskProperties with one element that "
            "has containers, which AWS Batch requires: correct them."
        )
    return listed[0]


def container_objects(definition: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    """The containers of a definition that AWS Batch starts by ECS; empty for others."""
    form = container_form(definition)
    if form == ECS:
        return list(mappings_in_list(task_properties(definition).get("containers")))
    if form == ONE_CONTAINER:
        return [{**mapping_or_empty(definition[ONE_CONTAINER]), "name": DEFAULT_CONTAINER}]
    return []


def is_on_fargate(definition: Mapping[str, object]) -> bool:
    """Whether its jobs run on Fargate alone."""
    return definition.get("platformCapabilities") == ["FARGATE"]


def share_of(container: Mapping[str, object]) -> ContainerShare | None:
    """What the container asks for; None unless both its VCPU and its MEMORY are numbers."""
    amounts = all_known(asked_amount(container, "VCPU"), asked_amount(container, "MEMORY"))
    return None if amounts is None else ContainerShare(*amounts)


def with_share(container: Mapping[str, object], share: ContainerShare) -> Mapping[str, object]:
    """The container with other values of its VCPU and its MEMORY, which it has."""
    return with_amounts(container, share.vcpu, share.memory_mb)


def total_share(containers: Sequence[Mapping[str, object]]) -> ContainerShare | None:
    """What the containers ask for together; None if one of them does not say it."""
    total = ContainerShare()
    for container in containers:
        share = share_of(container)
        if share is None:
            return None
        total += share
    return total
