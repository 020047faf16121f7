"""The notices of a local command, from samples of its processes."""

from collections.abc import Callable

from msgspec.structs import replace

from profiler.aggregation.run_notices import NoticeSettings
from profiler.core.timestamps import format_ms
from profiler.local_run.local_record import LocalNotices
from profiler.record.notice_model import NoticeLine
from profiler.record.record_model import Container, OtherContainer, RaisedNotice, Record
from profiler.record.units import MIB
from tests.fakes import START_NS, sample, seconds
from tests.values import present

RUN = Record(
    task_id="t",
    container=Container(name="etl"),
    finished_at="2026-01-01T00:00:00Z",
    containers=(OtherContainer(name="x"),),
)


def lines(
    *,
    cpu_seconds: Callable[[int], float] = lambda _: 0.5,
    network: Callable[[], int | None] = lambda: 7,
    blocks: int | None = 0,
    until: int = 200,
    **limits: float,
) -> list[NoticeLine]:
    settings = NoticeSettings(**{"stuck_minutes": 1, **limits})
    notices = LocalNotices(settings, START_NS, seconds(0.5), network)
    found: list[NoticeLine] = []
    for half in range(2 * until):
        one = sample(START_NS + seconds(half / 2), cpu_seconds(half // 2), (50 + half) * MIB)
        one = replace(one, block_read_bytes=blocks, block_write_bytes=blocks)
        found += notices.look(one, 10_000 * MIB, lambda: RUN, lambda _: None)
    assert notices.raised == tuple(RaisedNotice(kind=line.notice.kind, at=line.time) for line in found)
    return found


def test_an_idle_command_is_stuck_and_overdue_once() -> None:
    stuck, overdue = lines(expected_seconds=90)
    assert (stuck.notice.kind, stuck.time) == ("stuck", format_ms(START_NS + seconds(60)))
    assert (overdue.notice.kind, overdue.time) == ("overdue", format_ms(START_NS + seconds(90.5)))
    record = overdue.record
    assert (record.status, record.finished_at, record.containers) == ("running", None, ())
    assert [one.kind for one in record.notices] == ["stuck", "overdue"]


def test_ticks_of_the_cpu_time_are_no_activity() -> None:
    """The kernel shows 0.4 % of a vCPU as 10 ms in every third second."""
    (stuck,) = lines(cpu_seconds=lambda second: second // 3 / 100)
    assert stuck.notice.evidence is not None
    assert present(stuck.notice.evidence.vcpu_used) < 0.01


def test_unknown_bytes_are_no_idleness_and_traffic_of_the_machine_may_be_that_of_the_command() -> None:
    assert lines(network=lambda: None) == []
    assert lines(blocks=None) == []
    received = iter(range(0, 10**9, 20_000))
    assert lines(network=lambda: next(received)) == []
