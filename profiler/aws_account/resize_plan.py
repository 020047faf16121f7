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
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_decision import decide
from profiler.sizing.resize_policy import Resize, ResizePolicy
from profiler.sizing.sized_revision import Circumstances, SizeBefore, SizedRevision, size_before
from profiler.task_definitions.definition_json import (
    ChangedDefinition,
    TaskDefinitionDocument,
    read_document,
)
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

# The number of earlier revisions among which the last change of the size is looked for.
_REVISIONS_BACK = 50


class SizePlans(Struct, frozen=True, kw_only=True):
    """Plans the size of each family, of a revision or of a file.

    ``describe`` reads an older revision.
    """

    runs: Mapping[FamilyKey, FamilyWindow]
    policy: ResizePolicy
    price_overrides: PriceOverrides
    describe: Callable[[str], bytes] = str.encode

    def plan(
        self, family: str, document: TaskDefinitionDocument, _started_by: Sequence[str] = ()
    ) -> PlannedFamily:
        """Plan the size of a family. The first note is the reason. Raises TaskProfilerError."""
        window = self._window(family, document.arn)
        size = definition_size(document.definition)
        seen = _seen_memory(window, size, self.policy.size.memory_margin_percent)
        limits = [
            f"a run was killed at the limit of {limit_mb} MiB of the container {name!r}"
            for name, limit_mb in seen.killed_limits(document.definition).items()
        ]
        policy = replace(
            self.policy,
            size=replace(self.policy.size, least_memory_mb=seen.task_mb(document.definition)),
        )
        revision = SizedRevision(
            revision=None, size=size, killed_limit=limits[0] if limits else None
        )
        decision = self._decision(family, document, window, policy, revision)
        is_left_alone = _circumstances(document) != Circumstances()
        changed = ChangedDefinition(definition=document.definition)
        if decision.action in ("resize", "revert"):
            try:
                changed = self._changed(family, document, decision, seen)
            except TaskProfilerError as error:
                decision = replace(decision, action="none", reason=str(error))
        if (
            decision.action == "none"
        ):  # what is not done saves nothing, and what it would mend is named
            decision = replace(decision, saving_usd_per_month=None)
            changed = replace(changed, notes=tuple(map(as_sentence, limits)))
        return PlannedFamily(
            family=family,
            action="refused" if is_left_alone else decision.action,  # its schedules stay, too
            notes=(as_sentence(decision.reason), *changed.notes),
            document=document,
            changed=changed,
            resize=decision,
        )

    def _window(self, family: str, arn: str | None) -> FamilyWindow:
        account, region = arn_account(arn), arn_region(arn)
        windows = []
        for key, window in self.runs.items():
            is_here = key.account_id in (None, account) and key.region in (None, region)
            if key.name == family and (arn is None or is_here):
                windows.append(window)
        if arn is None and len(windows) > 1:
            raise TaskProfilerError(
                f"The runs of {family} are of several accounts or Regions: use a source with one."
            )
        if len(windows) == 1:
            return windows[0]
        total = FamilyWindow(windows[0].span if windows else WindowSpan(now_ns=0))
        for window in windows:
            total.merge(window)
        return total

    def _decision(
        self,
        family: str,
        document: TaskDefinitionDocument,
        window: FamilyWindow,
        policy: ResizePolicy,
        revision: SizedRevision,
    ) -> Resize:
        circumstances = _circumstances(document)

        def decide_on(revision: SizedRevision) -> Resize:
            return decide(window, revision, circumstances, policy, self.price_overrides)

        if document.arn is None:
            return decide_on(revision)
        number, tags = document.arn.rpartition(":")[2], document.tags
        revision = replace(
            revision,
            revision=number,
            resized_from=size_before(tags.get(RESIZED_FROM)),
            reverted_from=size_before(tags.get(REVERTED_FROM)),
        )
        decision = decide_on(revision)
        is_ours = revision.resized_from is not None or revision.reverted_from is not None
        if decision.action != "resize" or is_ours:
            return decision
        return decide_on(self._with_past(family, number, window, revision))

    def _with_past(
        self, family: str, number: str, window: FamilyWindow, revision: SizedRevision
    ) -> SizedRevision:
        """The revision, with the size that a plan has registered, if later revisions have the
        size before it.

        If the first of those is a plan's own, its tag counts. The runs show the sizes of most
        revisions without a call.
        """
        size = revision.size
        seen = {}
        for seen_size, runs in window.sizes.items():
            seen.update(dict.fromkeys(runs.revisions, seen_size))
        newest = int(number) if number.isdecimal() else 1
        for earlier in range(newest - 1, max(newest - 1 - _REVISIONS_BACK, 0), -1):
            if seen.get(str(earlier)) == size:
                continue
            before = self._earlier(family, str(earlier))
            if before is None:
                return revision
            found, resized = (
                definition_size(before.definition),
                size_before(before.tags.get(RESIZED_FROM)),
            )
            if found == size:
                continue
            if resized is None or resized.size != size:
                return revision
            first = self._earlier(family, str(earlier + 1))
            reverted = None if first is None else size_before(first.tags.get(REVERTED_FROM))
            return replace(
                revision, overwritten=None if reverted else found, reverted_from=reverted
            )
        return revision

    def _earlier(self, family: str, revision: str) -> TaskDefinitionDocument | None:
        """An earlier revision; None if it cannot be read, such as after its deletion."""
        try:
            return read_document(self.describe(f"{family}:{revision}"), family)
        except TaskProfilerError:
            return None

    def _changed(
        self, family: str, document: TaskDefinitionDocument, decision: Resize, seen: SeenMemory
    ) -> ChangedDefinition:
        """The definition with the size and its tag; an old size with its containers' limits, if
        they can be read.
        """
        number, present = (document.arn or "").rpartition(":")[2], document.definition
        tag = SizeBefore(revision=number, size=definition_size(present)).tag
        resized_from = size_before(document.tags.get(RESIZED_FROM))
        is_revert = decision.action == "revert"
        old = (
            None
            if resized_from is None or not is_revert
            else self._earlier(family, resized_from.revision)
        )
        if old is not None:
            changed = with_size(with_size_of(present, old.definition), TaskSize(), seen)
            return replace(
                changed, definition=with_size_tag(changed.definition, REVERTED_FROM, tag)
            )
        changed = with_size(present, decision.size or TaskSize(), seen)
        if document.arn is None:
            return changed
        key = REVERTED_FROM if is_revert else RESIZED_FROM
        return replace(changed, definition=with_size_tag(changed.definition, key, tag))


def _circumstances(document: TaskDefinitionDocument) -> Circumstances:
    """What the definition alone says, whatever its runs do."""
    platform = mapping(document.definition.get("runtimePlatform"))
    system = str(platform.get("operatingSystemFamily"))
    is_windows = system.upper().startswith("WINDOWS")
    tag = f"{TAG_PREFIX}resize"
    return Circumstances(
        operating_system=system if is_windows else None,
        off_tag=tag if document.tags.get(tag) == "off" else None,
        stack=document.stack,
    )


def _seen_memory(window: FamilyWindow, size: TaskSize, margin_percent: float) -> SeenMemory:
    """The largest memory of each measured container, and the limits of kills at the definition's
    size, with the margin.
    """
    factor = 1 + margin_percent / 100
    needs_mb: dict[str, float] = {}
    killed_mb: dict[str, float] = {}
    for runs_size, runs in window.sizes.items():
        for name, memory in runs.containers.items():
            if memory.used_mb is not None:
                needs_mb[name] = max(needs_mb.get(name, 0), memory.used_mb * factor)
            limit_mb = memory.killed_limit_mb
            if limit_mb is not None and runs_size == size:
                killed_mb[name] = limit_mb
                least_mb = max(limit_mb * factor, limit_mb + 1)
                needs_mb[name] = max(needs_mb.get(name, 0), least_mb)
    return SeenMemory(needs_mb=needs_mb, killed_mb=killed_mb)
