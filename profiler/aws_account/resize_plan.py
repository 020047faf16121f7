"""Plans the size of families' task definitions by their runs."""

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.family_circumstances import FamilyAccount
from profiler.aws_account.rollout import PlannedFamily
from profiler.aws_account.size_before import EarlierRevisions
from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping
from profiler.core.text import as_sentence
from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import TaskSize
from profiler.record.units import format_task_size
from profiler.sizing.plan_evidence import plan_evidence
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_policy import Resize, ResizePolicy, decide
from profiler.sizing.run_facts import RunFacts, size_of
from profiler.sizing.sized_revision import (
    Circumstances,
    SizeBefore,
    SizedRevision,
    size_before,
)
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument
from profiler.task_definitions.size_changes import (
    RESIZED_FROM,
    REVERTED_FROM,
    TAG_PREFIX,
    SeenMemory,
    definition_size,
    with_size,
    with_size_of,
    with_size_tag,
)


class SizePlans(Struct, frozen=True, kw_only=True):
    """Plans the size of each family, of a revision or of a file.

    ``describe`` reads an older revision. ``account`` is None for files.
    """

    runs: Mapping[FamilyKey, Sequence[RunFacts]]
    policy: ResizePolicy
    price_overrides: PriceOverrides
    describe: Callable[[str], bytes] = str.encode
    account: FamilyAccount | None = None

    def plan(
        self, family: str, document: TaskDefinitionDocument, _started_by: Sequence[str] = ()
    ) -> PlannedFamily:
        """Plan the size of a family. The first note is the reason. Raises TaskProfilerError."""
        runs = self._runs(family, document.arn)
        case = _Case(
            family=family,
            document=document,
            runs=runs,
            seen=_seen_memory(runs, self.policy.size.memory_margin_percent),
            revisions=EarlierRevisions(family, document, self.describe),
        )
        decision = self._decision(case)
        left_alone = _left_alone(document, decision)
        if left_alone is None and decision.action in ("resize", "revert"):
            try:
                left_alone = self._owned_by_stack(case, decision)
            except TaskProfilerError as error:  # nothing is registered without this right
                return _not_planned(case, decision, str(error))
        if left_alone is not None:
            decision = replace(decision, action="none", reason=left_alone)
        changed = ChangedDefinition(definition=document.definition)
        if decision.action in ("resize", "revert"):
            try:
                changed = _changed(case, decision)
                self._check_overrides(case, changed)
            except TaskProfilerError as error:
                changed = ChangedDefinition(definition=document.definition)
                decision = replace(decision, action="none", reason=str(error))
        if decision.action == "none":
            # What is not done saves nothing, and what it would mend is named.
            decision = replace(decision, saving_usd_per_month=None)
            changed = replace(changed, notes=tuple(map(as_sentence, case.killed_limits)))
        return PlannedFamily(
            family=family,
            action=decision.action if left_alone is None else "refused",  # its schedules stay, too
            notes=(as_sentence(decision.reason), *changed.notes),
            document=document,
            changed=changed,
            resize=decision,
            evidence=plan_evidence(
                runs, definition_size(document.definition), decision.size or TaskSize()
            ),
        )

    def _runs(self, family: str, arn: str | None) -> Sequence[RunFacts]:
        account, region = arn_account(arn), arn_region(arn)
        found = {
            key: runs
            for key, runs in self.runs.items()
            if key.name == family
            and (
                arn is None or (key.account_id in (None, account) and key.region in (None, region))
            )
        }
        if arn is None and len(found) > 1:
            raise TaskProfilerError(
                f"The runs of {family} are of several accounts or Regions: use a source with one."
            )
        return sorted(
            (run for runs in found.values() for run in runs),
            key=lambda run: (run.began_ns, run.key),
        )

    def _decision(self, case: "_Case") -> Resize:
        document = case.document
        least_mb = case.seen.task_mb(document.definition)
        if self.account is not None:
            for override in self._circumstances(case).overrides:
                least_mb = max(least_mb, math.ceil(override.least_memory_mb))
        policy = replace(self.policy, size=replace(self.policy.size, least_memory_mb=least_mb))
        revision = SizedRevision(
            revision=None,
            size=definition_size(document.definition),
            killed_limit=case.killed_limits[0] if case.killed_limits else None,
        )
        if document.arn is None:
            return decide(case.runs, revision, policy, self.price_overrides)
        tags = document.tags
        revision = replace(
            revision,
            revision=case.revisions.number,
            resized_from=size_before(tags.get(RESIZED_FROM)),
            reverted_from=size_before(tags.get(REVERTED_FROM)),
            registered_ns=document.registered_ns,
        )
        decision = decide(case.runs, revision, policy, self.price_overrides)
        is_ours = revision.resized_from is not None or revision.reverted_from is not None
        if decision.action != "resize" or is_ours:
            return decision
        sizes: dict[str, set[TaskSize]] = {}
        for run in case.runs:
            sizes.setdefault(run.record.revision or "", set()).add(size_of(run.record))
        revision = case.revisions.with_overwritten(revision, sizes)
        return decide(case.runs, revision, policy, self.price_overrides)

    def _circumstances(self, case: "_Case") -> Circumstances:
        if self.account is None:
            return Circumstances()
        return self.account.circumstances(case.family, case.document, case.seen)

    def _owned_by_stack(self, case: "_Case", decision: Resize) -> str | None:
        """Why a stack of CloudFormation forbids the change. A revert of ours is allowed."""
        if self.account is None or decision.action == "revert":
            return None
        stack = self.account.stack_of(case.revisions)
        return None if stack is None else _stack_sentence(stack, decision)

    def _check_overrides(self, case: "_Case", changed: ChangedDefinition) -> None:
        """Raise TaskProfilerError if a schedule overrides sizes that the new one does not hold."""
        if self.account is None:
            return
        for target in self.account.overriding(case.family):
            refusal = target.overrides.refusal(changed.definition)
            if refusal is not None:
                raise TaskProfilerError(f"the {target.title} starts it, and {refusal}")


class _Case(Struct, frozen=True, kw_only=True):
    """A family with its newest definition, its runs, and what they needed."""

    family: str
    document: TaskDefinitionDocument
    runs: Sequence[RunFacts]
    seen: SeenMemory
    revisions: EarlierRevisions

    @property
    def killed_limits(self) -> Sequence[str]:
        """The containers' limits at which runs were killed, in words."""
        limits = self.seen.killed_limits(self.document.definition)
        return [
            f"a run was killed at the limit of {limit_mb} MiB of the container {name!r}"
            for name, limit_mb in limits.items()
        ]


class RequestedReverts(Struct, frozen=True, kw_only=True):
    """Plans to put families back to the size that their newest revision remembers, whatever their
    runs say.
    """

    describe: Callable[[str], bytes]

    def plan(
        self, family: str, document: TaskDefinitionDocument, _started_by: Sequence[str] = ()
    ) -> PlannedFamily:
        """Plan the revert. The first note is the reason. Raises TaskProfilerError."""
        revisions = EarlierRevisions(family, document, self.describe)
        case = _Case(
            family=family, document=document, runs=(), seen=SeenMemory(), revisions=revisions
        )
        decision = Resize(action="revert", reason="on request", runs=0)
        changed = ChangedDefinition(definition=document.definition)
        try:
            decision = replace(decision, size=revisions.old_size().size)
            changed = _changed(case, decision)
        except TaskProfilerError as error:
            decision = replace(decision, action="none", reason=str(error))
        return PlannedFamily(
            family=family,
            action=decision.action if decision.action == "revert" else "refused",
            notes=(as_sentence(decision.reason), *changed.notes),
            document=document,
            changed=changed,
            resize=decision,
        )


def _not_planned(case: _Case, decision: Resize, reason: str) -> PlannedFamily:
    """A family of which something could not be read that a change needs."""
    return PlannedFamily(
        family=case.family,
        action="failed",
        notes=(reason,),
        document=case.document,
        changed=ChangedDefinition(definition=case.document.definition),
        resize=replace(decision, action="none", reason=reason, saving_usd_per_month=None),
    )


def _changed(case: _Case, decision: Resize) -> ChangedDefinition:
    """The definition with the size and its tag; an old size with its containers' limits, if they
    can be read. Raises TaskProfilerError.
    """
    document = case.document
    present = document.definition
    seen = case.seen
    tag = SizeBefore(revision=case.revisions.number, size=definition_size(present)).tag
    if decision.action == "revert":
        old = case.revisions.old_size()
        changed = with_size(present, old.size, seen)
        if old.definition is not None:
            changed = with_size(with_size_of(present, old.definition), TaskSize(), seen)
        return replace(changed, definition=with_size_tag(changed.definition, REVERTED_FROM, tag))
    changed = with_size(present, decision.size or TaskSize(), seen)
    if document.arn is None:
        return changed
    return replace(changed, definition=with_size_tag(changed.definition, RESIZED_FROM, tag))


def _left_alone(document: TaskDefinitionDocument, decision: Resize) -> str | None:
    """Why a definition is not changed, whatever its runs say."""
    system = str(mapping(document.definition.get("runtimePlatform")).get("operatingSystemFamily"))
    if system.upper().startswith("WINDOWS"):
        return f"it is for {system}, which is not measured"
    if document.tags.get(f"{TAG_PREFIX}resize") == "off":
        return f"its tag {TAG_PREFIX}resize is off"
    return None if document.stack is None else _stack_sentence(document.stack, decision)


def _stack_sentence(stack: str, decision: Resize) -> str:
    size = decision.size
    values = ""
    if size is not None:
        values = f": set {format_task_size(size.vcpu, size.memory_mb)} in its template"
    return f"the stack {stack} of CloudFormation owns it{values}"


def _seen_memory(runs: Sequence[RunFacts], margin_percent: float) -> SeenMemory:
    """The largest memory of each measured container, and the limits of kills, with the margin."""
    factor = 1 + margin_percent / 100
    needs_mb: dict[str, float] = {}
    killed_mb: dict[str, float] = {}
    for record in (run.record for run in runs):
        name, limit_mb = record.container.name, record.metrics.memory_size_mb
        used = {name: record.metrics, **{one.name: one.metrics for one in record.containers}}
        used_mb = [
            (one, known.max_memory_used_mb) for one, known in used.items() if known is not None
        ]
        if (
            record.likely_out_of_memory
            and limit_mb is not None
            and limit_mb < (size_of(record).memory_mb or 0)
        ):
            killed_mb[name] = max(killed_mb.get(name, 0), limit_mb)
            used_mb.append((name, max(limit_mb, (limit_mb + 1) / factor)))
        for one, amount_mb in used_mb:
            if amount_mb is not None:
                needs_mb[one] = max(needs_mb.get(one, 0), amount_mb * factor)
    return SeenMemory(needs_mb=needs_mb, killed_mb=killed_mb)
