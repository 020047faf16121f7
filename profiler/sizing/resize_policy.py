"""Whether the size of a task definition should change, and what became of its last change."""

import math
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_DAY
from profiler.record.record_model import TaskSize
from profiler.record.units import as_number, format_count, format_percent, format_task_size
from profiler.sizing.advice import Advice, advise, rounded_usd
from profiler.sizing.choose_size import Policy
from profiler.sizing.evidence import LAST_RUNS, evidence_of_runs
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_facts import RunFacts, oom_size_mb, size_of
from profiler.sizing.slowdown_factors import SAME_DURATION
from profiler.sizing.what_if import SizeOption, usd_per_month

ResizeAction = Literal["resize", "revert", "keep", "none"]
_CPU_UNITS = 1024
_MIN_RUNS_OF_DURATION = 5
_MIN_RUNS_TO_KEEP = 10
_MIN_FAILURES = 2
# A reverted family is left alone for this number of runs, or for this time.
_RUNS_AFTER_REVERT, _NS_AFTER_REVERT = 60, 90 * NS_PER_DAY


class SizeBefore(Struct, frozen=True, kw_only=True):
    """The size of an earlier revision, as a tag remembers it: ``REVISION/CPU/MEMORY``."""

    revision: str
    size: TaskSize

    @property
    def tag(self) -> str:
        return f"{self.revision}/{(self.size.vcpu or 0) * _CPU_UNITS:.0f}/{self.size.memory_mb or 0:.0f}"


def size_before(tag: str | None) -> SizeBefore | None:
    """The size in a tag, None without one or for another text."""
    revision, *sizes = (tag or "").split("/")
    # And memory.
    if len(sizes) != 2 or not all(part.isdecimal() for part in (revision, *sizes)):  # noqa: PLR2004  CPU
        return None
    return SizeBefore(
        revision=revision, size=TaskSize(vcpu=int(sizes[0]) / _CPU_UNITS, memory_mb=int(sizes[1]))
    )


class SizedRevision(Struct, frozen=True, kw_only=True):
    """The newest revision of a family, and the sizes that it remembers; of a file, without a
    ``revision``.

    ``overwritten`` is a plan's size, if a later revision has the old one. ``killed_limit`` is a
    container's, in words.
    """

    revision: str | None
    size: TaskSize
    resized_from: SizeBefore | None = None
    reverted_from: SizeBefore | None = None
    overwritten: TaskSize | None = None
    killed_limit: str | None = None


class ResizePolicy(Struct, frozen=True, kw_only=True):
    """The limits of a change. Of the runs, the ``last`` ones count for a recommendation."""

    size: Policy = Policy()
    min_saving_percent: float = 10
    min_runs: int = 20
    last: int = LAST_RUNS


class ResizeVerdict(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of a new size, by its runs. None: not known."""

    runs: int
    killed: int
    failed: int
    duration_change_percent: float | None = None
    saved_usd_per_month: float | None = None


class Resize(Struct, frozen=True, kw_only=True):
    """The decision on a family.

    ``size`` is the new one; of action ``none``, the one that would be better.

    ``saving_usd_per_month`` is negative for a larger size, and ``usd_per_month`` what the runs cost
    now.
    """

    action: ResizeAction
    reason: str
    runs: int
    size: TaskSize | None = None
    saving_usd_per_month: float | None = None
    usd_per_month: float | None = None
    verdict: ResizeVerdict | None = None


def decide(
    runs: Sequence[RunFacts],
    revision: SizedRevision,
    policy: ResizePolicy,
    price_overrides: PriceOverrides,
) -> Resize:
    """Decide on a family by its runs, in the order of time."""
    own = _own_runs(runs, revision)
    case = _Case(
        runs=runs, own=own, revision=revision, policy=policy, price_overrides=price_overrides
    )
    advice = case.advice(runs)
    return replace(case.decision(), usd_per_month=None if advice is None else advice.usd_per_month)


class _Case(Struct, frozen=True, kw_only=True):
    """A family's runs, of which ``own`` are those since the change of its size, else of its
    newest revision.
    """

    runs: Sequence[RunFacts]
    own: Sequence[RunFacts]
    revision: SizedRevision
    policy: ResizePolicy
    price_overrides: PriceOverrides

    def decision(self) -> Resize:
        """The decision, without what the runs cost."""
        own, revision = self.own, self.revision
        of_revision = "" if revision.revision is None else f" of revision {revision.revision}"
        none = Resize(
            action="none", reason=f"no run{of_revision} is known yet", runs=len(self.runs)
        )
        if not own:
            return none
        if other := self._other_size():
            return replace(none, reason=other)
        if revision.resized_from is not None:
            return self.judged(revision.resized_from)
        advised = self.advised(self.runs)
        if revision.overwritten is not None:
            reason = "a later revision has the old size again: set the size at its source"
            return replace(
                advised, action="none", reason=reason, size=advised.size or revision.overwritten
            )
        if advised.action == "resize" and revision.reverted_from is not None:
            return self.after_revert(advised)
        return advised

    def _other_size(self) -> str | None:
        """Why the size has no effect: the newest run has another one.

        A template may have a parameter in its place.
        """
        seen, defined = size_of(self.own[-1].record), self.revision.size
        shown = format_task_size(seen.vcpu, seen.memory_mb) or "an unknown size"
        if self.revision.revision is not None:
            return (
                None
                if seen == defined
                else f"its runs have {shown}, so the definition's size has no effect"
            )
        if defined.vcpu in (None, seen.vcpu) and defined.memory_mb in (None, seen.memory_mb):
            return None
        return f"its newest run has {shown}, not the size of the file"

    def judged(self, old: SizeBefore) -> Resize:
        """The verdict on the new size, compared with the runs of the old one.

        A larger size is never put back.
        """
        own, size = self.own, self.revision.size
        others = (run for run in self.runs if not _is_after(run, old))
        before = [run for run in others if size_of(run.record) == old.size][-self.policy.last :]
        verdict = self._verdict(before)
        none = Resize(
            action="none",
            reason=f"{len(own)} of {_MIN_RUNS_TO_KEEP} runs seen",
            runs=len(self.runs),
            verdict=verdict,
        )
        # At the old size, a limit of a container was raised.
        is_larger = size == old.size or (size.memory_mb or 0) > (old.size.memory_mb or 0)
        if is_larger and verdict.killed:
            return replace(self._unlike_failed(self.advised(own)), verdict=verdict)
        failure = _failure_of(own, before, self.policy.size.max_slowdown_percent)
        if failure and not is_larger:
            usd = verdict.saved_usd_per_month
            spent = None if usd is None else -usd
            return replace(
                none, action="revert", reason=failure, size=old.size, saving_usd_per_month=spent
            )
        if len(own) < _MIN_RUNS_TO_KEEP:
            return none
        again = self._unlike_failed(self.advised(own))
        if again.action == "resize":
            return replace(again, verdict=verdict)
        if failure:
            return replace(none, reason=f"{failure}; a larger size is not put back")
        at_new_size = f"{format_count(len(own), 'run')} at the new size"
        some_failed = (
            f"{verdict.failed} of {at_new_size} failed, which is no reason to put the old size back"
        )
        return replace(
            none,
            action="keep",
            reason=some_failed if verdict.failed else f"{at_new_size} went well",
        )

    def _verdict(self, before: Sequence[RunFacts]) -> ResizeVerdict:
        own = self.own
        then_ms, now_ms = _durations_ms(before), _durations_ms(own)
        change = 100 * (median(now_ms) / median(then_ms) - 1) if now_ms and then_ms else None
        evidence = evidence_of_runs(own[-1].family, [*before, *own])
        usual_usd, new_usd = (
            None if one is None else one.usd_per_run for one in map(self.advice, (before, own))
        )
        saved_usd = None if usual_usd is None or new_usd is None else usual_usd - new_usd
        saved = None if evidence is None else usd_per_month(saved_usd, evidence)
        return ResizeVerdict(
            runs=len(own),
            killed=len(_killed(own)),
            failed=len(_failed(own)),
            duration_change_percent=None if change is None else round(change, 1),
            saved_usd_per_month=rounded_usd(saved),
        )

    def after_revert(self, advised: Resize) -> Resize:
        """The advice for a family whose smaller size has failed: not soon, unless a run was
        killed now, too.
        """
        own = self.own
        is_killed = self.revision.killed_limit or any(
            _was_killed_at(run, self.revision.size) for run in own
        )
        is_soon = (
            len(own) < _RUNS_AFTER_REVERT and own[-1].began_ns - own[0].began_ns < _NS_AFTER_REVERT
        )
        if is_soon and not is_killed:
            reason = "a smaller size has failed, so the size is left alone for 60 runs or 90 days"
            return replace(advised, action="none", reason=reason)
        return self._unlike_failed(advised)

    def _unlike_failed(self, advised: Resize) -> Resize:
        """The advice, without the size that has failed and anything smaller in the dimension
        that failed.
        """
        failed, present = self.revision.reverted_from, self.revision.size
        if failed is None or advised.action != "resize":
            return advised
        of_failed = [
            run
            for run in self.runs
            if not _is_after(run, failed) and size_of(run.record) == failed.size
        ]
        size = advised.size or TaskSize()
        has_its_memory = (size.memory_mb or 0) <= min(
            failed.size.memory_mb or 0, (present.memory_mb or 0) - 1
        )
        has_its_vcpu = (size.vcpu or 0) <= (failed.size.vcpu or 0) and (size.vcpu or 0) < (
            present.vcpu or 0
        )
        if _killed(of_failed):
            has_failed = has_its_memory
        elif (
            of_failed
            and len(_failed(of_failed)) < _MIN_FAILURES
            and (failed.size.vcpu or 0) < (present.vcpu or 0)
        ):
            has_failed = has_its_vcpu  # its runs were slow
        else:  # such as a heap that follows the limit
            has_failed = has_its_memory or has_its_vcpu
        none = replace(
            advised, action="none", reason="this size, or a larger one, has failed before"
        )
        return self._with_raised_limit(none) if has_failed else advised

    def _with_raised_limit(self, none: Resize) -> Resize:
        """No change, but of a container's limit at which a run was killed, if the task has room
        for a larger one.
        """
        limit, size = self.revision.killed_limit, self.revision.size
        if limit is None or self.policy.size.least_memory_mb > (size.memory_mb or 0):
            return none
        return replace(none, action="resize", reason=limit, size=size, saving_usd_per_month=0)

    def _window(self, runs: Sequence[RunFacts]) -> Sequence[RunFacts]:
        """The last runs. Successes before them count if none of them succeeded."""
        last = self.policy.last
        if any(run.record.status == "success" for run in runs[-last:]):
            return runs[-last:]
        return [
            *[run for run in runs[:-last] if run.record.status == "success"][-last:],
            *runs[-last:],
        ]

    def advice(self, runs: Sequence[RunFacts]) -> Advice | None:
        """The advice that the last runs call for; None if none was measured."""
        window = self._window(runs)
        evidence = evidence_of_runs(window[-1].family, window) if window else None
        return (
            None
            if evidence is None
            else advise(evidence, self.policy.size, self.price_overrides, brief=True)
        )

    def advised(self, runs: Sequence[RunFacts]) -> Resize:
        """The change that the last runs call for."""
        policy, size, killed_limit = self.policy, self.revision.size, self.revision.killed_limit
        advice, none = (
            self.advice(runs),
            Resize(action="none", reason="no run was measured", runs=len(self.runs)),
        )
        if advice is None:
            return none
        is_killed = killed_limit or any(_was_killed_at(run, size) for run in self._window(runs))
        is_few, few = len(runs) < policy.min_runs, f"{len(runs)} of {policy.min_runs} runs seen"
        if is_few and not is_killed:
            return replace(none, reason=few)
        choice = advice.choice
        action, reason = _change(advice, policy.min_saving_percent)
        if action == "resize" and is_few and not choice.has_more_memory:
            action, reason = "none", few
        if action == "none":
            if not choice.is_fargate:
                return replace(none, reason=reason, size=choice.size)
            raised = self._with_raised_limit(replace(none, reason=reason))
            if killed_limit is None or raised.action == "resize":
                return raised
            reason = killed_limit
        # Few runs do not show that fewer vCPUs are enough, and after a revert these may be what has
        # failed.
        chosen = (
            _keeping_vcpu(advice)
            if is_few or self.revision.reverted_from is not None
            else choice.chosen
        )
        found = replace(none, action="resize", reason=reason, size=choice.size)
        if chosen is None:
            return found
        usd = usd_per_month(
            chosen.usd_saved_at((chosen.factor or SAME_DURATION).max), advice.evidence
        )
        return replace(
            found,
            size=TaskSize(
                vcpu=as_number(chosen.size.vcpu), memory_mb=as_number(chosen.size.memory_mb)
            ),
            saving_usd_per_month=usd,
        )


def _change(advice: Advice, min_saving_percent: float) -> tuple[ResizeAction, str]:
    """Whether the recommended size is a reason to change, and the reason."""
    choice, fits = (
        advice.choice,
        "the size fits" if advice.evidence.outcomes.has_success else "no run has succeeded",
    )
    if not choice.is_fargate:
        return "none", "its runs are not on Fargate, where the size is a reservation"
    if choice.has_more_memory or (choice.size.vcpu or 0) > (choice.current.vcpu or math.inf):
        return ("none", fits) if advice.risk is None else ("resize", advice.risk)
    if not (choice.changes and advice.evidence.outcomes.has_success):
        return "none", fits
    saving_percent = choice.saving_percent
    shown = "an unknown part" if saving_percent is None else format_percent(saving_percent)
    is_enough = saving_percent is not None and saving_percent >= min_saving_percent
    return (
        ("resize", f"saves {shown}")
        if is_enough
        else ("none", f"the recommended size saves only {shown}")
    )


def _failure_of(
    own: Sequence[RunFacts], before: Sequence[RunFacts], max_slowdown_percent: float
) -> str:
    """Why the new size is too small; empty if nothing shows it."""
    if _killed(own):
        return f"{format_count(len(_killed(own)), 'run')} ran out of memory"
    then_ms, now_ms = _durations_ms(before), _durations_ms(own)
    if len(own) >= _MIN_RUNS_OF_DURATION and len(then_ms) > 1 and now_ms:
        slowest_ms = quantiles(then_ms, n=10, method="inclusive")[-1] * (
            1 + max_slowdown_percent / 100
        )
        if median(now_ms) > slowest_ms:
            return (
                f"runs take {format_percent(round(100 * (median(now_ms) / median(then_ms) - 1)))} "
                "longer"
            )
    # Without enough runs before, it is not known what is usual: most runs have to fail.
    is_known = len(before) >= _MIN_RUNS_TO_KEEP
    least_share = 2 * len(_failed(before)) / len(before) + 0.1 if is_known else 0.5
    if len(_failed(own)) < _MIN_FAILURES or len(_failed(own)) / len(own) < least_share:
        return ""
    failed = f"{len(_failed(own))} of {format_count(len(own), 'run')} failed"
    return f"{failed}, which was rarer before" if is_known else failed


def _keeping_vcpu(advice: Advice) -> SizeOption | None:
    """The recommended size, which with more memory has no fewer vCPUs than now."""
    choice, vcpu = advice.choice, advice.choice.current.vcpu or 0
    if not choice.has_more_memory or (choice.size.vcpu or 0) >= vcpu:
        return choice.chosen
    return next(
        (one for one in choice.options if one.acceptable and one.size.vcpu >= vcpu), choice.chosen
    )


def _own_runs(runs: Sequence[RunFacts], revision: SizedRevision) -> Sequence[RunFacts]:
    """The runs of the revision; after a change of the size, also of those before it with its tag
    and its size.
    """
    newest = [run for run in runs if revision.revision in (None, run.record.revision)]
    change = revision.resized_from or revision.reverted_from
    if change is None or not newest:
        return newest
    size = size_of(newest[-1].record)
    return [run for run in runs if _is_after(run, change) and size_of(run.record) == size]


def _is_after(run: RunFacts, change: SizeBefore) -> bool:
    """Whether the run's revision is later than the one before the change."""
    number = run.record.revision or ""
    return number.isdecimal() and int(number) > int(change.revision)


def _was_killed_at(run: RunFacts, size: TaskSize) -> bool:
    """Whether a run ran out of memory with at least this size's."""
    killed_at_mb = oom_size_mb(run.record)
    return bool(run.record.likely_out_of_memory) and (
        killed_at_mb is None or killed_at_mb >= (size.memory_mb or 0)
    )


def _killed(runs: Sequence[RunFacts]) -> list[RunFacts]:
    return [run for run in runs if run.record.likely_out_of_memory]


def _failed(runs: Sequence[RunFacts]) -> list[RunFacts]:
    """The runs that failed otherwise: a heap that follows the limit ends with an exit code, not
    with a kill.
    """
    return [
        run
        for run in runs
        if run.record.status == "failure" and not run.record.likely_out_of_memory
    ]


def _durations_ms(runs: Sequence[RunFacts]) -> list[float]:
    """The durations of the successes. Nothing can be compared with a duration of 0."""
    successes = (run.record.metrics.duration_ms for run in runs if run.record.status == "success")
    return [duration_ms for duration_ms in successes if duration_ms]
