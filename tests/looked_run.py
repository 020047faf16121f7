"""A run whose looks are given one after the other, as its time account sees them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.record_assembly import with_activity
from profiler.aggregation.time_breakdown import TimeAccount
from profiler.aggregation.time_series import RunSeries
from profiler.readers.linux.cpu_pressure import CpuPressure
from profiler.readers.linux.look import ProcessSeen, ThreadSeen, ThreadsLook
from profiler.readers.linux.thread_counters import ThreadTimeGrowth
from profiler.readers.linux.wait_types import BlockedThread, Connection, Wait
from profiler.record.activity_model import TimeBreakdown
from profiler.record.record_model import NOT_SAMPLED, Container, Metrics, Record, Sampling
from tests.fakes import START_NS, seconds
from tests.values import present

KINDS = ("disk", "network", "sleep", "pipe", "lock", "child", "other")
PARTS = ("on_cpu", "waiting_for_cpu", *KINDS)

NETWORK = BlockedThread(wait=Wait("network", "10.0.3.9:5432"))
DISK = BlockedThread(wait=Wait("disk", "/data/orders"))
SLEEP = BlockedThread(wait=Wait("sleep"))
LOCK = BlockedThread(wait=Wait("lock"), helpers="threads")
FILE_LOCK = BlockedThread(wait=Wait("lock"))
CHILD = BlockedThread(wait=Wait("child"), helpers="children")
TIMED_FUTEX = BlockedThread(wait=Wait("sleep"), helpers="threads")
SHARED_LOCK = BlockedThread(wait=Wait("lock"), helpers="memory")
LISTENS = BlockedThread(wait=Wait("network"), may_be_idle=True)
CONNECTION = Connection("10.0.3.9:5432", received_bytes=7)
IDLE = BlockedThread(
    wait=Wait("network", CONNECTION.peer), may_be_idle=True, connections=(CONNECTION,)
)
POLL = replace(IDLE, has_timeout=True)
HIDDEN = BlockedThread(wait=Wait("other"), is_hidden=True)


def pipe_to(*pids: int) -> BlockedThread:
    return BlockedThread(wait=Wait("pipe"), helpers="pipe", helper_pids=frozenset(pids))


class Did(Struct, frozen=True):
    """What a thread did in a step, in seconds, and what it does at the look; None: it can run."""

    thread: int
    blocked: BlockedThread | None
    run: float = 0.0
    wait: float = 0.0
    process: int = 1
    came: tuple[bool | None, ...] = ()
    was_woken: bool = False
    timed_out: bool | None = False
    has_client: bool | None = None
    is_correction: bool = False
    came_before: float | None = None
    was_due: bool | None = None


class LookedRun:
    """A run of one process, or of several with their parents."""

    def __init__(
        self,
        parents: Mapping[int, int] | None = None,
        *,
        is_new: bool = True,
        interval: float = 1,
        cpus: int = 2,
        points: int = 0,
    ) -> None:
        self.account = TimeAccount(START_NS if is_new else None, seconds(interval))
        self.series = RunSeries(START_NS, seconds(interval), points) if points else None
        self.at = 0.0
        self.cpu = 0.0
        self._cpus = cpus
        self._unread_ns = 0
        self.parents = {1: 0} if parents is None else dict(parents)
        self._processes = {pid: ProcessSeen(parent, 0) for pid, parent in self.parents.items()}

    def look(
        self,
        *did: Did,
        length: float = 1,
        sees_calls: bool = True,
        ended: Sequence[int] = (),
        growth: Sequence[ThreadTimeGrowth] | None = (),
        pressure: CpuPressure | None = None,
        unread: float = 0,
        later: float = 0,
        has_total: bool = True,
        misses_child: bool = False,
        have_all_ended: bool = False,
        is_behind: bool = False,
        asked_share: float = 1.0,
        able_on_machine: int | None = None,
        readings: int = 1,
        part_ns: int | None = None,
    ) -> "LookedRun":
        """A look after a step, or after several ``readings``; a thread that is not mentioned has
        done nothing.

        ``unread`` ran in processes that nobody read, ``later`` in threads that are read in later
        looks. ``has_total``: their CPU time is read now.
        """
        self.at += length
        self.cpu += unread + sum(each.run for each in did)
        grown = [
            ThreadTimeGrowth(
                seconds(each.run),
                seconds(each.wait),
                thread=each.thread,
                process=each.process,
                span_ns=seconds(length),
            )
            for each in did
            if each.run or each.wait
        ]
        look = ThreadsLook(
            growth=None if growth is None else [*grown, *growth],
            seen=[
                ThreadSeen(
                    each.thread,
                    each.process,
                    each.blocked,
                    each.came,
                    each.was_woken,
                    each.timed_out,
                    each.has_client,
                    each.is_correction,
                    None if each.came_before is None else seconds(each.came_before),
                    each.was_due,
                )
                for each in did
            ],
            ended=ended,
            later_run_ns=seconds(later),
            processes=self._processes,
            sees_calls=sees_calls,
            misses_child=misses_child,
            have_all_ended=have_all_ended,
            is_behind=is_behind,
            asked_share=asked_share,
            able_on_machine=able_on_machine,
            pressure=pressure,
            cpus=self._cpus,
            readings=readings,
        )
        read_ns = START_NS + seconds(self.at)
        self.account.add_look(read_ns, look, self.series, part_ns)
        self._unread_ns += seconds(unread)
        if has_total:
            self.add_total()
        return self

    def add_total(self, late: float = 0, unread: float = 0) -> None:
        """Read the CPU time of the processes that have ended, so long after the last look."""
        self.cpu += unread
        self._unread_ns += seconds(unread)
        self.account.add_total(START_NS + seconds(self.at + late), self._unread_ns, 0)

    def record(self, duration: float | None = None, sampling: Sampling = NOT_SAMPLED) -> Record:
        metrics = Metrics(duration_ms=None if duration is None else 1000 * duration)
        record = Record(
            task_id="t", container=Container(name="c"), metrics=metrics, sampling=sampling
        )
        return with_activity(
            record, self.account.activity_so_far(metrics.duration_ms, seconds(self.cpu))
        )

    @property
    def breakdown(self) -> TimeBreakdown:
        return present(self.record().time_breakdown)

    @property
    def parts(self) -> dict[str, float]:
        """The parts that are not 0."""
        return {name: percent for name, percent in all_parts(self.breakdown).items() if percent}

    @property
    def targets(self) -> dict[str, float]:
        return {row.target: row.percent for row in self.breakdown.waiting_for}


def all_parts(made: TimeBreakdown) -> dict[str, float | None]:
    return {name: getattr(made, f"{name}_percent") for name in PARTS}
