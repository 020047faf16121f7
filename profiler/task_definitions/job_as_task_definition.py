"""Job definitions of AWS Batch in the form of task definitions: one plan, one comparison and one
file of sizes serve both.

The form has the sizes, the containers and the tags where a task definition has them, and beside
them the job definition itself, without its sizes. So two revisions that differ by the size alone
are equal without it, whatever form their sizes have.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from profiler.core.ecs_terms import AWSLOGS, BATCH_LOG_GROUP, CPU_UNITS, EC2, FARGATE
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import (
    count_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.optional_math import (
    all_known,
    first_known,
    known,
    known_members,
    product,
    sum_if_all_known,
    without_float_error,
)
from profiler.core.text import on_one_line
from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.record_model import TaskSize
from profiler.record.units import format_task_size, rounded_number
from profiler.sizing.job_grouping import engine_of_definition
from profiler.task_definitions.containers import read_containers, roles_of
from profiler.task_definitions.definition_json import ChangedDefinition
from profiler.task_definitions.size_changes import (
    TASK_SIZES,
    SeenMemory,
    definition_size,
    task_cpu_units,
)

# The member that has the job definition.
JOB: Final = "jobDefinition"
# Of the container of ``containerProperties``, in ECS.
_CONTAINER: Final = "default"
# The smallest share of a container beside others that was seen to be accepted on Fargate.
LEAST_VCPU: Final = 0.25
LEAST_MB: Final = 4
_STREAM_PREFIX_CHARS: Final = 200
# The rest of 50 is for the tags that jobs are submitted with.
_MAX_PROPAGATED_TAGS: Final = 40
# What DescribeJobDefinitions returns and RegisterJobDefinition does not accept, or has elsewhere.
_ANSWERED: Final = frozenset(
    {"jobDefinitionArn", "revision", "status", "containerOrchestrationType", "tags"}
)
Kind = Literal["VCPU", "MEMORY"]
# The deprecated members, which only jobs on EC2 have.
_OLD_MEMBERS: Final[Mapping[Kind, str]] = {"VCPU": "vcpus", "MEMORY": "memory"}
_AMOUNT: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", re.ASCII)
# What Batch says of an attempt that was killed for memory.
_KILLED: Final[Mapping[str, str]] = {
    "onReason": "OutOfMemoryError: Container killed due to memory usage",
    "onStatusReason": "Essential container in task exited",
    "onExitCode": "137",
}


def is_job_definition(definition: Mapping[str, object]) -> bool:
    """Whether this is the form of a job definition."""
    return JOB in definition


def is_on_fargate(definition: Mapping[str, object]) -> bool:
    """Whether jobs of this definition run on Fargate; without a word, they run on EC2."""
    return definition.get("requiresCompatibilities") == [FARGATE]


def launch_type_of_jobs(definition: Mapping[str, object]) -> str:
    """The launch type of the jobs of this definition."""
    return FARGATE if is_on_fargate(definition) else EC2


def described_form(job: Mapping[str, object]) -> dict[str, object]:
    """A job definition of DescribeJobDefinitions, as DescribeTaskDefinition would return it."""
    name = text_or_none(job.get("jobDefinitionName")) or ""
    defined = job_containers(job)
    task = next(_tasks_of(job), mapping_or_empty(job.get("containerProperties")))
    platforms = _as_list(job.get("platformCapabilities"))
    form: dict[str, object] = {
        "family": name,
        "containerDefinitions": list(_container_forms(defined, name)),
        "requiresCompatibilities": platforms or [EC2],
        "runtimePlatform": mapping_or_empty(task.get("runtimePlatform")),
        JOB: _with_each_container(_without_answers(job), _without_sizes),
        "taskDefinitionArn": job.get("jobDefinitionArn"),
        "status": job.get("status"),
    }
    cpu_units = product(_total_if_all_known(defined, "VCPU"), CPU_UNITS)
    sizes = {"cpu": cpu_units, "memory": _total_if_all_known(defined, "MEMORY")}
    form |= {name: f"{amount:.0f}" for name, amount in known_members(sizes).items()}
    tags = [
        {"key": key, "value": value} for key, value in mapping_or_empty(job.get("tags")).items()
    ]
    return {"taskDefinition": form, "tags": tags}


def registered_form(definition: Mapping[str, object]) -> dict[str, Any]:
    """The job definition that RegisterJobDefinition takes, with the sizes and the tags of its
    form.
    """
    forms = list(mappings_in_list(definition.get("containerDefinitions")))
    sizes = [definition_size(form) for form in forms]
    if len(forms) == 1:
        sizes = [definition_size(definition)]
    given = iter(sizes)

    def with_sizes(container: Mapping[str, object]) -> dict[str, object]:
        size = next(given)
        return with_amounts(container, size.vcpu, size.memory_mb)

    job = _with_each_container(mapping_or_empty(definition.get(JOB)), with_sizes)
    tags = {
        str(tag.get("key")): str(tag.get("value"))
        for tag in mappings_in_list(definition.get("tags"))
    }
    return {**job, "tags": tags} if tags else job


def why_not_sized(definition: Mapping[str, object]) -> str | None:
    """Why nobody sizes jobs of this definition here, in words; None: its size is its jobs'."""
    job = mapping_or_empty(definition.get(JOB))
    name = on_one_line(text_or_none(job.get("jobDefinitionName")) or "")
    engine = engine_of_definition(name)
    if "eksProperties" in job:
        return "its jobs are pods on EKS, which are not measured"
    if "nodeProperties" in job or job.get("type") == "multinode":
        return "it is a job of several nodes, which have sizes of their own"
    if engine:
        return (
            f"{engine.capitalize()} registers it, and sets the sizes of its jobs itself: "
            f"task-profiler recommend --format {engine} prints lines for its configuration"
        )
    platforms = _as_list(definition.get("requiresCompatibilities"))
    if platforms not in ([FARGATE], [EC2]):
        return f"nobody has tried its platform ({', '.join(map(str, platforms))})"
    return _why_unsized(definition)


def _why_unsized(definition: Mapping[str, object]) -> str | None:
    """Why the size of a definition's batch is not known, in words."""
    if None in (definition_size(definition).vcpu, definition_size(definition).memory_mb):
        return "its size is not known"
    containers = read_containers(definition)
    candidates = roles_of(containers).candidates
    if len(containers) > 1 and len(candidates) != 1:
        names = ", ".join(candidates) or "none"
        return f"which of its containers is the batch is not known ({names})"
    return None


def repeated_kill_sentence(definition: Mapping[str, object]) -> str | None:
    """A sentence if Batch repeats a job that was killed for memory, at the same size."""
    retry = mapping_or_empty(mapping_or_empty(definition.get(JOB)).get("retryStrategy"))
    attempts = retry.get("attempts")
    if not isinstance(attempts, int) or attempts <= 1:
        return None
    for rule in mappings_in_list(retry.get("evaluateOnExit")):
        if all(_matches(rule.get(name), value) for name, value in _KILLED.items()):
            if str(rule.get("action")).upper() == "EXIT":
                return None
            break
    return (
        f"Batch repeats a kill for memory at the same size, in up to {attempts} attempts: put "
        '{"onReason": "OutOfMemoryError*", "action": "EXIT"} first into evaluateOnExit of its '
        "retryStrategy."
    )


def job_timeout_ms(definition: Mapping[str, object]) -> float | None:
    """The time after which Batch stops an attempt of the definition's jobs; None without one."""
    return attempt_timeout_ms(mapping_or_empty(definition.get(JOB)))


def attempt_timeout_ms(job: Mapping[str, object]) -> float | None:
    """The time after which Batch stops an attempt, by a job's definition or its submission; None
    if that sets none.
    """
    seconds = count_or_none(mapping_or_empty(job.get("timeout")).get("attemptDurationSeconds"))
    return product(seconds, MS_PER_SECOND)


def propagates_tags(definition: Mapping[str, object]) -> bool:
    """Whether Batch gives the definition's tags to its jobs' tasks, if their submission says
    nothing else.
    """
    return mapping_or_empty(definition.get(JOB)).get("propagateTags") is True


def check_propagated_tags(definition: Mapping[str, object]) -> None:
    """Raise TaskProfilerError if one more tag could let jobs fail: with ``propagateTags``, Batch
    adds the definition's tags to a job's own, and ends a job that has more than 50.
    """
    tags = list(mappings_in_list(definition.get("tags")))
    if propagates_tags(definition) and len(tags) >= _MAX_PROPAGATED_TAGS:
        raise TaskProfilerError(
            f"its {len(tags)} tags go to its jobs (propagateTags), and Batch ends a job with more "
            "than 50, so no tag is added: remove tags"
        )


def job_with_size(
    definition: Mapping[str, object], size: TaskSize, seen: SeenMemory
) -> ChangedDefinition:
    """Give the batch's container what all of its containers are to have together, less what the
    others have. Raises TaskProfilerError if that is not enough for it.
    """
    present = definition_size(definition)
    amounts = all_known(
        first_known(size.vcpu, present.vcpu), first_known(size.memory_mb, present.memory_mb)
    )
    if amounts is None:
        raise TaskProfilerError("Its size is not known: set it by hand.")
    vcpu, memory_mb = amounts
    wanted: dict[str, object] = {
        "cpu": f"{vcpu * CPU_UNITS:.0f}",
        "memory": f"{math.floor(memory_mb)}",
    }
    forms = list(mappings_in_list(definition.get("containerDefinitions")))
    if len(forms) == 1:
        return ChangedDefinition(definition={**definition, **wanted})
    if job_task_mb(definition, seen) > memory_mb or vcpu < least_job_vcpu(definition):
        shown = format_task_size(rounded_number(vcpu), rounded_number(memory_mb))
        raise TaskProfilerError(
            f"With {shown}, too little would be left for the batch beside the other containers: "
            "give them less."
        )
    batch = roles_of(read_containers(definition)).batch
    other_units = sum(task_cpu_units(form) or 0 for form in forms if form.get("name") != batch)
    other_mb = sum(_memory_mb_of(form) for form in forms if form.get("name") != batch)
    own = TaskSize(
        vcpu=without_float_error(vcpu - other_units / CPU_UNITS),
        memory_mb=math.floor(memory_mb) - other_mb,
    )
    containers = []
    notes = []
    for form in forms:
        if form.get("name") == batch:
            was = definition_size(form)
            notes.append(
                f"The container {batch!r} changes from {was.text} to {own.text}; the others stay."
            )
            cpu_units = rounded_number((own.vcpu or 0) * CPU_UNITS)
            containers.append({**form, "cpu": cpu_units, "memory": int(own.memory_mb or 0)})
        else:
            containers.append(dict(form))
    changed = {**definition, **wanted, "containerDefinitions": containers}
    return ChangedDefinition(definition=changed, notes=tuple(notes), changes=tuple(notes))


def job_with_size_of(
    definition: Mapping[str, object], old: Mapping[str, object]
) -> ChangedDefinition | None:
    """Give the definition the size of an old revision, and its containers theirs of then; None if
    it has others now.
    """
    forms = list(mappings_in_list(definition.get("containerDefinitions")))
    old_forms = {
        form.get("name"): form for form in mappings_in_list(old.get("containerDefinitions"))
    }
    if [form.get("name") for form in forms] != list(old_forms):
        return None
    containers = []
    for form in forms:
        sizes = {name: old_forms[form.get("name")].get(name) for name in TASK_SIZES if name in form}
        containers.append({**form, **sizes})
    size = {name: old.get(name) for name in TASK_SIZES}
    return ChangedDefinition(definition={**definition, **size, "containerDefinitions": containers})


def job_task_mb(definition: Mapping[str, object], seen: SeenMemory) -> int:
    """The least memory of all containers together: what the batch needs of its own limit, beside
    what the others have. A container alone has the size itself.
    """
    containers = seen.containers_with_raised_limits(definition)
    if len(containers) <= 1:
        return 0
    batch = roles_of(containers).batch
    total_mb = 0
    for container in containers:
        memory_mb = container.memory_mb or 0
        if container.name == batch:
            memory_mb = max(seen.least_mb(container, memory_mb), LEAST_MB)
        total_mb += memory_mb
    return total_mb


def least_job_vcpu(definition: Mapping[str, object]) -> float:
    """The least vCPUs of all containers together; 0 for a container alone."""
    forms = list(mappings_in_list(definition.get("containerDefinitions")))
    if len(forms) <= 1:
        return 0
    batch = roles_of(read_containers(definition)).batch
    others = sum(task_cpu_units(form) or 0 for form in forms if form.get("name") != batch)
    return others / CPU_UNITS + (LEAST_VCPU if is_on_fargate(definition) else 1)


def _container_forms(
    containers: Sequence[Mapping[str, object]], definition_name: str
) -> Iterator[dict[str, object]]:
    """The containers with what roles, limits and log streams are read from; a definition without
    any has one that nothing is known of.
    """
    if not containers:
        yield {"name": _CONTAINER}
    own_log = {
        "awslogs-group": BATCH_LOG_GROUP,
        "awslogs-stream-prefix": definition_name[:_STREAM_PREFIX_CHARS],
    }
    for container in containers:
        logs = mapping_or_empty(container.get("logConfiguration"))
        if logs.get("logDriver", AWSLOGS) == AWSLOGS:
            logs = {
                "logDriver": AWSLOGS,
                "options": own_log | {**mapping_or_empty(logs.get("options"))},
            }
        form: dict[str, object] = {
            **{name: container[name] for name in _ROLE_FIELDS if name in container},
            "name": text_or_none(container.get("name")) or _CONTAINER,
            "logConfiguration": logs,
        }
        if len(containers) > 1:
            # Not always a whole number: a container of a job can ask for 0.3 vCPUs.
            form["cpu"] = rounded_number(product(asked_amount(container, "VCPU"), CPU_UNITS))
            form["memory"] = known(round, asked_amount(container, "MEMORY"))
        yield form


_ROLE_FIELDS: Final = ("image", "essential", "command", "environment", "dependsOn")


def _tasks_of(job: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    return mappings_in_list(mapping_or_empty(job.get("ecsProperties")).get("taskProperties"))


def job_containers(job: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The containers of a job of one node."""
    if isinstance(job.get("containerProperties"), Mapping):
        return [mapping_or_empty(job["containerProperties"])]
    containers: list[Mapping[str, object]] = []
    for task in _tasks_of(job):
        containers += mappings_in_list(task.get("containers"))
    return containers


def _with_each_container(
    job: Mapping[str, object],
    change: Callable[[Mapping[str, object]], dict[str, object]],
) -> dict[str, object]:
    """The job definition with each of its containers changed."""
    changed = dict(job)
    if isinstance(job.get("containerProperties"), Mapping):
        changed["containerProperties"] = change(mapping_or_empty(job["containerProperties"]))
    if isinstance(job.get("ecsProperties"), Mapping):
        tasks = []
        for task in _tasks_of(job):
            containers = [
                change(container) for container in mappings_in_list(task.get("containers"))
            ]
            tasks.append({**task, "containers": containers})
        changed["ecsProperties"] = {
            **mapping_or_empty(job["ecsProperties"]),
            "taskProperties": tasks,
        }
    return changed


def _without_answers(job: Mapping[str, object]) -> dict[str, object]:
    known_fields = known_members(job)
    return {name: value for name, value in known_fields.items() if name not in _ANSWERED}


def _without_sizes(container: Mapping[str, object]) -> dict[str, object]:
    """The container with the form of its sizes, and nothing in it. What cannot be read stays."""
    emptied = known_members(container)
    asked = known_members({kind: asked_amount(container, kind) for kind in _OLD_MEMBERS})
    for kind in _OLD_MEMBERS:
        if emptied.get(_OLD_MEMBERS[kind]) == 0:  # a member that is not set
            del emptied[_OLD_MEMBERS[kind]]
    return _with_values(emptied, dict.fromkeys(asked, ""))


def with_amounts(
    container: Mapping[str, object], vcpu: float | None, memory_mb: float | None
) -> dict[str, object]:
    """The container with sizes in the form that it has; None changes nothing."""
    values = {"VCPU": known(_vcpu_text, vcpu), "MEMORY": known("{:.0f}".format, memory_mb)}
    return _with_values(container, known_members(values))


def _vcpu_text(vcpu: float) -> str:
    return f"{vcpu:.6f}".rstrip("0").rstrip(".")


def _with_values(container: Mapping[str, object], values: Mapping[str, str]) -> dict[str, object]:
    """The container with these texts as its requirements, and numbers as its deprecated members."""
    changed = dict(container)
    for kind, member in _OLD_MEMBERS.items():
        if kind in values and member in changed:
            changed[member] = rounded_number(float(values[kind] or 0))
    if "resourceRequirements" in changed:
        changed["resourceRequirements"] = [
            {**one, "value": values[str(one["type"])]} if str(one.get("type")) in values else one
            for one in mappings_in_list(changed["resourceRequirements"])
        ]
    return changed


def asked_amount(container: Mapping[str, object], kind: Kind) -> float | None:
    """What a container asks for; None if it cannot be read."""
    written: object = container.get(_OLD_MEMBERS[kind])
    for requirement in mappings_in_list(container.get("resourceRequirements")):
        if requirement.get("type") == kind:
            written = requirement.get("value")
    found = _AMOUNT.fullmatch(str(written))
    return (float(found[0]) or None) if found else None


def _memory_mb_of(form: Mapping[str, object]) -> int:
    return int(definition_size(form).memory_mb or 0)


def _total_if_all_known(containers: Sequence[Mapping[str, object]], kind: Kind) -> float | None:
    """The sum of all containers; None if one of them does not say."""
    return sum_if_all_known([asked_amount(container, kind) for container in containers])


def _matches(pattern: object, value: str) -> bool:
    """Whether a condition of ``evaluateOnExit`` is met, or not set."""
    if pattern is None:
        return True
    written = str(pattern).casefold()
    value = value.casefold()
    if written.endswith("*"):
        return value.startswith(written[:-1])
    return value == written


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
