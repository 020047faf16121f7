"""Task definitions in JSON, as RegisterTaskDefinition takes them or ECS returns them."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.optional_math import known_values
from profiler.core.timestamps import json_moment_ns
from profiler.record.family_owner import FamilyOwner, owner_of_definition
from profiler.task_definitions.containers import DefinedContainer
from profiler.task_definitions.json_yaml_tree import read_json

# Fields that DescribeTaskDefinition returns and RegisterTaskDefinition does not accept.
READ_ONLY = frozenset(
    {
        "compatibilities",
        "deleteRequestedAt",
        "deregisteredAt",
        "registeredAt",
        "registeredBy",
        "requiresAttributes",
        "revision",
        "status",
        "taskDefinitionArn",
    }
)
_STACK_TAG = "aws:cloudformation:stack-name"
# The members of a job definition of AWS Batch that have its containers.
JOB_FORMS = ("ecsProperties", "containerProperties", "eksProperties", "nodeProperties")
# The member of DescribeJobDefinitions' answer.
JOB_ANSWER = "jobDefinitions"


class TaskDefinitionDocument(Struct, frozen=True, kw_only=True):
    """A definition that RegisterTaskDefinition accepts.

    ``is_from_ecs``: it was read from a response of ECS, which can have the revision's ARN and time,
    the ``stack`` of CloudFormation that owns it, and another service that does (``owner``).
    ``is_active``: it was not deregistered. ``compatibilities``: the launch types on which ECS runs
    it, by ECS's answer; empty: unknown.
    """

    definition: Mapping[str, object]
    is_from_ecs: bool = False
    is_active: bool = True
    arn: str | None = None
    registered_ns: int | None = None
    stack: str | None = None
    owner: FamilyOwner | None = None
    compatibilities: frozenset[str] = frozenset()

    @property
    def tags(self) -> Mapping[str, str]:
        return tags_of(self.definition.get("tags"))


class ChangedDefinition(Struct, frozen=True, kw_only=True):
    """A definition after a change, and notes for the user, of which ``changes`` name changes of
    an existing monitor.

    ``batch`` is the container's name, empty if unknown. ``containers`` are those after a change of
    the monitor, and ``monitor`` is the one among them.
    """

    definition: Mapping[str, object]
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    batch: str = ""
    containers: tuple[DefinedContainer, ...] = ()
    old_monitor: DefinedContainer | None = None
    monitor: DefinedContainer | None = None


def read_document(data: bytes, source_name: str) -> TaskDefinitionDocument:
    """Read a definition as JSON, or a response of DescribeTaskDefinition.

    Raises TaskProfilerError.
    """
    outer = mapping_or_empty(read_json(data, source_name))
    described = outer.get("taskDefinition")
    definition: dict[str, object] = described if isinstance(described, dict) else dict(outer)
    check_definition(definition, source_name)
    arn = text_or_none(definition.get("taskDefinitionArn"))
    registered_ns = json_moment_ns(definition.get("registeredAt"))
    registered_by = text_or_none(definition.get("registeredBy"))
    is_active = definition.get("status") in (None, "ACTIVE")
    listed = definition.get("compatibilities")
    compatibilities = listed if isinstance(listed, list) else ()
    is_answer = isinstance(described, dict) or arn is not None
    if is_answer:  # the API rejects an empty list of tags and AWS's own tags
        definition = {name: value for name, value in definition.items() if name not in READ_ONLY}
        tags = []
        for tag in mappings_in_list(outer.get("tags")):
            if not str(tag.get("key")).lower().startswith("aws:"):
                tags.append(dict(tag))
        if tags:
            definition["tags"] = tags
    all_tags = tags_of(outer.get("tags"))
    return TaskDefinitionDocument(
        definition=definition,
        is_from_ecs=is_answer,
        is_active=is_active,
        arn=arn,
        registered_ns=registered_ns,
        stack=all_tags.get(_STACK_TAG),
        owner=owner_of_definition(registered_by, all_tags),
        compatibilities=frozenset(known_values(map(text_or_none, compatibilities))),
    )


def read_described(describe: Callable[[str], bytes], name: str) -> TaskDefinitionDocument:
    """Ask for a definition by its name, such as ``nightly:7`` or an ARN, and read the answer.

    Raises TaskProfilerError.
    """
    return read_document(describe(name), name)


def tags_of(tags: object) -> Mapping[str, str]:
    """The tags of a list by their keys."""
    return {str(tag.get("key")): str(tag.get("value")) for tag in mappings_in_list(tags)}


def is_job_definition(document: Mapping[str, object]) -> bool:
    """Whether it is a job definition of AWS Batch, or an answer with several."""
    return any(name in document for name in (*JOB_FORMS, "jobDefinitionName", JOB_ANSWER))


def check_definition(definition: Mapping[str, object], source_name: str) -> None:
    """Raise TaskProfilerError for an object without containers."""
    if is_job_definition(definition):
        raise TaskProfilerError(
            f"{source_name} is a job definition of AWS Batch, and no task definition of ECS: "
            "taskdef add-monitor and remove-monitor change it, doctor checks it, and taskdef "
            "resize --job-definition NAME registers its size."
        )
    containers = definition.get("containerDefinitions")
    if (
        not isinstance(containers, list)
        or not containers
        or not all(isinstance(item, dict) for item in containers)
    ):
        raise TaskProfilerError(
            f"{source_name} is not a task definition, because it has no containerDefinitions: "
            "give the JSON that 'aws ecs register-task-definition' takes or 'aws ecs "
            "describe-task-definition' prints."
        )
