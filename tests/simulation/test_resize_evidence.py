"""Eight weeks of families whose runs an act must not misread, each week with a decision on their
size.

What a run needs is known here only. A run that needs more than a size has is killed at it.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import Struct, field

from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, format_ms
from profiler.record.record_model import SlowdownBounds, TaskSize
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.prices import REFERENCE_PRICES
from profiler.sizing.resize_limits import ResizeDecision
from profiler.sizing.run_facts import RunFacts
from profiler.sizing.sized_revision import (
    FamilyCircumstances,
    SizeBefore,
    SizedRevision,
    TargetOverride,
)
from tests.fakes import START_NS
from tests.family_windows import decision_on
from tests.runs import report, reported_facts

WEEKS_BEFORE, WEEKS = 4, 8
WEEK_NS = 7 * NS_PER_DAY
KINDS = {
    "plain": 8,
    "quarter hour": 4,  # with one large run a night
    "month end": 4,
    "two schedules": 4,  # one overrides the size
    "retried": 4,  # started again with more after a kill
    "forged": 4,  # another team writes its runs, too
    "tight": 2,  # every 15 minutes, and 13 minutes long
}
ONCE_A_NIGHT = ("plain", "month end", "retried", "forged")


class Run(Struct, frozen=True, kw_only=True):
    """What a run needs, and how it is started."""

    began_ns: int
    need_mb: float
    minutes: float
    size: TaskSize | None = None
    is_confirmed: bool = True


class Family(Struct):
    """A family, its newest revision, and what was seen of it."""

    name: str
    kind: str
    need_mb: float
    vcpu: float
    revision: SizedRevision
    facts: list[RunFacts] = field(default_factory=list)
    registered: int = 0
    killed: int = 0
    foreseeable: int = 0
    usd: float = 0

    def runs_of_day(self, day: int, rng: random.Random) -> Iterator[Run]:
        day_ns = START_NS + day * NS_PER_DAY
        usual_mb = self.need_mb * rng.uniform(0.9, 1)
        if self.kind in ("quarter hour", "tight"):
            for number in range(96):
                is_large = self.kind == "quarter hour" and number == 8
                yield Run(
                    began_ns=day_ns + number * 15 * NS_PER_MINUTE,
                    need_mb=3300 if is_large else usual_mb,
                    minutes=13 if self.kind == "tight" else 4,
                )
            return
        is_month_end = self.kind == "month end" and day % 30 == 29
        for number in range(3):
            began_ns = day_ns + number * 480 * NS_PER_MINUTE
            is_large_night = self.kind == "retried" and day % 3 == 0 and number == 0
            need_mb = 3 * usual_mb if is_month_end or is_large_night else usual_mb
            yield Run(began_ns=began_ns, need_mb=need_mb, minutes=10)
            if self.kind == "two schedules":
                larger = TaskSize(vcpu=4, memory_mb=8192)
                yield Run(began_ns=began_ns + NS_PER_MINUTE, need_mb=1500, minutes=10, size=larger)
            if self.kind == "forged":
                forged_ns = began_ns + 2 * NS_PER_MINUTE
                forged_mb = rng.choice([10, 100_000])
                yield Run(began_ns=forged_ns, need_mb=forged_mb, minutes=10, is_confirmed=False)

    def start(self, run: Run, number: int) -> None:
        """Start the run; a retried one is started again with twice the memory."""
        size = run.size or self.revision.size
        is_killed = run.need_mb > (size.memory_mb or 0)
        if is_killed and run.is_confirmed:
            self.killed += 1
            # At a size that nobody chose by the window, nothing was foreseen.
            self.foreseeable += self.registered > 0 and self._was_seen(run)
        self._finish(run, size, f"{number}", is_killed=is_killed)
        if is_killed and self.kind == "retried":
            larger = TaskSize(vcpu=1, memory_mb=4 * (size.memory_mb or 0))
            self._finish(run, larger, f"{number}-retry", is_killed=False)

    def _was_seen(self, run: Run) -> bool:
        """Whether a run of the window needed as much."""
        since_ns = run.began_ns - 35 * NS_PER_DAY
        known_mb = [
            facts.needed_memory_mb or 0
            for facts in self.facts
            if facts.is_confirmed and facts.began_ns >= since_ns
        ]
        return max(known_mb, default=0) >= run.need_mb

    def _finish(self, run: Run, size: TaskSize, task: str, *, is_killed: bool) -> None:
        vcpu = size.vcpu or 0
        memory_mb = size.memory_mb or 0
        milliseconds = run.minutes * 60_000 * max(self.vcpu / vcpu, 1)
        if run.is_confirmed:
            hour_usd = REFERENCE_PRICES.size_hour_price_usd(vcpu, memory_mb)
            self.usd += milliseconds / 3_600_000 * hour_usd
        ending: dict[str, Any] = {}
        if is_killed:
            ending = {"likely_out_of_memory": True, "status": "failure", "exit_code": 137}
        made = report(
            peak_mb=min(run.need_mb, memory_mb),
            p95=min(self.vcpu, vcpu),
            size=(vcpu, memory_mb),
            metrics={
                "duration_ms": milliseconds,
                "billed_duration_ms": milliseconds,
                "slowdown_at_vcpu": _slowdowns(self.vcpu),
            },
            family=self.name,
            task_id=f"{self.name}-{run.began_ns}-{task}",
            revision=self.revision.revision,
            started_at=format_ms(run.began_ns),
            **ending,
        )
        self.facts.append(reported_facts(made, is_confirmed=run.is_confirmed))

    def circumstances(self) -> FamilyCircumstances:
        if self.kind in ("quarter hour", "tight"):
            return FamilyCircumstances(intervals_ms=dict.fromkeys(range(24), 15 * 60_000))
        if self.kind == "two schedules":
            override = TargetOverride(target="the schedule large", vcpu=4, memory_mb=8192)
            return FamilyCircumstances(overrides=(override,))
        return FamilyCircumstances()

    def resize(self, now_ns: int) -> ResizeDecision:
        """Decide, and register what was decided."""
        window = FamilyWindow(WindowSpan(now_ns=now_ns))
        for facts in self.facts:
            window.add_run(facts)
        window.add_newest_before_span()
        decision = decision_on(window, self.revision, self.circumstances())
        if decision.action not in ("resize", "revert") or decision.size is None:
            return decision
        present = self.revision
        before = SizeBefore(revision=present.revision or "", size=present.size)
        is_revert = decision.action == "revert"
        self.registered += 1
        self.revision = SizedRevision(
            revision=str(int(before.revision) + 1),
            size=decision.size,
            resized_from=None if is_revert else before,
            reverted_from=before if is_revert else present.reverted_from,
            registered_ns=now_ns,
        )
        return decision


def _slowdowns(needed_vcpu: float) -> dict[str, SlowdownBounds]:
    slowdowns = {}
    for vcpu in (0.25, 0.5, 1, 2):
        factor = needed_vcpu / vcpu
        if factor > 1:
            slowdowns[f"{vcpu:g}"] = SlowdownBounds(min=factor, max=1.05 * factor)
    return slowdowns


def family(name: str, kind: str, rng: random.Random) -> Family:
    need_mb = rng.uniform(300, 1200)
    vcpu = 1.0 if kind == "tight" else rng.choice([0.1, 0.2, 0.4])
    least_mb = 4096 if kind in ("quarter hour", "month end") else 3 * need_mb
    size = next(size for size in LEGAL_SIZES if size.vcpu >= 1 and size.memory_mb >= least_mb)
    if kind == "tight":
        size = next(size for size in LEGAL_SIZES if size.vcpu >= 2 and size.memory_mb >= least_mb)
    if kind == "retried":  # too small for the large nights
        size = Size(0.5, 1024)
        need_mb = rng.uniform(500, 700)
    known = TaskSize(vcpu=size.vcpu, memory_mb=size.memory_mb)
    return Family(
        name=name,
        kind=kind,
        need_mb=need_mb,
        vcpu=vcpu,
        revision=SizedRevision(revision="1", size=known),
    )


def week_of(families: list[Family], number: int, rng: random.Random) -> float:
    """A week of all runs; returns what they cost."""
    before_usd = sum(one.usd for one in families)
    for one in families:
        for day in range(7 * number, 7 * number + 7):
            for count, run in enumerate(one.runs_of_day(day, rng)):
                one.start(run, count)
    return sum(one.usd for one in families) - before_usd


@pytest.mark.parametrize(
    "kinds",
    [dict.fromkeys(ONCE_A_NIGHT, 1), pytest.param(KINDS, marks=pytest.mark.slow)],
    ids=["few", "all"],
)
def test_no_run_is_killed_that_the_window_could_have_foreseen_and_the_saving_stays(
    kinds: Mapping[str, int],
) -> None:
    rng = random.Random(7)
    families = []
    for kind, count in kinds.items():
        families += [family(f"{kind}-{number}", kind, rng) for number in range(count)]
    usd = []
    for number in range(WEEKS_BEFORE + WEEKS):
        usd.append(week_of(families, number, rng))
        if number >= WEEKS_BEFORE:
            for one in families:
                one.resize(START_NS + (number + 1) * WEEK_NS)
    killed = sum(one.killed for one in families)
    runs = sum(len(one.facts) for one in families)
    assert sum(one.foreseeable for one in families) == 0
    assert usd[-1] <= 0.75 * usd[0]
    assert killed <= 0.01 * runs
    assert sum(one.registered for one in families) <= 2.2 * len(families)
    assert max(one.registered for one in families) <= 4
    assert [one.registered for one in families if one.kind == "forged"] == [1] * kinds["forged"]
    for kind in kinds:
        resized = [one.registered for one in families if one.kind == kind]
        assert any(resized), f"{kind} is a control: it must be resized, too"
