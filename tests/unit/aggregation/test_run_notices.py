"""The notices of one run: each kind once, with a sentence and numbers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.aggregation.run_notices import Finding, NoticeReading, NoticeSettings, RunNotices
from profiler.core.timestamps import format_ms
from profiler.readers.linux.waited_target import Wait
from profiler.record.notice_model import Notice, NoticeEvidence
from profiler.record.record_model import RaisedNotice
from profiler.record.units import MIB
from tests.fakes import START_NS, seconds
from tests.values import present

WAITED = Wait("network", "10.0.3.9:5432")


def found(
    *, minutes: float = 60, memory_per_minute: float = 0, disk_per_minute: float = 0, **values: float | None
) -> list[tuple[float, Finding]]:
    """What is found in which minute of an idle run that starts with 10 % of its memory and disk."""
    notices = RunNotices(NoticeSettings(**values), START_NS)  # type: ignore[arg-type]
    findings: list[tuple[float, Finding]] = []
    for at in range(0, int(60 * minutes) + 1, 10):
        at_ns = START_NS + seconds(at)
        reading = NoticeReading(
            at_ns=at_ns,
            cpu_ns=at * 1000,
            network_bytes=20 * at,
            block_bytes=0,
            memory_used_bytes=round(MIB * (100 + memory_per_minute * at / 60)),
            memory_size_bytes=1000 * MIB,
            disk_used_mb=2000 + disk_per_minute * at / 60,
            disk_size_mb=20_000,
        )
        overdue = notices.overdue(at_ns)
        findings += [(at / 60, finding) for finding in (*notices.add(reading), overdue) if finding is not None]
    return findings


def notice(finding: Finding, wait: Wait | None = None) -> Notice:
    return RunNotices(NoticeSettings(), START_NS).describe(finding, lambda _: wait)


def test_a_stuck_run() -> None:
    ((at, finding),) = found()
    assert at == 30
    assert notice(finding, WAITED) == Notice(
        kind="stuck",
        message="The run used less than 0.01 vCPU and 1 KB/s of network and disk for 30 minutes; "
        "it has waited mostly for network 10.0.3.9:5432.",
        since=format_ms(START_NS),
        evidence=NoticeEvidence(
            minutes=30,
            vcpu_used=0,
            network_bytes_per_second=20,
            block_bytes_per_second=0,
            waiting_for="network 10.0.3.9:5432",
        ),
    )


def test_what_a_run_waits_for_is_named_as_far_as_it_is_known() -> None:
    ((_, finding),) = found()
    assert notice(finding).message.endswith("for 30 minutes.")
    locked = notice(finding, Wait("lock"))
    assert locked.message.endswith("; it has waited mostly for a lock.")
    assert present(locked.evidence).waiting_for == "a lock"
    assert notice(finding, Wait("network")).message.endswith("; it has waited mostly for the network.")


def test_the_wait_is_that_of_the_time_that_the_notice_is_about() -> None:
    asked: list[int] = []
    for _, finding in found(expected_seconds=3000):
        RunNotices(NoticeSettings(), START_NS + 1).describe(finding, asked.append)
    assert asked == [START_NS, START_NS + 1]  # since it is idle, and the whole time of what takes too long


def test_an_overdue_run() -> None:
    ((at, finding),) = found(stuck_minutes=0, expected_seconds=3000.5)
    assert at == 3010 / 60
    assert notice(finding, WAITED) == Notice(
        kind="overdue",
        message="The run has taken 50m 10s; 50m 00s were expected; it has waited mostly for network 10.0.3.9:5432.",
        since=format_ms(START_NS + seconds(3000.5)),
        evidence=NoticeEvidence(elapsed_seconds=3010, expected_seconds=3000.5, waiting_for="network 10.0.3.9:5432"),
    )


def test_memory_that_grows_to_its_limit() -> None:
    ((at, finding),) = found(stuck_minutes=0, memory_per_minute=30, minutes=29)
    assert at == 20
    assert notice(finding, WAITED) == Notice(
        kind="memory",
        message="The run uses 700 MB of 1000 MB of memory (70 %), and has grown by 30.0 MB a minute for 5 minutes: "
        "at this rate, it reaches the limit in 10 minutes.",
        since=format_ms(START_NS + seconds(910)),
        evidence=NoticeEvidence(minutes=4.8, used_mb=700, size_mb=1000, growth_mb_per_minute=30, minutes_left=10),
    )
    ((_, finding),) = found(stuck_minutes=0, disk_per_minute=500, minutes=35)
    said = notice(finding)
    assert said.kind == "disk"
    assert "of 19.5 GB of ephemeral storage" in said.message


def test_all_kinds_are_found_once_and_listed() -> None:
    findings = found(minutes=100, expected_seconds=60, memory_per_minute=8, disk_per_minute=170)
    assert sorted(finding.kind for _, finding in findings) == ["disk", "memory", "overdue", "stuck"]
    notices = RunNotices(NoticeSettings(), START_NS)
    for _, finding in findings[:2]:
        notices.describe(finding, lambda _: None)
    assert notices.raised == (
        RaisedNotice(kind="overdue", at=format_ms(START_NS + seconds(70))),
        RaisedNotice(kind="stuck", at=format_ms(START_NS + seconds(1800))),
    )


_COUNTS = st.one_of(st.none(), st.integers(0, 2**62))


@given(
    st.lists(
        st.builds(
            NoticeReading,
            at_ns=st.integers(0, 2**62),
            cpu_ns=_COUNTS,
            network_bytes=_COUNTS,
            block_bytes=_COUNTS,
            own_line_ns=_COUNTS,
            memory_used_bytes=_COUNTS,
            memory_size_bytes=st.one_of(st.none(), st.floats(0, 2**62)),
            disk_used_mb=st.one_of(st.none(), st.floats(0, 2**40)),
            disk_size_mb=st.one_of(st.none(), st.floats(0, 2**40)),
        )
    )
)
@settings(max_examples=40, deadline=None)
def test_any_readings_give_notices_that_can_be_described(readings: list[NoticeReading]) -> None:
    notices = RunNotices(NoticeSettings(stuck_minutes=0.001, expected_seconds=1), 0)
    for reading in readings:
        overdue = notices.overdue(reading.at_ns)
        for finding in (*notices.add(reading), *((overdue,) if overdue else ())):
            assert notices.describe(finding, lambda _: None).message.endswith(".")
