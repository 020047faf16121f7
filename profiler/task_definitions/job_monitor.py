"""Adds the monitor to a job definition of AWS Batch, or the wrapper to its command; removes them.

A second container is possible in ``ecsProperties`` alone. On Fargate the sum of all containers must
be a size that Fargate has, so the monitor's share is taken from the batch's.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from msgspec.structs import replace

from profiler.core.commands_to_copy import command_line, option_words
from profiler.core.ecs_terms import MANAGED_INSTANCES
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list
from profiler.sizing.job_grouping import engine_of_definition
from profiler.task_definitions.containers import (
    DefinedContainer,
    find_batch,
    find_monitor,
    is_monitor_for,
    read_container,
)
from profiler.task_definitions.definition_json import ChangedDefinition
from profiler.task_definitions.job_as_task_definition import LEAST_MB, LEAST_VCPU
from profiler.task_definitions.job_definitions import (
    ECS,
    EKS,
    NODES,
    ONE_CONTAINER,
    ContainerShare,
    JobDefinition,
    container_form,
    container_objects,
    is_on_fargate,
    share_of,
    task_properties,
    total_share,
    with_share,
)
from profiler.task_definitions.monitor_changes import (
    AddMonitorOptions,
    add_monitor,
    check_definition,
    remove_monitor,
)
from profiler.task_definitions.monitor_container import PID_MODE_ADDED, PID_MODE_LABEL

_WRAPPER = ("python3", "-I", "-m", "profiler", "run")
_END_OF_OPTIONS = "--"
# A container of Batch has no labels, so that a tag of the definition remembers an added pidMode.
_PID_MODE_TAG = "task-profiler:pid-mode"
_IMAGE_NOTE = (
    "The image {} must have Python 3.11 and this package; an ENTRYPOINT of it gets the whole "
    "command as its arguments: run it once before you register the definition."
)
_NO_MONITOR = "There is no monitor and no wrapper: nothing was removed."


def add_to_job(job: JobDefinition, options: AddMonitorOptions, *, wraps: bool) -> ChangedDefinition:
    """Add the monitor's container, or, if it ``wraps``, the wrapper before the batch's command.

    A definition that is as requested does not change. Raises TaskProfilerError where neither would
    work.
    """
    _check_platform(job)
    if wraps:
        return _with_wrapped_command(job, options)
    return _with_monitor(job, options)


def remove_from_job(job: JobDefinition, image: str | None) -> ChangedDefinition:
    """Remove the monitor's container, give its share back to the batch, and remove the wrapper.

    Raises TaskProfilerError.
    """
    definition = job.definition
    if container_form(definition) not in (ECS, ONE_CONTAINER):
        return ChangedDefinition(definition=definition, notes=(_NO_MONITOR,))
    containers = _read_job_containers(definition)
    notes: tuple[str, ...] = ()
    monitor = find_monitor(containers, image)
    if monitor is not None:
        definition, notes = _without_monitor(definition, monitor, image)
    raw = container_objects(definition)
    unwrapped = [_without_wrapper(container) for container in raw]
    if monitor is None and unwrapped == raw:
        notes = (_NO_MONITOR,)
    return ChangedDefinition(definition=_with_containers(definition, unwrapped), notes=notes)


def _check_platform(job: JobDefinition) -> None:
    """Raise TaskProfilerError for a definition to which nothing can be added."""
    definition = job.definition
    form = container_form(definition)
    if form == NODES:
        raise TaskProfilerError(
            "The job definition is for jobs of several nodes, of which only the main one would be "
            "followed: put task-profiler run before the command of each node's container."
        )
    if form == EKS:
        raise TaskProfilerError(
            "The job definition is for Amazon EKS, where each container counts for the job's end: "
            "put task-profiler run before the command of the batch's container."
        )
    if not form:
        raise TaskProfilerError(
            f"The job definition has neither {ONE_CONTAINER} nor {ECS}: give one with its "
            "containers."
        )
    engine = engine_of_definition(job.name or "")
    if engine:
        raise TaskProfilerError(
            f"{engine.capitalize()} registers this job definition ({job.name}) and sets the "
            "command of each job: put task-profiler run into the image or the pipeline, or monitor "
            f"the instances ({command_line('setup', 'batch-instances')})."
        )
    check_definition(_task_view(definition))


def _task_view(definition: Mapping[str, object]) -> Mapping[str, object]:
    """The definition as one of ECS: its task's properties, with ``containerDefinitions``."""
    view: dict[str, object] = {}
    if container_form(definition) == ECS:
        view.update(task_properties(definition))
        view.pop("containers")
    else:
        view["runtimePlatform"] = mapping_or_empty(definition[ONE_CONTAINER]).get("runtimePlatform")
    view["family"] = definition.get("jobDefinitionName")
    view["containerDefinitions"] = container_objects(definition)
    return view


def _view_of(definition: Mapping[str, object], image: str | None) -> Mapping[str, object]:
    """The view, with the monitor's label that remembers an added pidMode in place of the tag."""
    view = _task_view(definition)
    if mapping_or_empty(definition.get("tags")).get(_PID_MODE_TAG) != PID_MODE_ADDED:
        return view
    own = find_monitor(_read_job_containers(definition), image)
    labels = {PID_MODE_LABEL: PID_MODE_ADDED}
    containers = []
    for raw in mappings_in_list(view["containerDefinitions"]):
        is_own = own is not None and raw.get("name") == own.name
        containers.append({**raw, "dockerLabels": labels} if is_own else raw)
    return {**view, "containerDefinitions": containers}


def _with_task_view(
    definition: Mapping[str, object], view: Mapping[str, object]
) -> Mapping[str, object]:
    """The definition with ``ecsProperties`` whose task is as in the view."""
    containers = []
    is_mode_added = False
    for raw in mappings_in_list(view["containerDefinitions"]):
        is_mode_added |= PID_MODE_LABEL in mapping_or_empty(raw.get("dockerLabels"))
        containers.append({name: value for name, value in raw.items() if name != "dockerLabels"})
    own_names = ("family", "containerDefinitions")
    properties = {name: value for name, value in view.items() if name not in own_names}
    properties["containers"] = containers
    before = task_properties(definition)
    ordered = {name: properties[name] for name in before if name in properties} | properties
    changed = {
        **definition,
        ECS: {**mapping_or_empty(definition[ECS]), "taskProperties": [ordered]},
    }
    tags = {**mapping_or_empty(definition.get("tags"))}
    if is_mode_added == (_PID_MODE_TAG in tags):
        return changed
    if is_mode_added:
        return {**changed, "tags": {**tags, _PID_MODE_TAG: PID_MODE_ADDED}}
    del tags[_PID_MODE_TAG]
    del changed["tags"]
    return {**changed, "tags": tags} if tags else changed


def _read_job_containers(definition: Mapping[str, object]) -> tuple[DefinedContainer, ...]:
    return tuple(map(read_container, container_objects(definition)))


def _with_containers(
    definition: Mapping[str, object], raw: Sequence[Mapping[str, object]]
) -> Mapping[str, object]:
    """The definition with other values of its containers."""
    if container_form(definition) == ECS:
        (before,) = mappings_in_list(mapping_or_empty(definition[ECS]).get("taskProperties"))
        changed = {**before, "containers": raw}
        return {
            **definition,
            ECS: {**mapping_or_empty(definition[ECS]), "taskProperties": [changed]},
        }
    (only,) = raw
    own = {name: value for name, value in only.items() if name != "name"}
    return {**definition, ONE_CONTAINER: own}


# The monitor's container


def _with_monitor(job: JobDefinition, options: AddMonitorOptions) -> ChangedDefinition:
    definition = job.definition
    if container_form(definition) != ECS:
        raise TaskProfilerError(
            f"The job definition has {ONE_CONTAINER}, in which AWS Batch allows no second "
            "container: --wrap puts task-profiler run before its command, for which its image "
            "needs Python 3.11 and this package."
        )
    if definition.get("platformCapabilities") == [MANAGED_INSTANCES]:
        raise TaskProfilerError(
            "On Managed Instances, it is not known how little a second container may ask for: use "
            "--wrap."
        )
    if not is_on_fargate(definition):
        raise TaskProfilerError(
            "On EC2, AWS Batch asks for at least one vCPU for each container, too much for a "
            "monitor: use --wrap, or monitor the instances "
            f"({command_line('setup', 'batch-instances')})."
        )
    if options.stacks:
        raise TaskProfilerError(
            "--stacks needs the capability SYS_PTRACE, which AWS Batch gives to no container: "
            "leave it out."
        )
    containers = _read_job_containers(definition)
    batch = find_batch(_without_own(containers, options), options.container)
    if batch.wraps_batch:
        raise TaskProfilerError(
            f"The command of {batch.name!r} has task-profiler run already, which reports on it: "
            "remove it with remove-monitor to add the monitor."
        )
    view = _view_of(definition, options.image)
    added = add_monitor(view, replace(options, is_of_job=True), revision_arn=job.arn)
    changed = _with_task_view(definition, added.definition)
    if changed == definition:
        return replace(added, definition=definition)
    shared, notes = _with_legal_sum(definition, changed, added.batch)
    return replace(added, definition=shared, notes=(*notes, *added.notes))


def _without_own(
    containers: Sequence[DefinedContainer], options: AddMonitorOptions
) -> Sequence[DefinedContainer]:
    monitor = find_monitor(containers, options.image, options.container)
    return [container for container in containers if container is not monitor]


def _with_legal_sum(
    definition: Mapping[str, object], changed: Mapping[str, object], batch: str
) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The changed definition with the same sum as before, and notes about it: the batch has less.

    Raises TaskProfilerError if no legal sum is left.
    """
    before = total_share(container_objects(definition))
    after = total_share(container_objects(changed))
    if before is None or after is None:
        raise TaskProfilerError(
            "A container of the job definition lacks VCPU or MEMORY as a number in its "
            "resourceRequirements, which Fargate requires: add them."
        )
    if not before.is_legal_on_fargate:
        raise TaskProfilerError(
            f"The containers ask for {before.text} together, which is no size of Fargate: correct "
            "it first."
        )
    taken = after - before
    if taken == ContainerShare():
        return changed, ()
    containers = []
    note = ""
    for raw in container_objects(changed):
        if raw.get("name") == batch:
            containers.append(_with_lowered_share(raw, taken, before))
            old, new = share_of(raw), share_of(containers[-1])
            note = _share_note(
                batch, old or ContainerShare(), new or ContainerShare(), before, taken
            )
        else:
            containers.append(raw)
    return _with_containers(changed, containers), (note, _override_note(batch, taken))


def _with_lowered_share(
    raw: Mapping[str, object], taken: ContainerShare, total: ContainerShare
) -> Mapping[str, object]:
    """The batch's container with less. Raises TaskProfilerError if too little is left for it."""
    left = (share_of(raw) or ContainerShare()) - taken
    if left.vcpu < LEAST_VCPU or left.memory_mb < LEAST_MB:
        raise TaskProfilerError(
            f"Of {total.text}, no share is left for the monitor, which takes {taken.text} from the "
            "batch's container: give the job the next size of Fargate, or use --wrap."
        )
    return with_share(raw, left)


def _share_note(
    batch: str,
    old: ContainerShare,
    new: ContainerShare,
    total: ContainerShare,
    taken: ContainerShare,
) -> str:
    return (
        f"The container {batch!r} is lowered from {old.text} to {new.text}, because on Fargate the "
        f"sum of all containers is the job's size ({total.text}), and the monitor takes "
        f"{taken.text} of it."
    )


def _override_note(batch: str, taken: ContainerShare) -> str:
    return (
        f"Whoever submits jobs with ecsPropertiesOverride must name the container ({batch!r}) from "
        f"now on, and leave {taken.text} to the monitor where it sets VCPU or MEMORY."
    )


def _without_monitor(
    definition: Mapping[str, object],
    monitor: DefinedContainer,
    image: str | None,
) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """The definition without the monitor, and notes; on Fargate the batch gets its share."""
    if container_form(definition) != ECS:
        raise TaskProfilerError(
            "The only container of the job definition starts the monitor itself: there is no batch."
        )
    removed = remove_monitor(_view_of(definition, image), image)
    changed = _with_task_view(definition, removed.definition)
    given = ContainerShare()
    for raw in container_objects(definition):
        if raw.get("name") == monitor.name and is_on_fargate(definition):
            given = share_of(raw) or given
    raised = []
    notes = list(removed.notes)
    for raw in container_objects(changed):
        share = share_of(raw)
        is_batch = is_monitor_for(monitor, str(raw.get("name")))
        if share is None or not is_batch or given == ContainerShare():
            raised.append(raw)
            continue
        raised.append(with_share(raw, share + given))
        notes.append(
            f"The container {raw.get('name')!r} is raised from {share.text} to "
            f"{(share + given).text}: it gets the monitor's share."
        )
        given = ContainerShare()
    return _with_containers(changed, raised), tuple(notes)


# The wrapper


def _with_wrapped_command(job: JobDefinition, options: AddMonitorOptions) -> ChangedDefinition:
    definition = job.definition
    containers = _read_job_containers(definition)
    if find_monitor(containers, options.image) is not None:
        raise TaskProfilerError(
            "The job definition has a monitor already, which reports on the batch: remove it with "
            "remove-monitor to use --wrap."
        )
    batch = find_batch(containers, options.container)
    if batch.wraps_batch:
        return ChangedDefinition(definition=definition, batch=batch.name)
    name = option_words({"--name": job.name})
    changed: list[Mapping[str, object]] = []
    for raw in container_objects(definition):
        if raw.get("name") == batch.name:
            words = [*_WRAPPER, *name, "--no-history", _END_OF_OPTIONS, *_command_of(raw, batch)]
            changed.append({**raw, "command": words})
        else:
            changed.append(raw)
    return ChangedDefinition(
        definition=_with_containers(definition, changed),
        notes=(
            _IMAGE_NOTE.format(batch.image),
            "A submission with a command of its own replaces this one, and the wrapper with it.",
        ),
        batch=batch.name,
    )


def _command_of(raw: Mapping[str, object], batch: DefinedContainer) -> Sequence[str]:
    """The words of the container's command. Raises TaskProfilerError without any."""
    command = raw.get("command")
    words = command if isinstance(command, list) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise TaskProfilerError(
            f"The container {batch.name!r} has no command, and only its image knows what it "
            "starts: write the command into the job definition (docker image inspect "
            f"{batch.image})."
        )
    return words


def _without_wrapper(raw: Mapping[str, object]) -> Mapping[str, object]:
    """The container without a wrapper. Raises TaskProfilerError if its end is not known."""
    container = read_container(raw)
    if not container.wraps_batch:
        return raw
    words = container.command or ()
    if _END_OF_OPTIONS not in words or not _begins_with_wrapper(words):
        raise TaskProfilerError(
            f"The command of {container.name!r} has task-profiler run in a form of its own: remove "
            "it by hand."
        )
    end = words.index(_END_OF_OPTIONS)
    return {**raw, "command": list(words[end + 1 :])}


def _begins_with_wrapper(words: Sequence[str]) -> bool:
    """Whether the first words are the program, not a shell that starts it among others."""
    program = PurePosixPath(words[0]).name
    if program == "task-profiler":
        return words[1] == "run"
    if not program.startswith("python") or "-m" not in words:
        return words[0] == "run"  # the monitor's image has the program as its entry point
    module = words.index("-m")
    options_only = all(word.startswith("-") for word in words[1:module])
    return options_only and tuple(words[module + 1 : module + 3]) == ("profiler", "run")
