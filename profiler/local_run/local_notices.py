"""The notices of a local command: they are looked for every few seconds, from the samples of its
processes.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profiler.core.background_call import NoCall
from profiler.core.optional_math import sum_known, sum_of_both
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux import proc
from profiler.record.bounded_json_line import without_lists
from profiler.record.record_model import RaisedNotice, Record

if TYPE_CHECKING:
    from profiler.aggregation.run_notices import NoticeFinding, RunNotices
    from profiler.readers.linux.wait_types import Wait
    from profiler.record.family_statistics import HighestPeak
    from profiler.record.notice_model import NoticeLine

# The kernel counts the CPU time of a process in ticks of 10 ms, which are 1 % of a vCPU in one
# second.
_STEP_NS = 10 * NS_PER_SECOND
# A run that ends sooner has no notices, unless the settings ask for early ones.
_FIRST_NS = 5 * NS_PER_SECOND
_USUAL_STUCK_MINUTES = 10

RequestPeak = Callable[[], "NoCall[HighestPeak]"]


class LocalNotices:
    """The notices of one run. After a defect there are no more, and ``warnings`` says so.

    ``read_network`` reads the bytes of the machine or container: an upper bound.
    ``request_earlier_peak`` starts to read what earlier successes reached.
    """

    def __init__(
        self,
        started_ns: int,
        interval_ns: int,
        read_network: Callable[[], int | None],
        *,
        stuck_minutes: float,
        expected_seconds: float | None = None,
        request_earlier_peak: RequestPeak = NoCall,
    ) -> None:
        window_ns = round(stuck_minutes * 60 * NS_PER_SECOND)
        self._step_ns = max(min(_STEP_NS, window_ns // 12 or _STEP_NS), interval_ns)
        self._started_ns = started_ns
        self._stuck_minutes = stuck_minutes
        self._expected_seconds = expected_seconds
        self._read_network = read_network
        self._request_earlier_peak = request_earlier_peak
        self._has_requested = False
        self._earlier_peak: NoCall[HighestPeak] = NoCall()
        self._next_ns = started_ns
        may_be_early = expected_seconds is not None or 0 < stuck_minutes < _USUAL_STUCK_MINUTES
        self._first_ns = started_ns
        if not may_be_early:
            self._first_ns += _FIRST_NS
        self._notices: RunNotices | None = None
        self.warnings: tuple[str, ...] = ()

    @property
    def raised_notices(self) -> tuple[RaisedNotice, ...]:
        return () if self._notices is None else self._notices.raised

    def add_sample(
        self,
        sample: ContainerSample,
        memory_size_bytes: float | None,
        record: Callable[[], Record],
        longest_wait: "Callable[[int], Wait | None]",
        on_notice: "Callable[[NoticeLine], None]",
    ) -> None:
        """Add a sample; pass on a line for each condition that is met for the first time, with
        the record so far.
        """
        if self.warnings or sample.read_ns < self._first_ns:
            return
        try:
            if self._notices is None:
                self._notices = self._new_notices()
            for finding in self._findings(self._notices, sample, memory_size_bytes):
                on_notice(_notice_with_record(self._notices, finding, record(), longest_wait))
        # A defect of the notices must not end the sampling.
        except Exception as error:  # noqa: BLE001
            problem = f"The notifications failed ({type(error).__name__})"
            self.warnings = (f"{problem}: report this as a defect of task-profiler.",)

    def _new_notices(self) -> "RunNotices":
        from profiler.aggregation.run_notices import RunNotices  # short runs do without it

        return RunNotices(
            self._started_ns,
            stuck_minutes=self._stuck_minutes,
            expected_seconds=self._expected_seconds,
            interval_ns=self._step_ns,
            earlier_peak=self._known_peak,
        )

    def _known_peak(self) -> "HighestPeak | None":
        """What earlier successes reached; None until it is read, which may take long."""
        if not self._has_requested:
            self._has_requested = True
            self._earlier_peak = self._request_earlier_peak()
        return self._earlier_peak.result_so_far()

    def _findings(
        self, notices: "RunNotices", sample: ContainerSample, memory_size_bytes: float | None
    ) -> "Sequence[NoticeFinding]":
        """The conditions that are met for the first time; most are looked for once in a step."""
        findings = notices.find_if_overdue(sample.read_ns)
        if sample.read_ns < self._next_ns:
            return findings
        from profiler.aggregation.idle_time import NoticeReading  # as RunNotices

        self._next_ns = sample.read_ns + self._step_ns
        block_bytes = sum_of_both(sample.block_read_bytes, sample.block_write_bytes)
        reading = NoticeReading(
            at_ns=sample.read_ns,
            cpu_ns=sample.cpu_ns,
            network_bytes=self._read_network(),
            block_bytes=block_bytes,
            memory_used_bytes=sample.memory_used_bytes,
            memory_size_bytes=memory_size_bytes,
        )
        return [*findings, *notices.add_reading(reading)]


def _notice_with_record(
    notices: "RunNotices",
    finding: "NoticeFinding",
    record: Record,
    longest_wait: "Callable[[int], Wait | None]",
) -> "NoticeLine":
    """The line of a notice, with the record as it is so far."""
    from profiler.record.notice_model import NoticeLine  # most runs have no notice

    notice = notices.raise_notice(finding, longest_wait)
    so_far = replace(
        without_lists(record), status="running", finished_at=None, notices=notices.raised
    )
    return NoticeLine(time=format_ms(finding.at_ns), notice=notice, record=so_far)


def network_of(pid: int) -> int | None:
    """The bytes that the network namespace of a process has received and sent."""
    network = proc.parse_network(
        proc.read_or_none(f"/proc/{pid}/net/dev") or b"", with_loopback=True
    )
    return sum_known(*(network or ()))
