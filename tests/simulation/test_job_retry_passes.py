"""Which jobs of AWS Batch pass on their retry, over the same generated families as tasks.

The jobs go through the decision and the request of the retry, with a double of Batch. Each event
comes twice, and Batch is sometimes busy.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest

from profiler.forwarder.invocation import DeliveryError
from profiler.sizing.fargate_sizes import LEGAL_SIZES
from tests.fake_batch import FakeBatch
from tests.retried_jobs import KILLED, RETRY_OF, Job, RetriedJobs, detail
from tests.simulation.killed_runs import ENDLESS_MB, SHAPES, Run

_RUNS = 60
_FAMILIES, _FEW_FAMILIES = 40, len(SHAPES)
_MAX_MB = 61_440


def definition(shape: Callable[[Random, float], Iterator[Run]], seed: int) -> Counter[str]:
    """Run the jobs of a definition, and count those that were killed, and that pass on the retry."""
    rng, counts = Random(f"{shape.__name__} {seed}"), Counter[str]()
    size = rng.choice([one for one in LEGAL_SIZES if one.memory_mb <= _MAX_MB / 4])
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("etl", size.vcpu, int(size.memory_mb))
        jobs = RetriedJobs(batch)
        for run, _ in zip(shape(rng, size.memory_mb), range(_RUNS), strict=False):
            job = batch.submit("orders", "nightly", "etl")
            is_killed = ends(batch, job, run)
            before = len(batch.jobs)
            tell_twice(jobs, job, rng)
            made = [*batch.jobs.values()][before:]
            assert len(made) == is_killed, "killed jobs are submitted once, and no others"
            if not is_killed:
                continue
            is_endless = run.need_mb == ENDLESS_MB
            counts["endless" if is_endless else "killed"] += 1
            (retry,) = made
            assert retry["tags"] == {RETRY_OF: job["jobId"]}
            counts["passed"] += not ends(batch, retry, run)
            tell_twice(jobs, retry, rng)
            assert len(batch.jobs) == before + 1, "a retry is not retried"
    return counts


def ends(batch: FakeBatch, job: Job, run: Run) -> bool:
    """Run the job; whether it was killed for memory."""
    is_killed = run.need_mb > (detail(job).memory_mb or 0)
    batch.begin(job)
    batch.now_ms += 60_000
    batch.end(job, 137 if is_killed else run.exit_code, KILLED if is_killed else None)
    return is_killed


def tell_twice(jobs: RetriedJobs, job: Job, rng: Random) -> None:
    """Deliver the event of its end twice; a delivery that failed, once more."""
    for _ in range(2):
        jobs.batch.throttled = int(rng.random() < 0.2)
        try:
            jobs.handle(job)
        except DeliveryError:
            jobs.batch.throttled = 0
            jobs.handle(job)
        jobs.batch.throttled = 0


@pytest.mark.parametrize(
    "families", [_FEW_FAMILIES, pytest.param(_FAMILIES, marks=pytest.mark.slow)]
)
def test_nine_of_ten_killed_jobs_pass_on_their_retry(families: int) -> None:
    totals = Counter[str]()
    for shape in SHAPES:
        for seed in range(families // len(SHAPES)):
            totals += definition(shape, seed)
    assert totals["killed"] >= 2.5 * families, totals
    assert totals["passed"] >= 0.9 * totals["killed"], totals
    assert totals["endless"] >= families / 4, "they were submitted again once, too"
