"""Runs that use more memory than everything their family's successes reached: announced once, from
a notice of the monitor or from a checkpoint, and nothing below that.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from profiler.aws_account.replay import build_subscription_event
from profiler.core.timestamps import NS_PER_SECOND, format_datetime, parse_datetime
from profiler.forwarder.document_updates import Document
from profiler.forwarder.family_runs import FamilyContainer, FamilyPeaksCache, FamilyRunReader
from profiler.forwarder.function_settings import ForwarderSettings, NoticeSettings
from profiler.forwarder.invocation import InProgressError, NoticeError, SearchClusterError
from profiler.forwarder.notifications.running_task_notices import RunningTaskNotices
from profiler.forwarder.search_cluster.document_delivery import DeliveryResult, FailedItem
from profiler.forwarder.subscription import LineCounts, LineForwarder, decode_subscription_event
from profiler.record.family_statistics import HighestPeak
from profiler.record.notice_model import NoticeEvidence, encode_notice_line
from profiler.record.record_model import (
    NO_READINGS,
    AverageAndMaximum,
    Distribution,
    Interval,
    Metrics,
    Report,
    encode,
)
from tests.counting_search import CountingSearch
from tests.log_subscriptions import DOCUMENT, event, packed_data, record
from tests.notices import KeyTable, fake_channel
from tests.shown_runs import stuck_notice
from tests.values import present

STUCK = stuck_notice()
NOW = present(parse_datetime(STUCK.time))
NOW_MS = round(NOW.timestamp() * 1000)
TASK_ID = STUCK.record.task_id
FAMILY = present(STUCK.record.family)
STREAM = f"ecs/task-monitor/{TASK_ID}"
SIZE_MB = 4096
PERIOD_NS = 600 * NS_PER_SECOND


def success(number: int, peak_mb: float | None, **task: Any) -> dict[str, Any]:
    """The document of an earlier success."""
    return {
        "@timestamp": format_datetime(NOW - timedelta(days=number)),
        "cloud": {"account": {"id": "111122223333"}, "region": STUCK.record.region},
        "container": {"name": "batch"},
        "task": {
            "id": str(number),
            "family": FAMILY,
            "status": "success",
            "confirmed": True,
            **task,
        },
        "usage": {"memory": {"used_mb": {"max": peak_mb}}},
    }


EARLIER = [success(number, 2500.0 + number) for number in range(1, 41)]


def checkpoint(
    used_mb: float,
    *,
    minute: int = 0,
    peak_mb: float | None = None,
    files_mb: float | None = None,
    **changes: Any,
) -> str:
    """A line of the monitor, of which the batch's memory in the last minute is known."""
    files = NO_READINGS if files_mb is None else AverageAndMaximum(avg=files_mb, max=files_mb)
    metrics = Metrics(
        memory_size_mb=SIZE_MB,
        max_memory_used_mb=peak_mb or used_mb,
        memory_mapped_file_mb=files,
    )
    interval = Interval(memory_used_mb=Distribution(avg=used_mb - 1, max=used_mb))
    running = replace(STUCK.record, metrics=metrics, interval=interval, status="running", **changes)
    time = format_datetime(NOW + timedelta(minutes=minute))
    return encode(Report(time=time, type="task.checkpoint", record=running)).decode()


def forecast(used_mb: float, minutes_left: float = 6) -> str:
    """A notice by the slope alone."""
    evidence = NoticeEvidence(used_mb=used_mb, size_mb=SIZE_MB, minutes_left=minutes_left)
    notice = replace(STUCK.notice, kind="memory", message="By the slope.", evidence=evidence)
    return encode_notice_line(replace(STUCK, notice=notice)).decode()


class LockingTable(KeyTable):
    """As the table of DynamoDB: a key whose work goes on is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.working: set[str] = set()

    def once(self, key: str, work: Callable[[], Any]) -> Any:
        if key in self.working:
            raise InProgressError("Another invocation is posting this task's notification.")
        self.working.add(key)
        try:
            return super().once(key, work)
        finally:
            self.working.remove(key)


class Deployment:
    """The forwarder of one account over many invocations, with the cluster and a channel."""

    def __init__(self, *sources: Mapping[str, Any]) -> None:
        self.search = CountingSearch(*sources)
        self.channel = fake_channel("slack", "failure")
        self.table = LockingTable()
        self.documents: list[Document] = []
        self.store: list[FailedItem] = []
        self.settings = NoticeSettings()
        self.minute = 0.0
        self.new_process()

    def new_process(self) -> None:
        """A function's new instance remembers nothing."""
        self.peaks = FamilyPeaksCache(PERIOD_NS)
        self.told: set[str] = set()

    def lines(self) -> LineForwarder:
        memory = FamilyRunReader(cluster=self.search, prefix="task", timeout_seconds=5, now=NOW)
        peaks = self.peaks

        def read(
            wanted: Sequence[tuple[str, FamilyContainer]],
        ) -> Mapping[FamilyContainer, HighestPeak]:
            now_ns = round(self.minute * 60 * NS_PER_SECOND)
            return peaks.known_peaks(wanted, lambda: memory, now_ns)

        notices = RunningTaskNotices(
            lambda: self.settings,
            channels=lambda _settings: [self.channel],
            once=self.table.once,
            now=lambda: NOW + timedelta(minutes=self.minute),
            peaks=read,
            told=self.told,
        )
        return LineForwarder(ForwarderSettings(), self.deliver, self.store.extend, notices)

    def deliver(self, documents: Sequence[Document]) -> DeliveryResult:
        self.documents += documents
        return DeliveryResult(indexed=len(documents))

    def forward(self, *lines: str, stream: str = STREAM) -> LineCounts:
        return self.lines().forward_payload(
            decode_subscription_event(event(payload(*lines, stream=stream)))
        )

    @property
    def messages(self) -> list[str]:
        return [line.notice.message for line in self.channel.posted]

    @property
    def asked(self) -> int:
        return len(self.search.bodies)


def payload(*lines: str, stream: str = STREAM) -> dict[str, Any]:
    events = [
        {"id": str(number), "timestamp": NOW_MS, "message": text}
        for number, text in enumerate(lines)
    ]
    return {**DOCUMENT, "logStream": stream, "logEvents": events}


NEWS = "The run's memory is at 81 % of 4 GB, above everything that 40 earlier runs reached (62 %)"


def test_a_checkpoint_above_everything_is_announced_once() -> None:
    runs = Deployment(*EARLIER)
    for minute in range(30):
        runs.minute = minute
        assert runs.forward(checkpoint(3318 + minute, minute=minute)) == LineCounts(indexed=1)
    assert runs.messages == [f"{NEWS}."]
    (line,) = runs.channel.posted
    assert line.notice.kind == "memory"
    evidence = present(line.notice.evidence)
    assert (evidence.used_mb, evidence.size_mb) == (3318, SIZE_MB)
    assert (evidence.earlier_peak_mb, evidence.earlier_runs) == (2540, 40)
    assert runs.asked == 1, "a run that was announced asks for nothing"
    (notice,) = [document for document in runs.documents if document.notice is not None]
    assert notice.id == f"{TASK_ID}/batch/memory"
    assert json.loads(msgspec.json.encode(notice.fields))["notice"]["message"] == f"{NEWS}."


def test_another_instance_of_the_function_neither_tells_nor_indexes_it_again() -> None:
    runs = Deployment(*EARLIER)
    for minute in (0, 1):
        runs.new_process()
        runs.forward(checkpoint(3318 + minute, minute=minute))
    assert runs.messages == [f"{NEWS}."]
    assert sum(document.notice is not None for document in runs.documents) == 1
    assert runs.asked == 2


def apart(number: int, peak_mb: float) -> dict[str, Any]:
    """The document of a success whose mapped files are no memory used."""
    made = success(number, peak_mb)
    made["usage"]["memory"]["mapped_file_mb"] = {"avg": 500.0, "max": 1500.0}
    return made


def test_older_peaks_count_until_five_runs_say_mapped_files_apart() -> None:
    """An older peak is the most that was used: a run above it is above all of them."""
    few = Deployment(*EARLIER, *[apart(50 + number, 900) for number in range(4)])
    few.forward(checkpoint(3318, files_mb=500))
    assert few.messages == [f"{NEWS.replace('40 earlier', '44 earlier')}."]
    few = Deployment(*EARLIER, *[apart(50 + number, 900) for number in range(4)])
    few.forward(checkpoint(2560, files_mb=500))
    assert few.messages == []
    enough = Deployment(*EARLIER, *[apart(50 + number, 2800) for number in range(5)])
    enough.forward(checkpoint(2870, files_mb=500))
    assert enough.messages == [
        "The run's memory is at 70 % of 4 GB, above everything that 5 earlier runs reached (68 %)."
    ]


def test_an_older_monitor_beside_newer_ones_announces_no_mapped_files() -> None:
    runs = Deployment(*EARLIER, *[apart(50 + number, 900) for number in range(5)])
    runs.forward(checkpoint(3318))
    assert runs.messages == []
    runs.forward(forecast(3318), checkpoint(3318, minute=1))
    assert runs.messages == ["By the slope."]


def test_a_forecast_above_everything_says_both() -> None:
    runs = Deployment(*EARLIER)
    assert runs.forward(forecast(3318), checkpoint(3400)) == LineCounts(indexed=2)
    assert runs.messages == [f"{NEWS}, full in 6 minutes at this pace."]
    runs.forward(checkpoint(3500, minute=1))
    assert len(runs.messages) == 1


@pytest.mark.parametrize("used_mb", [2590, 2866, 2000])
def test_below_that_nothing_is_announced_whatever_the_slope(used_mb: float) -> None:
    """2,590 MB are 2 % above the highest peak, and not 70 % of the size."""
    runs = Deployment(*EARLIER)
    assert runs.forward(forecast(used_mb), checkpoint(used_mb)) == LineCounts(indexed=2)
    assert runs.messages == []
    assert next(document.id for document in runs.documents) == f"{TASK_ID}/batch/memory"
    near = Deployment(*EARLIER, success(41, 2900))
    near.forward(forecast(2950), checkpoint(2950))
    assert near.messages == [], "less than 2 % above the highest peak"


@pytest.mark.parametrize(
    "sources",
    [
        [],
        EARLIER[:4],
        [*EARLIER[:4], *[success(50 + number, None) for number in range(20)]],
        [success(number, 2500, status="failure") for number in range(20)],
        [success(number, 2500, confirmed=False) for number in range(20)],
        [success(number, 2500, family="another") for number in range(20)],
        [{**success(number, 2500), "container": {"name": "log"}} for number in range(20)],
    ],
)
def test_where_nothing_is_known_of_the_family_the_slope_counts(
    sources: list[dict[str, Any]],
) -> None:
    runs = Deployment(*sources)
    runs.forward(checkpoint(4000))
    assert runs.messages == []
    runs.forward(forecast(3000))
    assert runs.messages == ["By the slope."]


@pytest.mark.parametrize("unsaid", [{"region": None}, {"family": None}])
def test_a_line_that_does_not_say_its_family_and_region_asks_nothing(
    unsaid: dict[str, Any],
) -> None:
    runs = Deployment(*EARLIER)
    runs.forward(checkpoint(4000, **unsaid))
    assert (runs.messages, runs.asked) == ([], 0)


def test_only_the_last_fifty_successes_count() -> None:
    runs = Deployment(*[success(number, 2500) for number in range(1, 51)], success(51, 4000))
    runs.forward(checkpoint(3318))
    assert "that 50 earlier runs reached (61 %)" in runs.messages[0]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (SearchClusterError("down", status=None), {}),
        (None, {"_shards": {"total": 2, "successful": 1}}),
        (None, {"timed_out": True}),
    ],
)
def test_a_cluster_that_does_not_say_everything_says_nothing(
    error: SearchClusterError | None, answer: dict[str, Any]
) -> None:
    runs = Deployment(*EARLIER)
    runs.search.error, runs.search.answer = error, answer
    runs.forward(checkpoint(4000))
    runs.forward(forecast(3000))
    assert runs.messages == ["By the slope."]
    assert runs.asked == 1


def test_a_familys_peak_is_asked_for_once_in_ten_minutes_and_only_near_the_size() -> None:
    runs = Deployment(*EARLIER, success(41, 4000))
    for minute in range(31):
        runs.minute = minute
        runs.forward(*[checkpoint(used, minute=minute) for used in (1000, 2800)])
    assert runs.asked == 0
    for minute in range(31):
        runs.minute = minute
        runs.forward(*[checkpoint(3000 + used, minute=minute) for used in range(0, 400, 4)])
    assert runs.asked == 3
    assert runs.messages == []


def test_a_batch_that_names_other_families_asks_for_one() -> None:
    """A batch prints into its own stream what it likes."""
    runs = Deployment(*EARLIER)
    for minute in range(9):
        runs.minute = minute
        lines = [checkpoint(3900, family=f"{minute}-{number}") for number in range(400)]
        runs.forward(*lines, stream=f"ecs/batch/{TASK_ID}")
    assert runs.asked == 1


@pytest.mark.parametrize(
    ("stream", "changes"),
    [
        ("ecs/batch/" + "0" * 32, {}),
        ("ecs/log_router/" + TASK_ID, {}),
        ("2026/11/20/[$LATEST]abc", {}),
        ("0" * 64, {}),
        (STREAM, {"account_id": "444455556666"}),
        (STREAM, {"task_arn": "arn:aws:ecs:us-west-2:111122223333:task/jobs/" + "0" * 32}),
    ],
)
def test_a_checkpoint_of_a_stream_that_is_not_its_tasks_announces_and_asks_nothing(
    stream: str, changes: dict[str, Any]
) -> None:
    runs = Deployment(*EARLIER)
    runs.forward(checkpoint(4000, **changes), stream=stream)
    assert (runs.messages, runs.asked) == ([], 0)


def test_two_checkpoints_in_two_invocations_at_once_are_one_notice() -> None:
    """Both have been read before one is sent, in two instances of the function."""
    runs = Deployment(*EARLIER)
    first = runs.lines()
    runs.new_process()
    second = runs.lines()
    items = [
        decode_subscription_event(event(payload(checkpoint(3318 + one, minute=one))))
        for one in (0, 1)
    ]
    post = runs.channel.post

    def posting(*notice: Any) -> None:
        runs.channel.post = post
        with pytest.raises(InProgressError):
            second.forward_payload(items[1])
        post(*notice)

    runs.channel.post = posting
    first.forward_payload(items[0])
    runs.lines().forward_payload(items[1])  # Lambda's retry
    assert runs.messages == [f"{NEWS}."]
    assert runs.asked == 2


def test_a_channel_that_fails_is_told_again() -> None:
    runs = Deployment(*EARLIER)
    runs.channel.error = NoticeError("Slack is away.")
    with pytest.raises(NoticeError):
        runs.forward(checkpoint(3318))
    runs.channel.error = None
    runs.forward(checkpoint(3318))
    assert runs.messages == [f"{NEWS}."]
    runs.channel.error = NoticeError("Slack is away.")
    other = Deployment(*EARLIER)
    other.channel.error = NoticeError("Slack is away.")
    at_once = record(7, packed_data(payload(checkpoint(3318))))
    assert other.lines().forward_kinesis_records([at_once], lambda _sentence: None)[1] == ("7",)


def test_replayed_old_and_unselected_checkpoints_announce_nothing() -> None:
    runs = Deployment(*EARLIER)
    events = [
        {
            "logStreamName": STREAM,
            "eventId": "1",
            "timestamp": NOW_MS,
            "message": checkpoint(4000),
        }
    ]
    replayed = decode_subscription_event(
        build_subscription_event(events, "/ecs/jobs", "111122223333")
    )
    assert runs.lines().forward_payload(replayed) == LineCounts(indexed=1)
    runs.minute = 24 * 60 + 1
    runs.forward(checkpoint(4000))
    runs.minute = 0
    runs.settings = NoticeSettings(subjects=frozenset({"failure"}))
    runs.forward(checkpoint(4000))
    runs.settings = NoticeSettings(families=("other-*",))
    runs.forward(checkpoint(4000))
    assert (runs.messages, runs.asked) == ([], 0)


@pytest.mark.parametrize("size_mb", [None, 0, -1, 1e-320])
def test_a_size_that_is_none_announces_nothing(size_mb: float | None) -> None:
    runs = Deployment(*EARLIER)
    line = checkpoint(4000).replace('"memorySizeMB":4096', f'"memorySizeMB":{json.dumps(size_mb)}')
    runs.forward(line)
    assert (runs.messages, runs.asked) == ([], 0)


def test_the_last_interval_counts_and_not_the_kernels_mark() -> None:
    runs = Deployment(*EARLIER)
    runs.forward(checkpoint(2000, peak_mb=4090))
    assert (runs.messages, runs.asked) == ([], 0)


def test_what_is_kept_of_families_and_streams_is_bounded() -> None:
    peaks = FamilyPeaksCache(PERIOD_NS)
    search = CountingSearch(*EARLIER)
    memory = FamilyRunReader(cluster=search, prefix="task", timeout_seconds=5, now=NOW)
    for number in range(30_000):
        wanted = [(f"stream-{number}", ("1", "r", f"family-{number}", "batch"))]
        if number % 1000 == 0:
            assert peaks.known_peaks(wanted, partial(lambda found: found, memory), number) == {}
        else:
            peaks._asked[f"stream-{number}"] = number
    peaks.known_peaks([], lambda: memory, 30_000)
    assert len(peaks._known) + len(peaks._asked) <= 10_001
