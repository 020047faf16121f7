"""Plans the size of families' task definitions by their runs."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.rollout import PlannedFamily
from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping
from profiler.core.text import as_sentence
from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import TaskSize
from profiler.record.units import format_task_size
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_policy import Resize, ResizePolicy, SizeBefore, SizedRevision, decide, size_before
from profiler.sizing.run_facts import RunFacts, size_of
from profiler.task_definitions.containers import read_containers, task_memory_mb
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument, read_document
from profiler.task_definitions.size_changes import (
    RESIZED_FROM,
    REVERTED_FROM,
    TAG_PREFIX,
    task_cpu_units,
    with_size,
    with_size_of,
    with_size_tag,
)

_CPU_UNITS = 1024
# The number of earlier revisions among which the last change of the size is looked for.
_REVISIONS_BACK = 50


class SizePlans(Struct, frozen=True, kw_only=True):
    """Plans the size of each family, of a revision or of a definition in a file. ``describe`` reads an older revision.

    A file has none of them.
    """

    runs: Mapping[FamilyKey, Sequence[RunFacts]]
    policy: ResizePolicy
    price_overrides: PriceOverrides
    describe: Callable[[str], bytes] = str.encode

    def plan(self, family: str, document: TaskDefinitionDocument, _started_by: Sequence[str] = ()) -> PlannedFamily:
        """Plan the size of a family. The first note is the reason. Raises TaskProfilerError."""
        runs, size = self._runs(family, document.arn), definition_size(document.definition)
        decision = self._decision(family, document, runs, size)
        left_alone = _left_alone(document, decision) or _limit_of_a_kill(document, decision, runs)
        if left_alone is not None:
            decision = replace(decision, action="none", reason=left_alone)
        changed = ChangedDefinition(definition=document.definition)
        if decision.action in ("resize", "revert"):
            try:
                changed = self._changed(family, document, decision, runs)
            except TaskProfilerError as error:
                decision = replace(decision, action="none", reason=str(error))
        return PlannedFamily(
            family=family,
            action=decision.action,
            notes=(as_sentence(decision.reason), *changed.notes),
            document=document,
            definition=changed.definition,
            resize=decision,
        )

    def _runs(self, family: str, arn: str | None) -> Sequence[RunFacts]:
        account, region = arn_account(arn), arn_region(arn)
        found = {
            key: runs
            for key, runs in self.runs.items()
            if key.name == family
            and (arn is None or (key.account_id in (None, account) and key.region in (None, region)))
        }
        if arn is None and len(found) > 1:
            raise TaskProfilerError(f"The runs of {family} are of several accounts or Regions: use a source with one.")
        return sorted((run for runs in found.values() for run in runs), key=lambda run: (run.began_ns, run.key))

    def _decision(
        self, family: str, document: TaskDefinitionDocument, runs: Sequence[RunFacts], size: TaskSize
    ) -> Resize:
        if document.arn is None:
            return decide(runs, SizedRevision(revision=None, size=size), self.policy, self.price_overrides)
        number, tags = document.arn.rpartition(":")[2], document.tags
        revision = SizedRevision(
            revision=number,
            size=size,
            resized_from=size_before(tags.get(RESIZED_FROM)),
            reverted_from=size_before(tags.get(REVERTED_FROM)),
        )
        decision = decide(runs, revision, self.policy, self.price_overrides)
        is_ours = revision.resized_from is not None or revision.reverted_from is not None
        if decision.action != "resize" or is_ours:
            return decision
        overwritten = self._overwritten(family, number, runs, size)
        return decide(runs, replace(revision, overwritten=overwritten), self.policy, self.price_overrides)

    def _overwritten(self, family: str, number: str, runs: Sequence[RunFacts], size: TaskSize) -> TaskSize | None:
        """The size that a plan has registered, if later revisions have the size before it.

        A pipeline may have registered several of them. The runs show the sizes of most revisions without a call.
        """
        seen = {run.record.revision: size_of(run.record) for run in runs}
        newest = int(number) if number.isdecimal() else 1
        for earlier in map(str, range(newest - 1, max(newest - 1 - _REVISIONS_BACK, 0), -1)):
            if seen.get(earlier) == size:
                continue
            before = self._earlier(family, earlier)
            if before is None:
                return None
            found, resized = definition_size(before.definition), size_before(before.tags.get(RESIZED_FROM))
            if found != size:
                return found if resized is not None and resized.size == size else None
        return None

    def _earlier(self, family: str, revision: str) -> TaskDefinitionDocument | None:
        """An earlier revision; None if it cannot be read, such as after its deletion."""
        try:
            return read_document(self.describe(f"{family}:{revision}"), family)
        except TaskProfilerError:
            return None

    def _changed(
        self, family: str, document: TaskDefinitionDocument, decision: Resize, runs: Sequence[RunFacts]
    ) -> ChangedDefinition:
        """The definition with the size and its tag.

        An old size comes back with the limits of its containers, unless its revision cannot be read.
        """
        number, present = (document.arn or "").rpartition(":")[2], document.definition
        tag = SizeBefore(revision=number, size=definition_size(present)).tag
        resized_from = size_before(document.tags.get(RESIZED_FROM))
        is_revert = decision.action == "revert"
        old = None if resized_from is None or not is_revert else self._earlier(family, resized_from.revision)
        if old is not None:
            changed = with_size_of(present, old.definition)
            return replace(changed, definition=with_size_tag(changed.definition, REVERTED_FROM, tag))
        needs_mb = _needs_mb(runs, self.policy.size.memory_margin_percent)
        changed = with_size(present, decision.size or TaskSize(), needs_mb)
        if document.arn is None:
            return changed
        key = REVERTED_FROM if is_revert else RESIZED_FROM
        return replace(changed, definition=with_size_tag(changed.definition, key, tag))


def definition_size(definition: Mapping[str, object]) -> TaskSize:
    """The size of a definition, of which each part may be unknown."""
    units = task_cpu_units(definition)
    return TaskSize(vcpu=None if units is None else units / _CPU_UNITS, memory_mb=task_memory_mb(definition))


def _left_alone(document: TaskDefinitionDocument, decision: Resize) -> str | None:
    """Why a definition is not changed, whatever its runs say."""
    system = str(mapping(document.definition.get("runtimePlatform")).get("operatingSystemFamily"))
    if system.upper().startswith("WINDOWS"):
        return f"it is for {system}, which is not measured"
    if document.tags.get(f"{TAG_PREFIX}resize") == "off":
        return f"its tag {TAG_PREFIX}resize is off"
    if document.stack is not None:
        size = decision.size
        values = "" if size is None else f": set {format_task_size(size.vcpu, size.memory_mb)} in its template"
        return f"the stack {document.stack} of CloudFormation owns it{values}"
    return None


def _limit_of_a_kill(document: TaskDefinitionDocument, decision: Resize, runs: Sequence[RunFacts]) -> str | None:
    """Why another size of the task would not help: a run was killed at the present limit of its container."""
    size_mb = task_memory_mb(document.definition) or 0
    for container in read_containers(document.definition) if decision.action == "resize" else ():
        limit_mb = container.memory_mb or size_mb
        killed = (run.record for run in runs if run.record.likely_out_of_memory)
        limits = (one.metrics.memory_size_mb for one in killed if one.container.name == container.name)
        if limit_mb < size_mb and limit_mb in limits:
            return (
                f"a run was killed at the limit of {limit_mb} MiB of the container {container.name!r}, not of the "
                "task: raise this limit first"
            )
    return None


def _needs_mb(runs: Sequence[RunFacts], margin_percent: float) -> Mapping[str, float]:
    """The largest memory of each measured container, with the margin."""
    needs_mb: dict[str, float] = {}
    for record in (run.record for run in runs):
        metrics = {record.container.name: record.metrics, **{one.name: one.metrics for one in record.containers}}
        for name, measured in metrics.items():
            used_mb = None if measured is None else measured.max_memory_used_mb
            if used_mb is not None:
                needs_mb[name] = max(needs_mb.get(name, 0), used_mb * (1 + margin_percent / 100))
    return needs_mb
