"""The sentence of the last night on the report page, and the runs that its names open."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.record_model import Container
from profiler.record.run_outcome import OUT_OF_MEMORY
from profiler.record.stop_causes import EventEnd
from profiler.report_page.page_night import night_of_page
from profiler.report_page.page_rows import PageNight, PageNotice, PageRun
from profiler.runs.past_runs.past_run import TaskEvent
from tests.report_page import content, report, run_of

NOW = datetime(2026, 11, 25, 8, tzinfo=UTC)
MINUTE_MS = 60_000


def at(hour: float, *, day: int = 25, family: str = "etl", **fields: object) -> PageRun:
    began = datetime(2026, 11, day, tzinfo=UTC).timestamp() * 1000 + hour * 60 * MINUTE_MS
    row = {"id": f"{family}-{day}-{hour}", "outcome": "success", "container": "batch", **fields}
    return PageRun(family=family, began=int(began), **row)  # type: ignore[arg-type]


def missed(hour: float, *, family: str = "report", came_late: bool | None = None) -> PageNotice:
    began = int(NOW.replace(hour=0).timestamp() * 1000 + hour * 60 * MINUTE_MS)
    return PageNotice(
        family=family, outcome="missed", began=began, came_late=came_late, text="was not started"
    )


def ns(moment: datetime) -> int:
    return round(moment.timestamp()) * NS_PER_SECOND


def night_of(
    runs: Sequence[PageRun], notices: Sequence[PageNotice] = (), now: datetime = NOW
) -> PageNight:
    night = night_of_page(runs, notices, ns(now))
    assert night is not None
    return night


def sentence(night: PageNight) -> str:
    return "".join(piece.text for piece in night.texts)


def test_the_sentence_is_that_of_the_morning_message_with_runs_and_cost() -> None:
    runs = [
        at(5, outcome=OUT_OF_MEMORY, family="nightly-etl", usd=3.0),
        at(4, outcome="failure", family="dwh-load", usd=1.0),
        at(-1.5, usd=0.1),
        at(-13, outcome="failure", family="of the night before"),
    ]
    assert sentence(night_of(runs)) == (
        "Last night (24 November): 3 runs, 1 killed for memory (nightly-etl), 1 failed (dwh-load), "
        "1 succeeded, $4.10."
    )


def test_a_task_is_one_run_with_the_worst_end_of_its_containers() -> None:
    ended: dict[str, Any] = {"id": "1"}
    runs = [
        at(5, **ended),
        at(5, container="side", outcome="failure", **ended),
        at(5, container="other", outcome="stopped", **ended),
        at(4),
        at(-13, container="late", outcome=OUT_OF_MEMORY, id="of the night before"),
    ]
    night = night_of(runs)
    assert sentence(night) == "Last night (24 November): 2 runs, 1 failed (etl), 1 succeeded."
    assert [piece.run for piece in night.texts if piece.run is not None] == [1]


def test_the_end_of_the_batch_decides_whatever_the_others_did() -> None:
    batch = run_of(report("a", day=20))
    end = EventEnd(cause="success", exit_code=0)
    known = replace(batch.past, event=TaskEvent(end=end))
    side = run_of(report("a", day=20, container=Container(name="side"), status="failure"))
    for runs in ([batch, side], [side, batch]):
        assert night_text(content(runs)).endswith("1 run, 1 failed (etl).")
    of_event = replace(batch, past=known)
    assert night_text(content([of_event, side])).endswith("1 run, 1 succeeded.")


def night_text(found: dict[str, Any]) -> str:
    return "".join(piece["text"] for piece in found["lastNight"]["texts"])


def test_a_name_opens_the_newest_run_of_its_outcome_and_no_number_does() -> None:
    runs = [
        at(5, outcome="success"),
        at(4, outcome="failure"),
        at(3, outcome="failure"),
        at(2, outcome=OUT_OF_MEMORY),
    ]
    night = night_of(runs, [missed(1)])
    opened = {piece.text: piece.run for piece in night.texts if piece.run is not None}
    assert opened == {"etl": 3, "etl ×2": 1}
    numbers = [piece.text for piece in night.texts if piece.is_number]
    assert numbers == ["1 missed", "1 killed for memory", "2 failed", "1 succeeded"]


def test_a_missed_due_time_counts_unless_its_task_came_late() -> None:
    notices = [missed(1), missed(2, family="slow", came_late=True)]
    night = night_of([at(4, day=20)], notices)
    assert sentence(night) == "Last night (24 November): 0 runs, 1 missed (report)."


def test_a_task_is_paid_once_and_spot_is_a_lower_bound() -> None:
    runs = [
        at(5, id="a", container="batch", usd=2.0),
        at(5, id="a", container="helper", usd=2.0),
        at(4, id="b", usd=1.0, at_least=["usd"]),
    ]
    assert sentence(night_of(runs)).endswith("2 runs, 2 succeeded, ≥ $3.00.")


def test_if_nothing_ran_last_night_the_newest_night_is_named() -> None:
    runs = [at(4, day=21, outcome="failure"), at(4, day=20)]
    night = night_of(runs)
    assert sentence(night) == (
        "Nothing ran last night. Night of 2026-11-20: 1 run, 1 failed (etl)."
    )
    assert night.begins == "2026-11-20 12:00"
    assert night.ends == "2026-11-21 12:00"
    assert night.zone == "UTC"


def test_a_night_has_the_noon_with_which_it_begins_and_not_the_next() -> None:
    runs = [at(12, outcome="failure"), at(-12), at(-12.01, outcome="failure")]
    assert sentence(night_of(runs)) == "Last night (24 November): 1 run, 1 succeeded."


def test_a_night_that_has_begun_since_is_the_newest_one() -> None:
    night = night_of([at(15, outcome="failure")], now=NOW.replace(hour=16))
    assert sentence(night).startswith(
        "Nothing ran last night. Night of 2026-11-25: 1 run, 1 failed"
    )


def test_a_start_of_more_than_a_day_after_now_is_no_night() -> None:
    assert sentence(night_of([at(3, day=30, outcome="failure"), at(3)])).startswith("Last night")
    assert night_of_page([at(3, day=30)], [], ns(NOW)) is None


def test_runs_without_a_start_make_no_sentence() -> None:
    unknown = PageRun(id="a", family="etl", container="batch", outcome="success")
    assert night_of_page([unknown], [], ns(NOW)) is None


def test_the_runs_of_a_proof_are_left_out_as_in_the_message() -> None:
    runs = [at(5, outcome=OUT_OF_MEMORY, family=PROOF_FAMILY), at(4)]
    assert sentence(night_of(runs)) == "Last night (24 November): 1 run, 1 succeeded."


def test_a_machine_of_ones_own_has_days() -> None:
    local = [at(7, launch="LOCAL"), at(-1, launch="LOCAL", outcome="failure")]
    assert sentence(night_of(local)) == "Today (25 November): 1 run, 1 succeeded."
    night = night_of(local[1:])
    assert sentence(night) == "Nothing ran today. 2026-11-24: 1 run, 1 failed (etl)."
    assert night.begins == "2026-11-24 00:00"
    assert night.ends == "2026-11-25 00:00"


class ZonedNight(Struct, frozen=True):
    zone: str
    now: str
    begins: str
    ends: str
    hours: int


@pytest.mark.parametrize(
    "case",
    [
        ZonedNight("Europe/Berlin", "2026-11-25 00:01", "2026-11-24 12:00", "2026-11-25 12:00", 24),
        ZonedNight("Europe/Berlin", "2026-11-25 23:59", "2026-11-24 12:00", "2026-11-25 12:00", 24),
        ZonedNight("Europe/Berlin", "2026-10-25 08:00", "2026-10-24 12:00", "2026-10-25 12:00", 25),
        ZonedNight("Europe/Berlin", "2026-03-29 08:00", "2026-03-28 12:00", "2026-03-29 12:00", 23),
        ZonedNight("Asia/Tokyo", "2026-11-25 00:30", "2026-11-24 12:00", "2026-11-25 12:00", 24),
    ],
)
def test_a_night_lasts_from_noon_to_noon_of_this_machine(
    case: ZonedNight, set_zone: Callable[[str], None]
) -> None:
    set_zone(case.zone)
    now = datetime.fromisoformat(case.now).replace(tzinfo=ZoneInfo(case.zone))
    last = PageRun(
        id="a",
        family="etl",
        container="batch",
        outcome="success",
        began=ns(datetime.fromisoformat(case.ends).replace(tzinfo=ZoneInfo(case.zone))) // NS_PER_MS
        - 1,
    )
    night = night_of([last], now=now)
    assert sentence(night).startswith("Last night")
    assert night.begins == case.begins
    assert night.ends == case.ends
    assert night.end - night.start == case.hours * 60 * MINUTE_MS


def test_the_page_has_the_sentence_of_its_runs() -> None:
    found = content([run_of(report("a", day=20)), run_of(report("b", day=19, status="failure"))])
    texts = [piece["text"] for piece in found["lastNight"]["texts"]]
    assert "".join(texts) == "Last night (19 November): 1 run, 1 succeeded."
