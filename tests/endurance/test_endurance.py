"""Long runs: nothing of the monitor grows. Run by ``make endurance``.

The hour is real; ``ENDURANCE_SECONDS`` makes it shorter or longer.
"""

import os
import time
from pathlib import Path

import pytest

from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import StatsReading
from tests.integration.sidecar import Sidecar
from tests.monitor_world import PlayedMonitor
from tools.moto_server import fake_aws
from tools.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.endurance

MIB = 2**20
DAY_SECONDS = 24 * 3600
_LOOK_EVERY_SECONDS = 5


def state_of(pid: int) -> tuple[int, int, int]:
    """The resident bytes, threads and descriptors of a process."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return int(fields["VmRSS"].split()[0]) * 1024, int(fields["Threads"]), descriptors


@pytest.mark.timeout(1800)
def test_a_month_leaves_the_monitors_memory_as_it_was() -> None:
    """30 days at a sample each 10 s, with varying memory and an endpoint that fails now and
    then, in simulated time.
    """
    days = 30
    fakes = PlayedMonitor(
        batch_ends=days * DAY_SECONDS + 5.0, interval_seconds=10.0, checkpoint_seconds=3600.0
    )
    fakes.stop.max_simulated_seconds = (days + 1) * DAY_SECONDS
    fakes.memory_mib = lambda at: 100 + int(at) % 397
    rss_bytes: dict[int, int] = {}

    def stats_at(at: float) -> StatsReading | Unavailable:
        day = int(at // DAY_SECONDS)
        if day not in rss_bytes:
            fakes.output.lines.clear()
            rss_bytes[day], _, _ = state_of(os.getpid())
        return (
            Unavailable("timed out", timed_out=True)
            if int(at) % 5000 == 0
            else fakes.usual_stats(at)
        )

    fakes.source.stats_at = stats_at
    record = fakes.run().report()
    assert record["metrics"]["cpuSeconds"] == days * DAY_SECONDS / 2
    assert record["sampling"]["samples"] > 0.99 * days * DAY_SECONDS / 10
    assert 60 < len(record["series"]["memoryUsedMB"]) <= 120
    assert rss_bytes[days - 1] - rss_bytes[1] < MIB


def test_an_hour_at_20_samples_a_second_leaves_resources_as_they_were(
    tmp_path: Path,
) -> None:
    seconds = float(os.environ.get("ENDURANCE_SECONDS", "3600"))
    with (
        fake_aws() as aws,
        (tmp_path / "out").open("wb") as output,
        Sidecar(
            aws.environment(),
            output=output,
            INTERVAL_SECONDS="0.05",
            CHECKPOINT_SECONDS="30",
            CONTAINER="batch",
            # A warning at the start: the first line of the log imports structlog.
            REPORT_STREAM="?",
        ) as sidecar,
    ):
        sidecar.wait_for_samples()
        began = time.monotonic()
        states = []
        while time.monotonic() - began < seconds:
            states.append(state_of(sidecar.process.pid))
            time.sleep(_LOOK_EVERY_SECONDS)  # real time is what this test is about
        reads = sidecar.task.stats_reads
        sidecar.end_batch()
        sidecar.process.wait(LIMIT_SECONDS)
    settled = states[len(states) // 10 :]
    assert len({one[1:] for one in settled}) == 1
    assert settled[-1][0] - settled[0][0] < MIB
    assert reads > 0.9 * seconds * 20
