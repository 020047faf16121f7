"""How often the stats of the batch are refreshed: asked until they have moved twice, or for so long."""

from profiler.clock import Clock
from profiler.doctor.finding import Finding, note, ok, problem
from profiler.sources import Unavailable
from profiler.sources.task import TaskSource
from profiler.times import NS_PER_SECOND

_TOPIC = "stats"
_STEP_SECONDS = 0.2
_MIN_REFRESHES = 2
_OK_SECONDS = 2.0


def refresh_finding(source: TaskSource, docker_id: str, clock: Clock, max_seconds: float) -> Finding:
    """The usual step of the stats' own time."""
    end_ns = clock.monotonic_ns() + round(max_seconds * NS_PER_SECOND)
    reads: list[int] = []
    reason = "they hold nothing of the batch"
    while len(reads) <= _MIN_REFRESHES:
        stats = source.stats()
        if isinstance(stats, Unavailable):
            reason = stats.reason
        elif docker_id in stats.samples and stats.samples[docker_id].read_ns not in reads:
            reads.append(stats.samples[docker_id].read_ns)
        if clock.monotonic_ns() >= end_ns:
            break
        clock.sleep(_STEP_SECONDS)
    if not reads:
        return problem(
            _TOPIC,
            f"There are no stats of the batch: {reason}.",
            "Start the batch; if it runs, look at the container agent's log on the instance.",
        )
    if len(reads) == 1:
        return note(_TOPIC, f"The stats did not move in {max_seconds:g} s; the report will be coarse.")
    seconds = (reads[-1] - reads[0]) / (len(reads) - 1) / NS_PER_SECOND
    text = f"The stats are refreshed every {seconds:.1f} s"
    if seconds <= _OK_SECONDS:
        return ok(_TOPIC, f"{text}.")
    return note(_TOPIC, f"{text}: a shorter peak of memory can be missed. Fargate refreshes them every 10 s.")
