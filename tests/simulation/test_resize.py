"""Eight weeks of forty families whose sizes are changed each week: what they cost, and what the changes cost."""

import random
from typing import Any

import pytest
from msgspec import Struct, field

from profiler.record.record_model import Report, TaskSize
from profiler.sizing.fargate_sizes import LEGAL_SIZES
from profiler.sizing.prices import REFERENCE_PRICES, PriceOverrides
from profiler.sizing.resize_policy import ResizePolicy, SizeBefore, SizedRevision, decide
from profiler.sizing.run_facts import facts_of
from tests.runs import report

WEEKS, DAYS, RUNS_A_DAY, FAMILIES = 8, 7, 3, 40


class Family(Struct):
    """A family with one container. One in ten needs three times as much memory every tenth day."""

    number: int
    need_mb: float
    vcpu: float
    size: TaskSize
    revision: int = 1
    resized_from: SizeBefore | None = None
    reverted_from: SizeBefore | None = None
    reports: list[Report] = field(default_factory=list)
    registrations: int = 0

    def run(self, day: int, at: int, rng: random.Random) -> None:
        need_mb = self.need_mb * rng.uniform(0.9, 1) * (3 if self.number % 10 == 0 and day % 10 == 9 else 1)
        size_mb = self.size.memory_mb or 0
        slower = max(self.vcpu / (self.size.vcpu or 1), 1)
        killed: dict[str, Any] = {"likely_out_of_memory": True, "status": "failure", "exit_code": 137}
        times = {"duration_ms": 590_000 * slower, "billed_duration_ms": 600_000 * slower}
        self.reports.append(
            report(
                day,
                peak_mb=min(need_mb, size_mb),
                p95=min(self.vcpu, self.size.vcpu or 0),
                size=(self.size.vcpu or 0, size_mb),
                metrics=times,
                task_id=f"{self.number}-{day}-{at}",
                revision=str(self.revision),
                **(killed if need_mb > size_mb else {}),
            )
        )

    def change(self) -> None:
        """What the command does each week."""
        revision = SizedRevision(
            revision=str(self.revision),
            size=self.size,
            resized_from=self.resized_from,
            reverted_from=self.reverted_from,
        )
        found = decide([facts_of(one) for one in self.reports], revision, ResizePolicy(), PriceOverrides())
        if found.action not in ("resize", "revert"):
            return
        before = SizeBefore(revision=str(self.revision), size=self.size)
        is_revert = found.action == "revert"
        self.resized_from, self.reverted_from = (None, before) if is_revert else (before, None)
        self.size = found.size or self.size
        self.revision += 1
        self.registrations += 1


@pytest.mark.slow
def test_the_cost_falls_without_a_see_saw() -> None:
    rng = random.Random(7)
    families = []
    for number in range(FAMILIES):
        need_mb, vcpu = rng.uniform(300, 3000), rng.choice([0.1, 0.2, 0.4, 0.8])
        fits = [one for one in LEGAL_SIZES if one.memory_mb >= 3.2 * need_mb and one.vcpu >= vcpu]
        size = rng.choice(fits[:6])
        families.append(Family(number, need_mb, vcpu, TaskSize(vcpu=size.vcpu, memory_mb=size.memory_mb)))
    usd = []
    for week in range(WEEKS):
        for day in range(week * DAYS, (week + 1) * DAYS):
            for family in families:
                for at in range(RUNS_A_DAY):
                    family.run(day, at, rng)
        usd.append(sum(week_usd(family) for family in families))
        for family in families:
            family.change()
    records = [one.record for family in families for one in family.reports]
    killed = sum(bool(record.likely_out_of_memory) for record in records) / len(records)
    registrations = [family.registrations for family in families]
    assert usd[-1] <= 0.7 * usd[0]
    assert killed <= 0.01
    assert sum(registrations) / FAMILIES <= 2.2
    assert max(registrations) <= 4


def week_usd(family: Family) -> float:
    """What the last week's runs cost."""
    total = 0.0
    for one in family.reports[-DAYS * RUNS_A_DAY :]:
        size = one.record.task_size or TaskSize()
        hours = (one.record.metrics.billed_duration_ms or 0) / 3_600_000
        total += hours * REFERENCE_PRICES.size_hour_usd(size.vcpu or 0, size.memory_mb or 0)
    return total
