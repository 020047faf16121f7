"""Which runs pass on their retry, over generated families whose memory is steady, grows, has two
sorts, or leaks.

A family's memory is known to the generator alone. Every event comes twice, and in a random order;
the runs go through the decision and the request of the retry, and the answers of AWS are those of
``FakeAws``. The same seed gives the same families.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.invocation import DeliveryError
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from tests.fake_search import AnsweringSearch
from tests.memory_retries import KILLED, RetryAccount, ended, need_of
from tests.simulation.killed_runs import ENDLESS_MB, SHAPES, Run

_RUNS = 60
_FAMILIES, _FEW_FAMILIES = 40, len(SHAPES)
_MAX_MB = 61_440


def task_of(
    run: Run, size: Size, task_id: str, started_by: str = "chronos-schedule/nightly"
) -> EndedRun:
    """The end of a run at a size."""
    is_killed = run.need_mb > size.memory_mb
    reason, code = (KILLED, 137) if is_killed else (None, run.exit_code)
    return ended(
        taskArn=f"arn:aws:ecs:us-west-2:111122223333:task/jobs/{task_id}",
        startedBy=started_by,
        containers=[{"name": "batch", "exitCode": code, "reason": reason}],
        cpu=str(round(size.vcpu * 1024)),
        memory=str(round(size.memory_mb)),
    )


def family(shape: Callable[[Random, float], Iterator[Run]], seed: int) -> Counter[str]:
    """Run a family, and count its killed runs, and those that pass on their retry."""
    rng, counts = Random(f"{shape.__name__} {seed}"), Counter[str]()
    size = rng.choice([one for one in LEGAL_SIZES if one.memory_mb <= _MAX_MB / 4])
    search = AnsweringSearch()
    fakes = RetryAccount(search)
    if rng.random() < 0.5:
        fakes.table = None  # without the table, the token alone guards
    runs, peak_mb = shape(rng, size.memory_mb), 0.0
    for number in range(_RUNS):
        run, task_id = next(runs), f"{seed:08x}{number:024x}"
        is_killed = run.need_mb > size.memory_mb
        search.answer = need_of(peak_mb)
        before = len(fakes.aws.tasks)
        first = task_of(run, size, task_id)
        for event in rng.sample(
            [first, first, task_of(Run(need_mb=1, exit_code=1), size, "f" * 32)], 3
        ):
            if rng.random() < 0.2:
                operation = rng.choice(["ListSchedules", "GetSchedule", "RunTask"])
                fakes.aws.errors[operation] = [(400, "ThrottlingException", "Rate exceeded")]
            try:
                fakes.handle(event)
            except DeliveryError:
                fakes.handle(event)
            fakes.aws.errors.clear()
        assert len(fakes.aws.tasks) - before == is_killed, (
            "killed runs are started once, and no others"
        )
        if not is_killed:
            peak_mb = max(peak_mb, run.need_mb) if run.exit_code == 0 else peak_mb
            continue
        request, _ = list(fakes.aws.tasks.values())[-1]
        passed = retry_passes(fakes, run, request, task_id)
        counts["killed"] += run.need_mb != ENDLESS_MB
        counts["endless"] += run.need_mb == ENDLESS_MB
        counts["passed"] += passed
        assert not (passed and run.need_mb == ENDLESS_MB)
        peak_mb = max(peak_mb, run.need_mb) if passed and run.exit_code == 0 else peak_mb
    return counts


def retry_passes(fakes: RetryAccount, run: Run, request: dict[str, Any], task_id: str) -> bool:
    """Run the retry as it was requested, and return whether its memory suffices.

    Its own end starts nothing.
    """
    size = Size(int(request["overrides"]["cpu"]) / 1024, int(request["overrides"]["memory"]))
    assert size in LEGAL_SIZES
    count = len(fakes.aws.tasks)
    for _ in range(2):
        fakes.handle(task_of(run, size, f"e{task_id[1:]}", request["startedBy"]))
    assert len(fakes.aws.tasks) == count
    return run.need_mb <= size.memory_mb


@pytest.mark.parametrize(
    "families", [_FEW_FAMILIES, pytest.param(_FAMILIES, marks=pytest.mark.slow)]
)
def test_nine_of_ten_killed_runs_pass_on_their_retry(families: int) -> None:
    totals = Counter[str]()
    for shape in SHAPES:
        for seed in range(families // len(SHAPES)):
            counts = family(shape, seed)
            totals += counts + Counter(
                {f"{shape.__name__}: {name}": number for name, number in counts.items()}
            )
    assert totals["killed"] >= 2.5 * families, totals
    assert totals["passed"] >= 0.9 * totals["killed"], totals
    assert totals["endless"] >= families / 4, "they were started again once, too"
