"""Precision and recall of the notices over generated nights with injected faults.

A :class:`Course` has a value for each second of a run: CPU time, bytes and memory of the program
itself. Its readings come every second (EC2) or every ten seconds (Fargate), have noise of the
network (ARP, keepalives, on Fargate the monitor's own lines), and can have gaps. The programs know
nothing of the detectors. A notice is right if the run has the fault that it names. The same seed
gives the same nights.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random

import pytest
from msgspec import Struct

from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.run_notices import RunNotices
from profiler.core.optional_math import sum_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.container_sample import ContainerSample

MIB = 2**20
EC2_PERIOD, FARGATE_PERIOD = 1, 10
_LINE_BYTES = (
    3_000,
    5_500,
)  # with TLS; on Fargate, log lines leave through the task's own interface
_KEEPALIVE_SECONDS = 75
_KEEPALIVE_BYTES = 132
_ARP_BYTES, _ARP_RATE = 60, 0.02


class Point(Struct, frozen=True):
    """One reading: the batch's counters, and the task's ephemeral storage (Fargate only)."""

    at_seconds: int
    sample: ContainerSample
    disk_used_mb: int | None


class Course:
    """A run, second by second.

    Methods append to it; ``memory_mb`` and ``disk_mb`` are the current values.
    """

    def __init__(self, rng: Random, memory_limit_mb: int, disk_size_mb: int) -> None:
        self.rng = rng
        self.memory_limit_mb = memory_limit_mb
        self.disk_size_mb = disk_size_mb
        self.memory_mb = rng.uniform(0.03, 0.15) * memory_limit_mb
        self.disk_mb = rng.uniform(1_500, 3_000)
        self.cpu_ns, self.network, self.block = array("q", [0]), array("q", [0]), array("q", [0])
        self.memory, self.disk = array("d", [self.memory_mb]), array("d", [self.disk_mb])
        self.restarts: list[int] = []

    @property
    def seconds(self) -> int:
        return len(self.cpu_ns) - 1

    def add(self, cpu_ms: float = 0, network: float = 0, block: float = 0) -> None:
        """One more second, with the current memory and disk."""
        self.cpu_ns.append(self.cpu_ns[-1] + round(cpu_ms * 1e6))
        self.network.append(self.network[-1] + round(network))
        self.block.append(self.block[-1] + round(block))
        self.memory.append(self.memory_mb)
        self.disk.append(self.disk_mb)

    def work(self, seconds: int) -> None:
        for _ in range(seconds):
            self.add(
                self.rng.uniform(50, 900), self.rng.uniform(0, 4e6), self.rng.choice((0, 0, 2e5))
            )


Program = Callable[[Course], None]


class Batch(Struct, frozen=True, kw_only=True):
    """A generated run, and how it is measured. ``fault`` is what is wrong with it.

    ``gaps`` are seconds without readings, by their first second. ``expected_seconds`` is the
    setting of the family.
    """

    name: str
    fault: str | None
    course: Course
    is_fargate: bool
    gaps: Mapping[int, int]
    has_no_network: bool
    expected_seconds: int | None

    def points(self, prints: Callable[[int], bool]) -> Iterator[Point]:
        """The readings, except in the gaps.

        ``prints`` returns whether the monitor prints a line in this second.
        """
        course, period = self.course, FARGATE_PERIOD if self.is_fargate else EC2_PERIOD
        rng, noise, gap_until = Random(course.rng.random()), 0, 0
        restarts, before = sorted(course.restarts), (0, 0)
        for second in range(1, course.seconds + 1):
            noise += _ARP_BYTES * (rng.random() < _ARP_RATE) + _KEEPALIVE_BYTES * (
                second % _KEEPALIVE_SECONDS == 0
            )
            if prints(second) and self.is_fargate:
                noise += rng.randint(*_LINE_BYTES)
            if restarts and second >= restarts[0]:
                restarts.pop(0)
                before = (course.cpu_ns[second - 1], course.block[second - 1])
            gap_until = max(gap_until, second + self.gaps.get(second, 0))
            if second % period or second < gap_until:
                continue
            network = None if self.has_no_network else course.network[second] + noise
            sample = ContainerSample(
                read_ns=second * NS_PER_SECOND,
                cpu_ns=course.cpu_ns[second] - before[0],
                memory_used_bytes=round(course.memory[second] * MIB),
                network_rx_bytes=None if network is None else network // 3 * 2,
                network_tx_bytes=None if network is None else network // 3,
                block_read_bytes=course.block[second] - before[1],
                block_write_bytes=0,
            )
            yield Point(second, sample, round(course.disk[second]) if self.is_fargate else None)


def _etl(course: Course) -> None:
    """Extract, transform, wait for a commit of the database, load; some rounds."""
    rng = course.rng
    for _ in range(rng.randint(2, 5)):
        for _ in range(rng.randint(120, 900)):
            course.memory_mb = min(
                course.memory_mb + rng.uniform(0, 0.4), course.memory_limit_mb * 0.6
            )
            course.add(rng.uniform(20, 500), rng.uniform(2e5, 4e7), rng.choice((0, 5e6)))
        course.memory_mb = min(
            course.memory_mb * rng.uniform(1.05, 1.8), course.memory_limit_mb * 0.7
        )
        for _ in range(rng.randint(60, 900)):
            course.add(rng.uniform(700, 1900), 0, rng.choice((0, 0, 1e6)))
        for _ in range(rng.randint(10, 480)):  # the database computes; nothing is sent
            course.add()
        course.memory_mb *= rng.uniform(0.5, 0.9)
        course.work(rng.randint(60, 600))


def _poll(
    cpu_ms: tuple[float, float], sent: tuple[float, float], periods: tuple[int, ...]
) -> Program:
    """Wait for another system for 35 to 120 minutes: a request, a pause, a request."""

    def program(course: Course) -> None:
        rng = course.rng
        course.work(rng.randint(30, 300))
        period = rng.choice(periods)
        for second in range(rng.randint(35 * 60, 120 * 60)):
            if second % period:
                course.add()
            else:
                course.add(rng.uniform(*cpu_ms), rng.uniform(*sent))
        course.work(rng.randint(30, 300))

    return program


def _sleep(minutes: tuple[int, int]) -> Program:
    def program(course: Course) -> None:
        for _ in range(course.rng.randint(1, 3)):
            course.work(course.rng.randint(60, 600))
            for _ in range(course.rng.randint(minutes[0] * 60, minutes[1] * 60)):
                course.add()
        course.work(course.rng.randint(30, 120))

    return program


def _sawtooth(course: Course) -> None:
    """A heap that a collector empties: periods of 5 s to 25 min, tops of 60 to 90 % of the
    limit.
    """
    rng = course.rng
    period = rng.choice((5, 20, 60, 150, 400, 900, 1500))
    low, top = (
        rng.uniform(0.1, 0.4) * course.memory_limit_mb,
        rng.uniform(0.6, 0.9) * course.memory_limit_mb,
    )
    until, begin = course.seconds + rng.randint(40 * 60, 100 * 60), course.seconds
    for second in range(begin, until):
        part = ((second - begin) % period) / period
        course.memory_mb = low + (top - low) * part + rng.gauss(0, 0.005 * course.memory_limit_mb)
        course.add(rng.uniform(300, 900), rng.uniform(0, 2e6))


def _plateau(course: Course) -> None:
    """Loads quickly, then keeps 72 to 96 % of the memory."""
    rng = course.rng
    level, loading = rng.uniform(0.72, 0.96) * course.memory_limit_mb, rng.randint(30, 600)
    begin = course.memory_mb
    for second in range(rng.randint(40 * 60, 100 * 60)):
        course.memory_mb = begin + (level - begin) * min(second / loading, 1) + rng.gauss(0, 3)
        course.add(rng.uniform(300, 900), rng.uniform(0, 2e6))


def _staircase(course: Course) -> None:
    """Each part of the work keeps a little more; the last step ends below the limit."""
    rng = course.rng
    steps, length = rng.randint(4, 9), rng.randint(240, 900)
    begin, top = course.memory_mb, rng.uniform(0.6, 0.9) * course.memory_limit_mb
    for second in range(steps * length):
        course.memory_mb = begin + (top - begin) * (second // length + 1) / steps + rng.gauss(0, 2)
        course.add(rng.uniform(300, 900), rng.uniform(0, 2e6))


def _load_and_stop(course: Course) -> None:
    """Loads evenly for 30 to 60 minutes up to 80 to 93 % of the memory, and then computes."""
    rng = course.rng
    loading, level = rng.randint(30 * 60, 60 * 60), rng.uniform(0.8, 0.93) * course.memory_limit_mb
    begin = course.memory_mb
    for second in range(loading + rng.randint(20 * 60, 60 * 60)):
        course.memory_mb = begin + (level - begin) * min(second / loading, 1) + rng.gauss(0, 2)
        course.add(rng.uniform(300, 900), rng.uniform(0, 2e6))


def _slow_leak(course: Course) -> None:
    """Grows without pause, and ends with 75 to 95 % of the memory, more than an hour away from
    the limit.
    """
    rng = course.rng
    length, end = rng.randint(60 * 60, 180 * 60), rng.uniform(0.75, 0.95) * course.memory_limit_mb
    begin = end - (course.memory_limit_mb - end) * length / rng.uniform(3600, 7200)
    for second in range(length):
        course.memory_mb = max(begin + (end - begin) * second / length, 0.05 * end) + rng.gauss(
            0, 3
        )
        course.add(rng.uniform(100, 900), rng.uniform(0, 2e6))


def _disk_cleaned(course: Course) -> None:
    """Writes temporary files up to 60 to 85 % of the disk and removes them, again and again."""
    rng = course.rng
    top, period, begin = (
        rng.uniform(0.6, 0.85) * course.disk_size_mb,
        rng.randint(300, 1500),
        course.disk_mb,
    )
    for second in range(rng.randint(40 * 60, 90 * 60)):
        course.disk_mb = begin + (top - begin) * (second % period) / period
        course.add(rng.uniform(100, 900), 0, (top - begin) / period * MIB)
    course.disk_mb = begin


def _disk_plateau(course: Course) -> None:
    """Unpacks a large input, and then reads it."""
    rng = course.rng
    level, loading, begin = (
        rng.uniform(0.6, 0.92) * course.disk_size_mb,
        rng.randint(200, 900),
        course.disk_mb,
    )
    for second in range(rng.randint(40 * 60, 90 * 60)):
        course.disk_mb = begin + (level - begin) * min(second / loading, 1)
        course.add(rng.uniform(100, 900), 0, 5e6)


def _hang(
    minutes: tuple[int, int], idle_cpu_ms: tuple[float, float] = (0, 0), heartbeat: int = 0
) -> Program:
    """Work, and then nothing more: of Python 0 ms, of a JVM 1 to 3 ms a second; perhaps a
    metrics thread.
    """

    def program(course: Course) -> None:
        rng = course.rng
        course.work(rng.randint(300, 2400))
        for second in range(rng.randint(minutes[0] * 60, minutes[1] * 60)):
            course.add(rng.uniform(*idle_cpu_ms), heartbeat * (second % 60 == 30))

    return program


def _leak(minutes: tuple[float, float], teeth: float = 0, power: float = 1) -> Program:
    """Grow to the limit, with noise, perhaps with the teeth of a collector, or faster and
    faster.
    """

    def program(course: Course) -> None:
        rng = course.rng
        if minutes[0] >= 20:
            course.work(rng.randint(60, 600))
        begin, length = course.memory_mb, rng.uniform(minutes[0] * 60, minutes[1] * 60)
        second, noise = 0, 0.002 * course.memory_limit_mb
        while course.memory_mb < course.memory_limit_mb:
            growth = (second / length) ** power
            tooth = teeth * course.memory_limit_mb * (second % 40) / 40
            course.memory_mb = min(
                begin + (course.memory_limit_mb - begin) * growth + tooth + rng.gauss(0, noise),
                course.memory_limit_mb,
            )
            course.add(rng.uniform(100, 900), rng.uniform(0, 2e6))
            second += 1

    return program


def _jump(course: Course) -> None:
    """An allocation of seconds that no notice reports."""
    course.work(course.rng.randint(1500, 4800))
    begin = course.memory_mb
    for second in range(1, 16):
        course.memory_mb = begin + (course.memory_limit_mb - begin) * second / 15
        course.add(900, 0)


def _fill_disk(*, in_parts: bool) -> Program:
    """Fill the disk in 30 to 100 minutes, evenly or file by file."""

    def program(course: Course) -> None:
        rng = course.rng
        begin, length, part = (
            course.disk_mb,
            rng.randint(30 * 60, 100 * 60),
            rng.randint(60, 240) if in_parts else 1,
        )
        for second in range(length):
            course.disk_mb = begin + (course.disk_size_mb - begin) * min(
                (second // part + 1) * part / length, 1
            )
            course.add(rng.uniform(100, 900), 0, 5e6)

    return program


# The batches without a fault, with their weight. A poll's numbers are its CPU time, its bytes and
# its period.
HEALTHY: dict[str, tuple[float, Program]] = {
    "ETL": (8, _etl),
    "HTTP poll, keep-alive": (2, _poll((2, 20), (700, 3_000), (1, 2, 5, 10, 30, 60, 300))),
    "HTTP poll, new TLS connection": (2, _poll((5, 30), (5_000, 9_000), (1, 5, 15, 60, 300))),
    "database poll": (2, _poll((1, 5), (300, 1_500), (1, 2, 5, 10, 30, 60))),
    "SQS long poll": (1, _poll((5, 15), (2_000, 3_200), (20,))),
    "file poll on EFS": (1, _poll((1, 3), (350, 500), (5, 10, 60))),
    "file poll without I/O": (0.5, _poll((1, 3), (0, 0), (5, 10, 60))),
    "sleep below 30 minutes": (1, _sleep((5, 28))),
    "sleep above 30 minutes": (0.5, _sleep((35, 70))),
    "sawtooth memory": (3, _sawtooth),
    "memory plateau": (2, _plateau),
    "memory staircase": (2, _staircase),
    "load, then plateau": (1, _load_and_stop),
    "slow leak, no kill": (1, _slow_leak),
    "lock of below 25 minutes": (1, _hang((5, 25))),
    "disk cleaned": (1, _disk_cleaned),
    "disk plateau": (1, _disk_plateau),
}
# The faults: the notice that they should raise (None: no notice can report them), and the program.
FAULTS: dict[str, tuple[str | None, Program]] = {
    "deadlock": ("stuck", _hang((40, 150))),
    "hanging connection": ("stuck", _hang((40, 150), (0, 0.05))),
    "lost lock, JVM": ("stuck", _hang((40, 150), (1, 3))),
    "hang beside a metrics thread": ("stuck", _hang((40, 150), (0, 0.3), 500)),
    "leak": ("memory", _leak((30, 150))),
    "leak below a collector": ("memory", _leak((30, 150), teeth=0.06)),
    "leak that accelerates": ("memory", _leak((40, 150), power=2)),
    "disk filled evenly": ("disk", _fill_disk(in_parts=False)),
    "disk filled file by file": ("disk", _fill_disk(in_parts=True)),
    "three times as long": ("overdue", _etl),
    "leak within 15 minutes": (None, _leak((4, 15))),
    "jump to the limit": (None, _jump),
}
SILENT_POLLS = ("file poll without I/O", "sleep above 30 minutes")
POLLS_WITH_IO = tuple(name for name in HEALTHY if "poll" in name and name not in SILENT_POLLS)


def night(seed: int, batches: int = 24, faults: int = 6) -> Iterator[Batch]:
    """The batches of one night: the same for the same seed."""
    rng = Random(seed)
    names, weights = list(HEALTHY), [weight for weight, _ in HEALTHY.values()]
    for name in rng.choices(names, weights, k=batches - faults):
        yield _batch(Random(rng.random()), name, HEALTHY[name][1], None)
    # Over the nights, each fault comes about as often.
    for number in range(faults):
        name = list(FAULTS)[(seed * faults + number) % len(FAULTS)]
        yield _batch(Random(rng.random()), name, FAULTS[name][1], name)


def _batch(rng: Random, name: str, program: Program, fault: str | None) -> Batch:
    is_fargate = "disk" in name or rng.random() < 0.75
    course = Course(
        rng, rng.choice((512, 1024, 2048, 4096, 8192, 16384)), rng.choice((20, 21, 50, 100)) * 1024
    )
    expected_seconds = None
    if fault == "three times as long":
        while course.seconds < 1800:
            program(course)
        expected_seconds = course.seconds
        while course.seconds < 3 * expected_seconds:
            program(course)
    else:
        program(course)
        if fault is None:
            expected_seconds = round(course.seconds * rng.uniform(1.2, 2))
    gaps = {}
    if rng.random() < 0.25 and fault is None and course.seconds > 900:
        # The endpoint does not answer; a quarter of the gaps are longer than the limit of a stuck
        # batch.
        length = rng.randint(2200, 3000) if rng.random() < 0.25 else rng.randint(5, 1200)
        gaps[rng.randint(300, course.seconds)] = length
    if rng.random() < 0.1 and fault is None:
        course.restarts.append(rng.randint(60, course.seconds))
    return Batch(
        name=name,
        fault=fault,
        course=course,
        is_fargate=is_fargate,
        gaps=gaps,
        has_no_network=fault is None and rng.random() < 0.05,
        expected_seconds=expected_seconds,
    )


_CHECKPOINT_SECONDS = 60


Outcome = tuple[Batch, Mapping[str, int]]
"""A run and the notices that it got, with the second of each."""


def watch(batch: Batch) -> Outcome:
    """Run the detectors over a batch's readings, as the monitor does.

    On Fargate, its lines pass the same network.
    """
    notices = RunNotices(0, expected_seconds=batch.expected_seconds)
    is_fargate, own_line_ns = batch.is_fargate, None

    def prints(second: int) -> bool:
        nonlocal own_line_ns
        now_ns = second * NS_PER_SECOND
        if second % _CHECKPOINT_SECONDS or (is_fargate and notices.wants_silence(now_ns)):
            return False
        own_line_ns = now_ns if is_fargate else None
        return True

    found: dict[str, int] = {}
    for point in batch.points(prints):
        reading = _reading(point, batch, own_line_ns)
        for finding in (*notices.add_reading(reading), *notices.find_if_overdue(reading.at_ns)):
            found.setdefault(finding.kind, point.at_seconds)
    return batch, found


def _reading(point: Point, batch: Batch, own_line_ns: int | None) -> NoticeReading:
    sample = point.sample
    return NoticeReading(
        at_ns=sample.read_ns,
        cpu_ns=sample.cpu_ns,
        network_bytes=sum_known(sample.network_rx_bytes, sample.network_tx_bytes),
        block_bytes=sum_known(sample.block_read_bytes, sample.block_write_bytes),
        memory_used_bytes=sample.memory_used_bytes,
        memory_size_bytes=batch.course.memory_limit_mb * MIB,
        disk_used_mb=point.disk_used_mb,
        disk_size_mb=batch.course.disk_size_mb,
        own_line_ns=own_line_ns,
    )


def expected_kind(batch: Batch) -> str | None:
    """The notice that the run should get."""
    return None if batch.fault is None else FAULTS[batch.fault][0]


def precision_and_recall(kind: str, outcomes: Iterable[Outcome]) -> tuple[float, float]:
    """The share of right notices of a kind in its notices and in its faults, in percent.

    Batches that did nothing on purpose do not count.
    """
    judged = [one for one in outcomes if kind != "stuck" or one[0].name not in SILENT_POLLS]
    raised = [expected_kind(batch) == kind for batch, notices in judged if kind in notices]
    faults = sum(expected_kind(batch) == kind for batch, _ in judged)
    return 100 * sum(raised) / max(len(raised), 1), 100 * sum(raised) / max(faults, 1)


SEEDS = (3, 8)


def batches(seed: int) -> list[Batch]:
    """Eight batches without a fault, and one of half of the faults."""
    return list(night(seed, batches=8 + len(FAULTS) // 2, faults=len(FAULTS) // 2))


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [watch(batch) for seed in SEEDS for batch in batches(seed)]


def test_a_batch_that_polls_with_io_is_not_stuck(outcomes: list[Outcome]) -> None:
    found = ["stuck" in notices for batch, notices in outcomes if batch.name in POLLS_WITH_IO]
    assert set(found) == {False}


# A thread that sends metrics looks like a poll, and files that come minutes apart are steps.
@pytest.mark.parametrize(
    "fault",
    [
        name
        for name, (kind, _) in FAULTS.items()
        if kind and "metrics" not in name and "file by file" not in name
    ],
)
def test_a_fault_is_noticed(fault: str, outcomes: list[Outcome]) -> None:
    found = [expected_kind(batch) in notices for batch, notices in outcomes if batch.fault == fault]
    assert set(found) == {True}
    assert len(found) == 1


@pytest.mark.slow
def test_the_notices_of_thirty_nights() -> None:
    """A thread that sends metrics looks like a poll, and a straight rise may stop below the
    limit.
    """
    outcomes = [watch(batch) for seed in range(1, 31) for batch in night(seed)]
    assert not [
        one for one, notices in outcomes if one.name in POLLS_WITH_IO and "stuck" in notices
    ]
    least = {"stuck": (100, 75), "overdue": (100, 100), "memory": (64, 100), "disk": (82, 93)}
    for kind, (precision, recall) in least.items():
        found = precision_and_recall(kind, outcomes)
        assert found[0] >= precision, kind
        assert found[1] >= recall, kind
