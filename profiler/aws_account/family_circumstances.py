"""What an account says about a family whose size may change: its schedules and rules, what they
override, what starts it, and who owns it.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.cloudformation_owners import CloudFormationOwners
from profiler.aws_account.registered_definitions import revision_of
from profiler.aws_account.scheduled_targets import ScheduledTarget, is_timed, schedule_of
from profiler.aws_account.size_before import EarlierRevisions
from profiler.aws_account.started_tasks import SCHEDULE
from profiler.aws_account.tagged_revisions import TaggedRevisions
from profiler.aws_account.target_overrides import SizeOverrides, size_overrides
from profiler.core.json_fields import mapping, text
from profiler.record.record_model import Record
from profiler.schedules.due_times import shortest_gap_ms
from profiler.sizing.family_window import FamilyWindow
from profiler.sizing.sized_revision import TAG_PREFIX, Circumstances, TargetOverride
from profiler.task_definitions.containers import read_containers, roles_of
from profiler.task_definitions.definition_json import TaskDefinitionDocument
from profiler.task_definitions.size_changes import (
    LEAST_CPU_UNITS,
    SeenMemory,
    definition_size,
)

OFF_TAG = f"{TAG_PREFIX}resize"
# YAML reads ``off`` without quotes as false, and CloudFormation makes a text of that.
_OFF_WORDS = frozenset({"off", "false", "no"})
_CPU_UNITS = 1024


def circumstances_of(document: TaskDefinitionDocument) -> Circumstances:
    """What a definition alone says."""
    platform = mapping(document.definition.get("runtimePlatform"))
    is_off = document.tags.get(OFF_TAG, "").strip().lower() in _OFF_WORDS
    return Circumstances(
        operating_system=text(platform.get("operatingSystemFamily")),
        off_tag=OFF_TAG if is_off else None,
        stack=document.stack,
    )


class OverridingTarget(Struct, frozen=True, kw_only=True):
    """A schedule or a rule that sets sizes in place of the definition's."""

    title: str
    overrides: SizeOverrides

    def as_known(self, document: TaskDefinitionDocument, seen: SeenMemory) -> TargetOverride:
        """What is known of it for a decision: nothing of an input that cannot be read."""
        size = definition_size(self.overrides.task)
        return TargetOverride(
            target=f"the {self.title}",
            vcpu=size.vcpu,
            memory_mb=size.memory_mb,
            least_vcpu=self._least_cpu_units(document) / _CPU_UNITS,
            least_memory_mb=self.overrides.least_memory_mb(document.definition, seen),
        )

    def _least_cpu_units(self, document: TaskDefinitionDocument) -> int:
        """What the containers need of the task's CPU units, if all others are lowered."""
        if "cpu" in self.overrides.task:
            return 0
        containers = read_containers(self.overrides.applied(document.definition))
        monitor = roles_of(containers).monitor
        units = 0
        for container in containers:
            is_fixed = container.name == monitor or container.name in self.overrides.containers
            units += container.cpu_units if is_fixed else min(container.cpu_units, LEAST_CPU_UNITS)
        return units


def override_of_runs(
    document: TaskDefinitionDocument, window: FamilyWindow, seen: SeenMemory
) -> TargetOverride | None:
    """What starts the runs of the newest revision, if it gives containers other limits than the
    definition: Step Functions and other programs may do so, and say it nowhere.
    """
    size = definition_size(document.definition)
    revision = (document.arn or "").rpartition(":")[2]
    defined_mb = {
        container.name: container.memory_mb for container in read_containers(document.definition)
    }
    limits_mb: dict[str, float] = {}
    at_size = window.sizes.get(size)
    for run in () if at_size is None else at_size.newest.items():
        if run.record.revision != revision:
            continue
        for name, limit_mb in _own_limits_mb(run.record, size.memory_mb or 0):
            if name in defined_mb and defined_mb[name] != limit_mb:
                limits_mb[name] = max(limits_mb.get(name, 0), limit_mb)
    if not limits_mb:
        return None
    overrides = SizeOverrides(
        containers={name: {"memory": round(limit_mb)} for name, limit_mb in limits_mb.items()}
    )
    least_mb = overrides.least_memory_mb(document.definition, seen)
    return TargetOverride(target="what starts its runs", least_memory_mb=least_mb)


def _own_limits_mb(record: Record, task_mb: float) -> Iterator[tuple[str, float]]:
    """The limits of a run's containers below the task's memory, which bounds the others: whole
    MiB, unlike a machine's memory.
    """
    limits_mb = [(record.container.name, record.metrics.memory_size_mb)]
    for container in record.containers:
        if container.metrics is not None:
            limits_mb.append((container.name, container.metrics.memory_size_mb))
    for name, limit_mb in limits_mb:
        if limit_mb is not None and limit_mb < task_mb and float(limit_mb).is_integer():
            yield name, limit_mb


class FamilyAccount(Struct, frozen=True, kw_only=True):
    """Reads the circumstances of families in an account.

    ``targets`` are all schedules and rules that start tasks. ``other_starters`` name what started
    the tasks of a family that ECS lists.
    """

    targets: Callable[[], Sequence[ScheduledTarget]]
    owners: CloudFormationOwners
    tagged: TaggedRevisions
    other_starters: Callable[[str], Sequence[str]] = lambda _family: ()
    now_ns: int

    def circumstances(
        self, family: str, document: TaskDefinitionDocument, seen: SeenMemory
    ) -> Circumstances:
        """What is known without a call for this family alone."""
        targets = self._targets(family)
        timed = [schedule_of(target) for target in targets if is_timed(target)]
        enabled = [schedule for schedule in timed if schedule.is_enabled]
        overrides = [
            target for target in self.overriding(family) if target.overrides.unknown is None
        ]
        return replace(
            circumstances_of(document),
            shortest_interval_ms=shortest_gap_ms(enabled, self.now_ns),
            overrides=tuple(target.as_known(document, seen) for target in overrides),
        )

    def starters_of_older(self, family: str, document: TaskDefinitionDocument) -> tuple[str, ...]:
        """What starts a revision before the newest one, as far as it is known: the schedules and
        rules that are pinned to one, and what else started tasks that ECS still lists.
        """
        newest_arn = document.arn or ""
        titles = []
        for target in self._targets(family):
            is_pinned = target.is_pin_of(newest_arn) and target.pinned_revision is not None
            if is_pinned and target.pinned_revision != revision_of(newest_arn):
                titles.append(f"the {target.title}")
        others = [name for name in self.other_starters(family) if name != SCHEDULE]
        return (*titles, *others)

    def overriding(self, family: str) -> tuple[OverridingTarget, ...]:
        """The schedules and rules of the family that override sizes, or may do so."""
        overriding = []
        for target in self._targets(family):
            overrides = size_overrides(target)
            if not overrides.is_empty:
                overriding.append(OverridingTarget(title=target.title, overrides=overrides))
        return tuple(overriding)

    def stack_of(self, revisions: EarlierRevisions) -> str | None:
        """The stack that owns the newest revision, or one from which it was made.

        Raises TaskProfilerError if CloudFormation may not be asked.
        """
        return self.owners.of_definition(revisions.owned_arns())

    def _targets(self, family: str) -> list[ScheduledTarget]:
        return [target for target in self.targets() if target.family == family]
