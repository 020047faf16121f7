"""The notices of a local command: they are looked for every few seconds, from the samples of its
processes.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.run_notices import RunNotices
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.readers.container_sample import ContainerSample
from profiler.record.bounded_json_line import without_lists
from profiler.record.record_model import RaisedNotice, Record

if TYPE_CHECKING:
    from profiler.readers.linux.waited_target import Wait
    from profiler.record.notice_model import NoticeLine

# The kernel counts the CPU time of a process in ticks of 10 ms, which are 1 % of a vCPU in one
# second.
_STEP_NS = 10 * NS_PER_SECOND


class LocalNotices:
    """The notices of one run.

    ``read_network`` reads the bytes of the machine or container: an upper bound.
    """

    def __init__(
        self,
        started_ns: int,
        interval_ns: int,
        read_network: Callable[[], int | None],
        *,
        stuck_minutes: float,
        expected_seconds: float | None = None,
    ) -> None:
        window_ns = round(stuck_minutes * 60 * NS_PER_SECOND)
        self._step_ns = max(min(_STEP_NS, window_ns // 12 or _STEP_NS), interval_ns)
        self._notices = RunNotices(
            started_ns,
            stuck_minutes=stuck_minutes,
            expected_seconds=expected_seconds,
            interval_ns=self._step_ns,
        )
        self._read_network = read_network
        self._next_ns = 0

    @property
    def raised(self) -> tuple[RaisedNotice, ...]:
        return self._notices.raised

    def look(
        self,
        sample: ContainerSample,
        memory_size_bytes: float | None,
        record: Callable[[], Record],
        longest_wait: "Callable[[int], Wait | None]",
    ) -> "Iterator[NoticeLine]":
        """Add a sample; yield a line for each condition that is met for the first time, with the
        record so far.
        """
        findings = self._notices.overdue(sample.read_ns)
        if sample.read_ns >= self._next_ns:
            self._next_ns = sample.read_ns + self._step_ns
            blocks = sample.block_read_bytes, sample.block_write_bytes
            reading = NoticeReading(
                at_ns=sample.read_ns,
                cpu_ns=sample.cpu_ns,
                network_bytes=self._read_network(),
                block_bytes=None
                if blocks[0] is None or blocks[1] is None
                else blocks[0] + blocks[1],
                memory_used_bytes=sample.memory_used_bytes,
                memory_size_bytes=memory_size_bytes,
            )
            findings += self._notices.add(reading)
        for finding in findings:
            from profiler.record.notice_model import NoticeLine  # most runs have no notice

            so_far = without_lists(record())
            notice = self._notices.describe(finding, longest_wait)
            so_far = replace(so_far, status="running", finished_at=None, notices=self.raised)
            yield NoticeLine(time=format_ms(finding.at_ns), notice=notice, record=so_far)
