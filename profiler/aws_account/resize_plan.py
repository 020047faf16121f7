"""Plans the size of families' task definitions by their runs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.family_circumstances import (
    FamilyCircumstancesReader,
    circumstances_of,
    overrides_of_runs,
)
from profiler.aws_account.owned_families import plan_left_to_service
from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.registered_definitions import may_definition_exist
from profiler.aws_account.scheduled_targets import MAX_TASK_TAGS
from profiler.aws_account.size_before import EarlierRevisionReader, SizeBeforeOurs
from profiler.core.ecs_terms import arn_account, arn_region, revision_number
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import first_known, known, known_values
from profiler.core.text import as_sentence, first_names
from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import TaskSize
from profiler.sizing.choose_size import memory_margin_of
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.memory_margin import MemoryMargin, PeakPrecision, memory_margin
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_decision import decide_on_resize
from profiler.sizing.resize_limits import ResizeDecision, ResizePolicy
from profiler.sizing.sized_revision import (
    RESIZED_FROM,
    REVERTED_FROM,
    SizeBefore,
    SizedRevision,
    parse_size_before_tag,
)
from profiler.sizing.window_advice import WindowAdvice
from profiler.sizing.window_evidence import evidence_at_size
from profiler.task_definitions.containers import read_containers
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument
from profiler.task_definitions.job_as_task_definition import (
    check_propagated_tags,
    is_job_definition,
    is_on_fargate,
    job_task_mb,
    job_with_size,
    job_with_size_of,
    repeated_kill_sentence,
)
from profiler.task_definitions.size_changes import (
    SeenMemory,
    definition_size,
    with_size,
    with_size_of,
    with_size_tag,
)


class SizePlanner(Struct, frozen=True, kw_only=True):
    """Plans the size of each family, of a revision or of a file.

    ``describe`` reads an older revision. ``account`` is None for files. ``are_for_source``: the
    definitions' source gets the sizes, so that neither a stack that owns one nor a pipeline that
    registers one again is in the way. ``missing_runs``: why the runs of a definition are only a
    part, in words; it raises TaskProfilerError if they could not be read.
    """

    runs: Mapping[FamilyKey, FamilyWindow]
    policy: ResizePolicy
    price_overrides: PriceOverrides
    describe: Callable[[str], bytes] = str.encode
    account: FamilyCircumstancesReader | None = None
    are_for_source: bool = False
    missing_runs: Callable[[Mapping[str, object]], str] = lambda _definition: ""

    def plan_size(
        self, family: str, document: TaskDefinitionDocument, _started_by: Sequence[str] = ()
    ) -> PlannedFamily:
        """Plan the size of a family. The first note is the reason. Raises TaskProfilerError."""
        window = self._read_window(family, document.arn)
        owner = document.owner or window.owner
        if owner is not None and not is_job_definition(document.definition):
            return plan_left_to_service(family, document, owner, "size")
        missing_runs = self.missing_runs(document.definition)
        size = definition_size(document.definition)
        case = _FamilyCase(
            family=family,
            document=document,
            window=window,
            seen=_seen_memory_of_containers(window, size, self._memory_margin(window, size)),
            revisions=EarlierRevisionReader(family, document, self.describe),
            missing_runs=missing_runs,
        )
        try:
            decision = self._decide(case)
        except TaskProfilerError as error:  # nothing is registered without these rights
            return _plan_left_unread(case, str(error))
        elsewhere = self._runs_elsewhere_sentence(family, document.arn)
        if elsewhere and decision.action in ("none", "keep"):
            decision = replace(decision, action="none", reason=elsewhere)
        changed = ChangedDefinition(definition=document.definition)
        if decision.action in ("resize", "revert"):
            try:
                if not self.are_for_source:
                    check_propagated_tags(document.definition)
                changed = _changed_definition(case, decision, is_tagged=not self.are_for_source)
                self._check_overrides(case, changed)
            except TaskProfilerError as error:
                if may_definition_exist(error):
                    return _plan_left_unread(case, str(error))
                changed = ChangedDefinition(definition=document.definition)
                decision = replace(decision, action="none", reason=str(error))
        if decision.action == "none":
            # What is not done saves nothing, and what it would mend is named.
            decision = replace(decision, saving_usd_per_month=None)
            changed = replace(changed, notes=tuple(map(as_sentence, case.killed_limit_texts)))
        return PlannedFamily(
            family=family,
            # The schedules of what others own stay, too.
            action="refused" if decision.is_decided_by_others else decision.action,
            notes=(
                as_sentence(decision.reason),
                *changed.notes,
                *_left_out_sentences(decision),
                *_repeated_kills_sentence(case),
                *self._refused_targets(case, decision),
            ),
            document=document,
            changed=changed,
            resize=decision,
            failed=_failed_smaller_size(case),
        )

    def _runs_elsewhere_sentence(self, family: str, arn: str | None) -> str:
        """The sentence on runs that are all of another account or Region than the definition;
        nothing without such runs, or with others.
        """
        keys = [key for key in self.runs if key.name == family]
        if not arn or not keys or any(_may_be_of_account(key, arn) for key in keys):
            return ""
        places = set()
        for key in keys:
            account = known("account {}".format, key.account_id)
            places.add(" in ".join(known_values((account, key.region))))
        return (
            f"its runs are of {first_names(sorted(places))}, not of account {arn_account(arn)} in "
            f"{arn_region(arn)}: check --profile and --region"
        )

    def _memory_margin(self, window: FamilyWindow, size: TaskSize) -> MemoryMargin:
        evidence = evidence_at_size(window, size)
        if evidence is not None:
            return memory_margin_of(evidence, self.policy.size)
        asked_percent = self.policy.size.memory_margin_percent
        return memory_margin(None, PeakPrecision(), asked_percent=asked_percent)

    def _read_window(self, family: str, arn: str | None) -> FamilyWindow:
        windows = []
        for key, window in self.runs.items():
            if key.name == family and (not arn or _may_be_of_account(key, arn)):
                windows.append(window)
        if not arn and len(windows) > 1:
            raise TaskProfilerError(
                f"The runs of {family} are of several accounts or Regions: use a source with one."
            )
        if len(windows) == 1:
            return windows[0]
        total = FamilyWindow(WindowSpan(now_ns=0))
        if windows:
            total = FamilyWindow(windows[0].span, windows[0].launch_type)
        for window in windows:
            total.merge(window)
        return total

    def _decide(self, case: "_FamilyCase") -> ResizeDecision:
        """The decision by the runs and the account. Raises TaskProfilerError."""
        document = case.document
        if is_job_definition(document.definition):
            least_mb = job_task_mb(document.definition, case.seen)
        else:
            least_mb = case.seen.task_mb(document.definition)
        policy = replace(self.policy, size=replace(self.policy.size, least_memory_mb=least_mb))
        circumstances = circumstances_of(document)
        if self.account is not None:
            circumstances = self.account.circumstances_of_family(case.family, document, case.seen)
            if not (case.has_run_of_newest or circumstances.is_service):
                starters = self.account.titles_starting_older_revisions(case.family, document)
                circumstances = replace(circumstances, starters=starters)
        if self.are_for_source:
            circumstances = replace(circumstances, stack=None)
        of_runs = overrides_of_runs(document, case.window, case.seen)
        circumstances = replace(
            circumstances,
            overrides=(*circumstances.overrides, *of_runs),
            missing_runs=case.missing_runs,
        )

        advised = WindowAdvice(case.window, policy, self.price_overrides)
        revision = case.revision
        decision = decide_on_resize(advised, revision, circumstances)
        if not document.arn or self.account is None or decision.action != "resize":
            return decision
        new_vcpu = None if decision.size is None else decision.size.vcpu
        if (new_vcpu or 0) > (case.revision.size.vcpu or 0):
            most_vcpu = self.account.most_vcpu(case.job_queues)
            circumstances = replace(circumstances, most_vcpu=most_vcpu)
        revision = self._with_later_words(case, document.arn, self.account)
        decision = decide_on_resize(advised, revision, circumstances)
        if decision.action == "resize" and not self.are_for_source:
            circumstances = replace(
                circumstances, stack=self.account.stack_owning_revisions(case.revisions)
            )
            decision = decide_on_resize(advised, revision, circumstances)
        return decision

    def _with_later_words(
        self, case: "_FamilyCase", newest_arn: str, account: FamilyCircumstancesReader
    ) -> SizedRevision:
        """The newest revision with what people did after a change of ours. Raises
        TaskProfilerError.
        """
        revision = case.revision
        tagged = account.tagged(newest_arn)
        withdrawn = case.revisions.find_withdrawn_revision(
            account.newest_withdrawn(case.family), case.newest_revision_that_ran, tagged
        )
        revision = replace(revision, withdrawn=withdrawn)
        if revision.was_sized_by_us:
            return revision
        revision = case.revisions.with_overwritten(revision, tagged)
        if self.are_for_source:
            return replace(revision, overwritten=None)
        return revision

    def _check_overrides(self, case: "_FamilyCase", changed: ChangedDefinition) -> None:
        """Raise TaskProfilerError if a schedule overrides sizes that the new one does not hold."""
        if self.account is None:
            return
        for target in self.account.overriding_targets(case.family, case.document):
            refusal = target.overrides.why_definition_is_refused(changed.definition)
            if refusal:
                raise TaskProfilerError(f"the {target.title} starts it, and {refusal}")
        for title in self.account.titles_with_too_many_tags(case.family, changed.definition):
            raise TaskProfilerError(
                f"the {title} gives its tasks its own tags and the definition's, which with one "
                f"more would be over {MAX_TASK_TAGS}, all that a task can have: remove tags"
            )
        new = changed.definition
        for title, refusal in self.account.titles_that_cannot_tag(case.family, case.document, new):
            raise TaskProfilerError(f"its new tag would keep the {title} from starting: {refusal}")

    def _refused_targets(self, case: "_FamilyCase", decision: ResizeDecision) -> Iterator[str]:
        """Sentences on what starts nothing, because the definition, which stays as it is, does not
        hold the sizes that it sets.
        """
        definition = case.document.definition
        is_of_task = is_on_fargate(definition) and not is_job_definition(definition)
        if self.account is None or decision.action in ("resize", "revert") or not is_of_task:
            return
        for target in self.account.overriding_targets(case.family, case.document):
            refusal = target.why_refused(case.document)
            if refusal:
                yield f"The {target.title} starts nothing, because {refusal}."


def _failed_smaller_size(case: "_FamilyCase") -> SizeBefore | None:
    """The size from which the newest revision was put back, if the window has a kill at it."""
    before = parse_size_before_tag(case.document.tags.get(REVERTED_FROM))
    if before is None or not case.window.runs_at(before.size).counts.counts_by_outcome["killed"]:
        return None
    return before


def _may_be_of_account(key: FamilyKey, arn: str) -> bool:
    """Whether runs may be of the account and the Region of a definition."""
    is_of_account = key.account_id in (None, arn_account(arn))
    return is_of_account and key.region in (None, arn_region(arn))


class _FamilyCase(Struct, frozen=True, kw_only=True):
    """A family with its newest definition, its runs, and what they needed."""

    family: str
    document: TaskDefinitionDocument
    window: FamilyWindow
    seen: SeenMemory
    revisions: EarlierRevisionReader
    missing_runs: str = ""

    @property
    def revision(self) -> SizedRevision:
        """The newest revision with what its tags say; of a file, only its size."""
        limits = self.killed_limit_texts
        revision = SizedRevision(
            revision=None,
            size=definition_size(self.document.definition),
            killed_limit=limits[0] if limits else None,
            under_raised_limits=self._revisions_under_raised_limits,
        )
        if not self.document.arn:
            return revision
        tags = self.document.tags
        return replace(
            revision,
            revision=self.revisions.newest_number,
            resized_from=parse_size_before_tag(tags.get(RESIZED_FROM)),
            reverted_from=parse_size_before_tag(tags.get(REVERTED_FROM)),
            registered_ns=self.document.registered_ns,
        )

    @property
    def _revisions_under_raised_limits(self) -> frozenset[str] | None:
        """The revisions whose runs had no limit of a container so low as one at which it was
        killed, if the definition has a higher one now; None: no limit was raised.
        """
        killed_mb = self.seen.killed_mb
        raised = []
        for container in read_containers(self.document.definition):
            limit_mb = first_known(container.memory_mb, math.inf)
            if killed_mb.get(container.name, math.inf) < limit_mb:
                raised.append(container.name)
        if not raised:
            return None
        at_size = self.window.runs_at(definition_size(self.document.definition))
        return frozenset(
            revision
            for revision, runs in at_size.revisions.items()
            if all(
                first_known(limit_mb, math.inf) > killed_mb[name]
                for name in raised
                for limit_mb in runs.limits_mb.get(name, ())
            )
        )

    @property
    def has_run_of_newest(self) -> bool:
        number = self.revisions.newest_number
        return any(number in runs.revisions for _, runs in self.window.runs_at_all_sizes())

    @property
    def job_queues(self) -> frozenset[str]:
        """The queues of the jobs at each size."""
        return frozenset[str]().union(*(runs.queues for _, runs in self.window.runs_at_all_sizes()))

    @property
    def newest_revision_that_ran(self) -> int | None:
        """The newest revision that has run."""
        seen: set[str] = set()
        for _, runs in self.window.runs_at_all_sizes():
            seen |= runs.revisions.keys()
        return max(known_values(map(revision_number, seen)), default=None)

    @property
    def killed_limit_texts(self) -> Sequence[str]:
        """The containers' limits at which runs were killed, in words."""
        limits = self.seen.killed_limits(self.document.definition)
        return [
            f"a run was killed at the limit of {limit_mb} MiB of the container {name!r}"
            for name, limit_mb in limits.items()
        ]


class RevertPlanner(Struct, frozen=True, kw_only=True):
    """Plans to put families back to the size that their newest revision remembers, whatever their
    runs say.
    """

    describe: Callable[[str], bytes]

    def plan_revert(
        self, family: str, document: TaskDefinitionDocument, _started_by: Sequence[str] = ()
    ) -> PlannedFamily:
        """Plan the revert. The first note is the reason. Raises TaskProfilerError."""
        revisions = EarlierRevisionReader(family, document, self.describe)
        case = _FamilyCase(
            family=family,
            document=document,
            window=FamilyWindow(WindowSpan(now_ns=0)),
            seen=SeenMemory(),
            revisions=revisions,
        )
        decision = ResizeDecision(action="revert", reason="on request", runs=0)
        changed = ChangedDefinition(definition=document.definition)
        if {REVERTED_FROM, RESIZED_FROM} & document.tags.keys() == {REVERTED_FROM}:
            # A call that was ended before it moved what starts the family left this behind.
            decision = replace(decision, action="none", reason="it has the size before already")
            return PlannedFamily(
                family=family,
                action=decision.action,
                notes=(as_sentence(decision.reason),),
                document=document,
                changed=changed,
                resize=decision,
            )
        try:
            decision = replace(decision, size=revisions.find_old_size().size)
            changed = _changed_definition(case, decision, is_tagged=True)
        except TaskProfilerError as error:
            if may_definition_exist(error):
                return _plan_left_unread(case, str(error))
            decision = replace(decision, action="none", reason=str(error))
        return PlannedFamily(
            family=family,
            action=decision.action if decision.action == "revert" else "refused",
            notes=(as_sentence(decision.reason), *changed.notes),
            document=document,
            changed=changed,
            resize=decision,
        )


def _plan_left_unread(case: _FamilyCase, reason: str) -> PlannedFamily:
    """A family of which something could not be read that a change needs."""
    return PlannedFamily(
        family=case.family,
        action="failed",
        notes=(reason,),
        document=case.document,
        changed=ChangedDefinition(definition=case.document.definition),
        resize=ResizeDecision(
            action="none", reason=reason, runs=case.window.deciding_counts.task_count
        ),
    )


def _left_out_sentences(decision: ResizeDecision) -> tuple[str, ...]:
    """Sentences on the runs that do not count, if there are any."""
    return known(attrgetter("left_out_runs_sentences"), decision.evidence) or ()


def _changed_definition(
    case: _FamilyCase, decision: ResizeDecision, *, is_tagged: bool
) -> ChangedDefinition:
    """The definition with the size, and the tag of a revision; an old size with its containers'
    limits, if they can be read. Raises TaskProfilerError.
    """
    document = case.document
    present = document.definition
    seen = case.seen
    tag = SizeBefore(revision=case.revisions.newest_number, size=definition_size(present)).tag_value
    if decision.action == "revert":
        old = case.revisions.find_old_size()
        changed = _definition_with_old_size(present, old, seen)
        if not is_tagged:
            return changed
        return replace(changed, definition=with_size_tag(changed.definition, REVERTED_FROM, tag))
    changed = _definition_with_size(present, decision.size or TaskSize(), seen)
    if not document.arn or not is_tagged:
        return changed
    return replace(changed, definition=with_size_tag(changed.definition, RESIZED_FROM, tag))


def _definition_with_old_size(
    present: Mapping[str, object], old: SizeBeforeOurs, seen: SeenMemory
) -> ChangedDefinition:
    """The definition with an old size, as the old revision has it if that can be read. Raises
    TaskProfilerError.
    """
    if old.definition is None:
        return _definition_with_size(present, old.size, seen)
    if is_job_definition(present):
        as_then = job_with_size_of(present, old.definition)
        return as_then or _definition_with_size(present, old.size, seen)
    return with_size(with_size_of(present, old.definition), TaskSize(), seen)


def _definition_with_size(
    definition: Mapping[str, object], size: TaskSize, seen: SeenMemory
) -> ChangedDefinition:
    """The definition of a task or a job with the size. Raises TaskProfilerError."""
    if is_job_definition(definition):
        return job_with_size(definition, size, seen)
    return with_size(definition, size, seen)


def _repeated_kills_sentence(case: _FamilyCase) -> tuple[str, ...]:
    """The sentence on kills that Batch repeats at the same size, if there was a kill."""
    if not is_job_definition(case.document.definition):
        return ()
    killed = any(
        runs.counts.counts_by_outcome["killed"] for _, runs in case.window.runs_at_all_sizes()
    )
    return known_values([repeated_kill_sentence(case.document.definition)] if killed else [])


def _seen_memory_of_containers(
    window: FamilyWindow, size: TaskSize, margin: MemoryMargin
) -> SeenMemory:
    """The largest memory of each measured container, and the limits of kills at the definition's
    size, with the margin; beside the batch and above a kill, with that of one value. Beside that,
    what keeps a limit from getting lower.

    Of counted runs, the need of a container without a report is not known, so that its limit is not
    lowered.
    """
    unknown = margin.margin_of_one_value
    needs_mb: dict[str, float] = {}
    held_mb: dict[str, float] = {}
    killed_mb: dict[str, float] = {}
    for runs_size, runs in window.runs_at_all_sizes():
        reporting = runs.counts.container_names
        for name, memory in runs.containers.items():
            is_known = name in reporting or not window.is_counted
            if memory.used_mb is not None and is_known:
                above = margin if name in reporting else unknown
                needs_mb[name] = max(needs_mb.get(name, 0), memory.used_mb * above.factor)
                held_mb[name] = max(held_mb.get(name, 0), memory.held_mb or 0)
            limit_mb = memory.killed_limit_mb
            if limit_mb is not None and runs_size == size:
                killed_mb[name] = max(killed_mb.get(name, 0), limit_mb)
                least_mb = max(limit_mb * unknown.factor, limit_mb + 1)
                needs_mb[name] = max(needs_mb.get(name, 0), least_mb)
    return SeenMemory(needs_mb=needs_mb, held_mb=held_mb, killed_mb=killed_mb)
