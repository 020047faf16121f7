"""Families of runs with known needs, and the advice on them."""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

from hypothesis import strategies as st

from profiler.record.record_model import Metrics, Report, SlowdownBounds
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_collector import LAST_RUNS
from profiler.sizing.size_options import SizeOption
from tests.runs import checkpoint, evidence_of, report, slowdown

GB = 1024


def advice(
    reports: Iterable[Report], last: int = LAST_RUNS, on_fargate: str | None = None, **policy: Any
) -> Advice:
    return advise_on_size(
        evidence_of(reports, last=last, on_fargate=on_fargate),
        SizePolicy(**policy),
        PriceOverrides(),
    )


def size(reports: Iterable[Report], **policy: Any) -> tuple[float | None, float | None]:
    chosen = advice(reports, **policy).choice.size
    return chosen.vcpu, chosen.memory_mb


def reasons(*reports: Report, **policy: Any) -> str:
    return "\n".join(advice(reports, **policy).reasons)


def rows(reports: Iterable[Report], **options: Any) -> dict[tuple[float, float], SizeOption]:
    """The table of sizes."""
    return {
        (row.size.vcpu, row.size.memory_mb): row
        for row in advice(reports, **options).choice.options
    }


VCPUS = ("0.25", "0.5", "1", "2", "4", "8", "16")
# Both bounds of a run fall from each size to the next larger one.
slowdowns = st.lists(st.tuples(st.floats(1, 4), st.floats(1, 2)), min_size=7, max_size=7).map(
    lambda pairs: {
        name: SlowdownBounds(min=round(least, 3), max=round(most, 3))
        for name, least, most in zip(
            VCPUS,
            sorted((least for least, _ in pairs), reverse=True),
            sorted((least * more for least, more in pairs), reverse=True),
            strict=True,
        )
    }
)
needs = st.tuples(
    st.none() | st.floats(0.01, 130 * GB),
    st.none() | st.floats(0.001, 16),
    st.sampled_from(LEGAL_SIZES),
    st.booleans(),
    st.none() | slowdowns,
    st.floats(0, 100),
)
Need = tuple[float | None, float | None, Size, bool, Mapping[str, SlowdownBounds] | None, float]
families = st.lists(needs, min_size=1, max_size=8).filter(
    lambda found: any(peak is not None or p95 is not None for peak, p95, *_ in found)
)


def runs_of(found: Iterable[Need], launch_type: str = "FARGATE") -> list[Report]:
    return [
        report(
            number,
            peak_mb=None if peak_mb is None else min(peak_mb, given_size.memory_mb),
            p95=None if p95 is None else min(p95, given_size.vcpu),
            size=(given_size.vcpu, given_size.memory_mb),
            likely_out_of_memory=is_killed,
            launch_type=launch_type,
            metrics={"slowdown_at_vcpu": bounds, "vcpu_saturated_percent": saturated},
        )
        for number, (peak_mb, p95, given_size, is_killed, bounds, saturated) in enumerate(found)
    ]


def any_family(random: Random, name: str) -> Iterator[Report]:
    """Runs of one batch, which grows, is resized, killed, and not always measured."""
    launch_type = random.choice(["FARGATE", "FARGATE", "EC2", "LOCAL"])
    size = random.choice(LEGAL_SIZES[:60])
    peak_mb, growth = size.memory_mb * random.uniform(0.05, 1), random.choice([1, 1, 1.03])
    for number in range(random.choice([1, 2, 5, 9, LAST_RUNS + 3])):
        if random.random() < 0.05:
            size = random.choice(LEGAL_SIZES[:60])
        peak_mb *= growth
        is_killed = peak_mb > size.memory_mb or random.random() < 0.03
        p95 = size.vcpu * random.uniform(0.05, 1.1)
        seconds, pull_seconds = random.uniform(1, 900), random.uniform(5, 60)
        least = random.uniform(1, 2)
        metrics = {
            "duration_ms": round(1000 * seconds),
            "init_duration_ms": None if launch_type == "LOCAL" else round(1000 * pull_seconds),
            "billed_duration_ms": None
            if launch_type == "LOCAL"
            else 1000 * max(60, int(seconds + pull_seconds) + 1),
            "slowdown_at_vcpu": slowdown(
                **{f"v{size.vcpu / 2:g}".replace(".", "_"): (least, least * 1.2)}
            ),
            "vcpu_saturated_percent": random.uniform(0, 30),
        }
        made = report(
            number,
            family=name,
            task_id=f"{name}-{number}",
            launch_type=launch_type,
            peak_mb=None if random.random() < 0.05 else min(peak_mb, size.memory_mb),
            p95=None if random.random() < 0.05 else p95,
            size=None if launch_type == "LOCAL" else (size.vcpu, size.memory_mb),
            others={"side": Metrics(max_memory_used_mb=20)} if random.random() < 0.5 else None,
            status="failure" if is_killed else "success",
            exit_code=137 if is_killed else 0,
            likely_out_of_memory=is_killed,
            metrics={
                **metrics,
                **({"vcpu_size": 4, "memory_size_mb": 8192} if launch_type == "LOCAL" else {}),
            },
        )
        yield checkpoint(made) if random.random() < 0.05 else made
