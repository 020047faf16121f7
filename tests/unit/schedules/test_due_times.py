"""Due times: AWS's examples by hand, an oracle that goes minute by minute, and what cannot be
read.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from profiler.core.timestamps import format_ms, parse_ns
from profiler.schedules.due_times import (
    ScheduleExpressionError,
    due_times,
    has_known_anchor,
    last_due,
    next_due,
    overlap_clause,
    shortest_gaps_ms,
)
from profiler.schedules.schedule_model import Schedule
from tests import schedule_oracle as oracle
from tests.cases import each_case
from tests.schedule_oracle import DAY, MINUTE, in_ns, utc

# Where the clocks change: the first is skipped, the second repeated. Apia skips 30 December 2011.
CHANGES = {
    "Europe/Berlin": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
    "Australia/Lord_Howe": ("2026-10-03T15:30", "2026-04-04T15:00"),
    "America/St_Johns": ("2026-03-08T05:30", "2026-11-01T04:30"),
    "Pacific/Apia": ("2011-12-30T10:00", "2012-03-31T14:00"),
    "Africa/Casablanca": ("2026-03-22T02:00", "2026-02-15T02:00"),
    "Asia/Kathmandu": ("2026-01-01T00:00", "2026-07-01T00:00"),
    "UTC": ("2026-02-28T12:00", "2026-12-31T12:00"),
}


def schedule(expression: str, zone: str = "UTC", **fields: Any) -> Schedule:
    given_fields = {
        "kind": "schedule",
        "name": "nightly",
        "cluster_arn": "c",
        "definition_arn": "d",
        **fields,
    }
    return Schedule(expression=expression, time_zone=zone, **given_fields)


def ns(text: str) -> int:
    return parse_ns(f"{text}:00Z") or 0


def times(of: Schedule, since: str, until: str) -> list[str]:
    return [format_ms(due_ns)[:16] for due_ns in due_times(of, ns(since), ns(until))]


def following(of: Schedule, after: str, number: int) -> list[str | None]:
    """The next due times, and None after the last."""
    if not number:
        return []
    due_ns = next_due(of, ns(after))
    if due_ns is None:
        return [None]
    text = format_ms(due_ns)[:16]
    return [text, *following(of, text, number - 1)]


# The examples of AWS's documentation come first. 2026-01-01 is a Thursday.
@each_case(
    ("fields", "expected"),
    [
        ("0 10 * * ? *", ["2026-01-01T10:00", "2026-01-02T10:00"]),
        ("0 18 ? * MON-FRI *", ["2026-01-01T18:00", "2026-01-02T18:00", "2026-01-05T18:00"]),
        ("0 8 1 * ? *", ["2026-01-01T08:00", "2026-02-01T08:00"]),
        ("0/15 * * * ? *", ["2026-01-01T00:15", "2026-01-01T00:30"]),
        ("0/30 20-2 ? * MON-FRI *", ["2026-01-01T00:30", "2026-01-01T01:00", "2026-01-01T01:30"]),
        ("0 9 ? * 2#1 *", ["2026-01-05T09:00", "2026-02-02T09:00"]),
        ("15 10 ? * 6L 2022-2027", ["2026-01-30T10:15", "2026-02-27T10:15"]),
        ("0 12 3W * ? *", ["2026-01-02T12:00", "2026-02-03T12:00"]),
        (
            "0 0 1W * ? *",
            ["2026-02-02T00:00", "2026-03-02T00:00", "2026-04-01T00:00"],
        ),  # not in another month
        ("0 0 31W * ? *", ["2026-01-30T00:00", "2026-03-31T00:00", "2026-05-29T00:00"]),
        ("0 0 LW * ? *", ["2026-01-30T00:00", "2026-02-27T00:00"]),
        ("0 0 L-3 * ? *", ["2026-01-28T00:00", "2026-02-25T00:00"]),
        ("0 0 L 2 ? *", ["2026-02-28T00:00", "2027-02-28T00:00", "2028-02-29T00:00"]),
        ("0 0 ? * L *", ["2026-01-03T00:00", "2026-01-10T00:00"]),
        (
            "0 0 ? * FRI-MON *",
            ["2026-01-02T00:00", "2026-01-03T00:00", "2026-01-04T00:00", "2026-01-05T00:00"],
        ),
        ("0 0 29 FEB ? *", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        (
            "0 0 ? 2 1#5 *",
            ["2032-02-29T00:00", "2060-02-29T00:00", "2088-02-29T00:00", "2128-02-29T00:00"],
        ),
        ("0 0 29 2 ? 2100", [None]),
        ("0 0 1 1 ? 2026/2", ["2028-01-01T00:00", "2030-01-01T00:00"]),
        ("59 23 31 12 ? 2199", ["2199-12-31T23:59", None]),
        ("0 0 1 1 ? 1970-2025", [None]),
    ],
)
def test_a_cron_expression_is_due_next(fields: str, expected: list[str | None]) -> None:
    assert following(schedule(f"cron({fields})"), "2026-01-01T00:00", len(expected)) == expected


BAD_FIELDS = (
    "0 10 * * ?",
    "60 10 * * ? *",
    "0 0-24 * * ? *",
    "0 0 ? * 8 *",
    "0 0 ? MAI 1 *",
    "0/0 0 * * ? *",
    "0 0 ? * 3#6 *",
    "0 0 ? * ٣ *",
)


@each_case(
    "expression",
    [
        *map("cron({})".format, BAD_FIELDS),
        "rate(5)",
        "rate(5 weeks)",
        "at(2026-02-30T00:00:00)",
        "every day",
    ],
)
def test_a_bad_expression_is_an_error_that_names_it(expression: str) -> None:
    for ask in (
        lambda of: due_times(of, 0, 1),
        lambda of: next_due(of, 0),
        lambda of: last_due(of, 0),
    ):
        with pytest.raises(ScheduleExpressionError) as caught:
            ask(schedule(expression))
        assert str(caught.value) == f"The schedule expression '{expression}' cannot be read."


def test_an_unknown_time_zone_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unknown time zone is an error that names it and UTC needs no data."""
    for zone in ("Mars/Olympus", "", "../etc/passwd", "/etc/localtime", "Europe", "a\0b", "\ud800"):
        with pytest.raises(
            ScheduleExpressionError, match="is unknown here: correct it, or install"
        ):
            next_due(schedule("cron(0 0 * * ? *)", zone), 0)
    monkeypatch.setattr("profiler.schedules.due_times.ZoneInfo", None)
    assert following(schedule("cron(0 3 * * ? *)"), "2026-01-01T00:00", 1) == ["2026-01-01T03:00"]


# --- Against the oracle


@st.composite
def lists(
    draw: DrawFn, lowest: int, highest: int, words: tuple[str, ...] = (), *, wraps: bool = True
) -> str:
    """A field of numbers, names, ranges and steps."""

    def value(number: int) -> str:
        spellings = [words[number - lowest], words[number - lowest].lower()] if words else []
        return draw(st.sampled_from([str(number), *spellings]))

    def part() -> str:
        first, last = draw(numbers), draw(numbers)
        step = draw(st.sampled_from(["", "", f"/{draw(st.integers(1, highest - lowest + 2))}"]))
        if last < first and not wraps:
            first, last = last, first
        forms = [
            value(first),
            f"{value(first)}-{value(last)}{step}",
            f"{value(first)}{step}",
            f"*{step}",
        ]
        return draw(st.sampled_from(forms))

    numbers = st.integers(lowest, highest)
    return ",".join(part() for _ in range(draw(st.integers(1, 3))))


DAYS_OF_MONTH = st.one_of(
    lists(1, 31),
    st.integers(1, 31).map("{}W".format),
    st.integers(0, 30).map("L-{}".format),
    st.sampled_from(["*", "L", "LW", "1,L", "15W,LW", "1-3,L-2"]),
)
DAYS_OF_WEEK = st.one_of(
    lists(1, 7, oracle.WEEKDAYS),
    st.builds(
        "{}#{}".format, st.integers(1, 7) | st.sampled_from(oracle.WEEKDAYS), st.integers(1, 5)
    ),
    st.builds("{}L".format, st.integers(1, 7) | st.sampled_from(oracle.WEEKDAYS)),
    st.sampled_from(["*", "L", "MON,6L"]),
)
DAYS = st.one_of(
    DAYS_OF_MONTH.map(lambda days: (days, "?")), DAYS_OF_WEEK.map(lambda days: ("?", days))
)


@pytest.mark.slow
@settings(max_examples=60)
@given(DAYS, lists(1, 12, oracle.MONTHS), lists(2023, 2030, wraps=False))
def test_the_days_are_those_of_the_oracle(days: tuple[str, str], months: str, years: str) -> None:
    expression = f"cron(0 12 {days[0]} {months} {days[1]} {years})"
    noons = [utc("2024-01-01T12:00") + number * DAY for number in range(5 * 366)]
    expected = [in_ns(noon) for noon in noons if oracle.names_date(expression, noon.date())]
    of = schedule(expression)
    assert list(due_times(of, in_ns(noons[0]), in_ns(noons[-1]) + 1)) == expected
    assert last_due(of, in_ns(noons[-1])) == (expected[-1] if expected else last_before(expression))


def last_before(expression: str) -> int | None:
    noons = (utc("2023-12-31T12:00") - number * DAY for number in range(54 * 365))
    return next((in_ns(noon) for noon in noons if oracle.names_date(expression, noon.date())), None)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.sampled_from(sorted(CHANGES)),
    st.integers(0, 1),
    lists(0, 59),
    lists(0, 23),
    DAYS,
    st.integers(-1500, 1500),
)
@example("Europe/Berlin", 0, "*/30", "*", ("*", "?"), 0)
@example("Europe/Berlin", 1, "*/30", "*", ("*", "?"), 20)
@example("Australia/Lord_Howe", 1, "*/7", "*", ("*", "?"), 3)
@example("Pacific/Apia", 0, "0", "*/6", ("?", "FRI"), -700)
def test_the_minutes_about_a_change_of_the_clock_are_those_of_the_oracle(
    zone: str, change: int, minutes: str, hours: str, days: tuple[str, str], shift: int
) -> None:
    expression = f"cron({minutes} {hours} {days[0]} * {days[1]} *)"
    middle = utc(CHANGES[zone][change]) + shift * MINUTE
    since, until = middle - DAY, middle + DAY
    expected = [in_ns(moment) for moment in oracle.cron_times(expression, zone, since, until)]
    of = schedule(expression, zone)
    assert list(due_times(of, in_ns(since), in_ns(until))) == expected
    before = [due_ns for due_ns in expected if due_ns <= in_ns(middle)]
    after = [due_ns for due_ns in expected if due_ns > in_ns(middle)]
    if before:
        assert last_due(of, in_ns(middle)) == before[-1]
    if after:
        assert next_due(of, in_ns(middle)) == after[0]


# --- Rates, once, and the life of a schedule


@given(
    st.integers(1, 400),
    st.sampled_from([("minute", 60), ("hour", 3600), ("day", 86_400)]),
    st.integers(0, 10**7),
    st.integers(0, 86_400 * 3),
    st.booleans(),
)
def test_a_rate_counts_from_its_start_else_from_its_creation(
    value: int,
    unit: tuple[str, int],
    offset_seconds: int,
    length_seconds: int,
    has_start: bool,  # noqa: FBT001
) -> None:
    anchor = utc("2026-01-01T00:00:17") + timedelta(microseconds=123)
    since = anchor + timedelta(seconds=offset_seconds - 1000)
    until = since + timedelta(seconds=length_seconds)
    expected = [
        in_ns(moment)
        for moment in oracle.rate_times(anchor, value * timedelta(seconds=unit[1]), since, until)
    ]
    start = {"created_ns": in_ns(anchor - DAY), "starts_ns": in_ns(anchor)}
    dates = start if has_start else {"created_ns": in_ns(anchor)}
    of = schedule(
        f"rate({value} {unit[0]}{'' if value == 1 else 's'})", "America/New_York", **dates
    )
    assert has_known_anchor(of)
    assert list(due_times(of, in_ns(since), in_ns(until))) == expected
    if expected:
        assert last_due(of, in_ns(until) - 1) == expected[-1]
        assert next_due(of, in_ns(since) - 1) == expected[0]


def test_the_due_times_of_a_rate_without_start_and_creation_are_unknown() -> None:
    of = schedule("rate(5 minutes)", kind="rule")
    assert not has_known_anchor(of)
    assert has_known_anchor(schedule("cron(0 0 * * ? *)", kind="rule"))
    assert times(of, "2026-01-01T00:00", "2026-02-01T00:00") == []
    assert next_due(of, 0) is None
    assert last_due(of, 10**18) is None


@given(st.sampled_from(sorted(CHANGES)), st.integers(0, 1), st.integers(-90_000, 90_000))
@settings(max_examples=25)
def test_an_at_is_due_where_the_oracle_finds_it(zone: str, change: int, shift_seconds: int) -> None:
    middle = utc(CHANGES[zone][change])
    local = (middle + timedelta(seconds=shift_seconds)).replace(tzinfo=None)
    since, until = middle - DAY, middle + DAY
    expected = [in_ns(moment) for moment in oracle.at_times(local, zone, since, until)]
    of = schedule(f"at({local:%Y-%m-%dT%H:%M:%S})", zone)
    assert list(due_times(of, in_ns(since), in_ns(until))) == expected


DAILY = ["2026-01-03T00:00", "2026-01-04T00:00"]
CRON, RATE = "cron(0 0 * * ? *)", "rate(1 day)"


@each_case(
    ("expression", "dates", "expected"),
    [
        (CRON, {"created": "2026-01-02T00:01"}, DAILY),
        (CRON, {"created": "2026-01-01T00:00", "starts": "2026-01-03T00:00"}, DAILY),
        (CRON, {"created": "2026-01-02T12:00", "starts": "2026-01-01T00:00"}, DAILY),
        (
            CRON,
            {"created": "2026-01-02T12:00", "ends": "2026-01-04T00:00"},
            DAILY,
        ),  # the end counts, too
        (CRON, {"created": "2026-01-02T12:00", "ends": "2026-01-03T23:59"}, DAILY[:1]),
        (CRON, {"starts": "2026-01-09T12:00"}, []),
        (CRON, {"created": "2025-12-31T12:00", "ends": "2025-12-31T13:00"}, []),
        (RATE, {"created": "2026-01-02T12:00", "starts": "2026-01-01T00:00"}, DAILY),
        (
            RATE,
            {
                "created": "2026-01-01T12:00",
                "starts": "2026-01-03T00:00",
                "ends": "2026-01-04T00:00",
            },
            DAILY,
        ),
        (RATE, {"created": "2026-01-03T00:00", "ends": "2026-01-04T23:59"}, DAILY),
        (RATE, {"created": "2026-01-02T12:00", "starts": "2026-01-09T00:00"}, []),
    ],
)
def test_nothing_is_due_before_the_start_or_the_creation_or_after_the_end(
    expression: str, dates: dict[str, str], expected: list[str]
) -> None:
    life: dict[str, Any] = {f"{name}_ns": ns(text) for name, text in dates.items()}
    of = schedule(expression, **life)
    assert times(of, "2026-01-01T00:00", "2026-01-05T00:00") == expected
    last_ns = last_due(of, ns("2026-01-04T23:59"))
    assert (last_ns and format_ms(last_ns)[:16]) == (expected[-1] if expected else None)


def test_an_at_ignores_the_start_and_end_dates_but_not_the_creation() -> None:
    dates: dict[str, Any] = {"starts_ns": ns("2026-02-01T00:00"), "ends_ns": ns("2026-03-01T00:00")}
    assert following(schedule("at(2026-01-01T12:00:00)", **dates), "2026-01-01T00:00", 2) == [
        "2026-01-01T12:00",
        None,
    ]
    assert (
        next_due(schedule("at(2026-01-01T12:00:00)", created_ns=ns("2026-01-02T00:00")), 0) is None
    )


@pytest.mark.parametrize(
    ("expression", "median", "p95", "overlap"),
    [
        ("cron(0 * * * ? *)", 70, 80, "takes 1h 10m, due every 1h 00m"),
        ("cron(0 * * * ? *)", 50, 65, "takes up to 1h 05m, due every 1h 00m"),
        ("cron(0 * * * ? *)", 50, 60, None),
        ("cron(0 2,3 * * ? *)", 70, 80, "takes 1h 10m, due again after 1h 00m"),
        ("rate(30 minutes)", 31, 31, "takes 31m 00s, due every 30m 00s"),
        ("at(2026-12-01T00:00:00)", 9999, 9999, None),
    ],
)
def test_the_usual_duration_against_the_shortest_gap(
    expression: str, median: float, p95: float, overlap: str | None
) -> None:
    now_ns = ns("2026-11-20T00:00")
    assert (
        overlap_clause(
            schedule(expression, created_ns=now_ns), now_ns, median * 60_000, p95 * 60_000
        )
        == overlap
    )


def shortest_ms(schedules: Sequence[Schedule], now_ns: int) -> float | None:
    """The shortest gap of any hour."""
    return min(shortest_gaps_ms(schedules, now_ns).values(), default=None)


@pytest.mark.parametrize(
    ("expressions", "minutes"),
    [
        (["rate(15 minutes)"], 15),
        (["cron(0 2 * * ? *)"], 24 * 60),
        (["cron(0 2 * * ? *)", "cron(30 3 1 * ? *)"], 90),  # on the first of a month
        (["cron(0 2 * * ? *)", "cron(0 2 1 * ? *)"], 24 * 60),  # at the same moment on purpose
        (["cron(0 2 * * ? *)", "no expression"], 24 * 60),
        (["at(2026-11-21T02:00:00)"], None),
        ([], None),
    ],
)
def test_the_shortest_time_between_the_due_times_of_a_familys_schedules(
    expressions: list[str], minutes: int | None
) -> None:
    now_ns = ns("2026-11-20T00:00")
    found_ms = shortest_ms([schedule(one, created_ns=now_ns) for one in expressions], now_ns)
    assert found_ms == (None if minutes is None else minutes * 60_000)


def test_a_rate_without_a_beginning_has_its_own_gap_alone() -> None:
    now_ns = ns("2026-11-20T00:00")
    given = [schedule("rate(2 hours)"), schedule("cron(30 * * * ? *)", created_ns=now_ns)]
    assert shortest_ms(given, now_ns) == 60 * 60_000
    assert shortest_ms(given[:1], now_ns) == 120 * 60_000


@pytest.mark.parametrize(
    ("given", "minutes"),
    [
        ((("cron(0 9 * * ? *)", "Europe/Berlin"), ("cron(30 5 * * ? *)", "America/New_York")), 90),
        ((("cron(0 1,3 * * ? *)", "Europe/Berlin"),), 60),
        ((("cron(0/5 * * * ? *)", "UTC"), ("cron(2 9 * * ? *)", "UTC")), 2),
        ((("cron(0 2 * * ? *)", "UTC"), ("cron(30 3 1 7 ? *)", "UTC")), 90),
        ((("cron(0 2 1 */3 ? *)", "UTC"), ("cron(0 4 1 */3 ? *)", "UTC")), 120),
        ((("cron(0/5 1,3 * * ? *)", "Europe/Berlin"), ("cron(59 3 * * ? *)", "Europe/Berlin")), 4),
    ],
    ids=["two zones", "a change of the clock", "often", "once a year", "rare", "often in a zone"],
)
def test_due_times_are_looked_at_for_a_year(given: Sequence[tuple[str, str]], minutes: int) -> None:
    now_ns = ns("2026-01-10T00:00")
    schedules = [schedule(one, zone, created_ns=now_ns) for one, zone in given]
    assert shortest_ms(schedules, now_ns) == minutes * 60_000


def test_a_gap_counts_for_the_hours_in_which_the_earlier_run_may_start() -> None:
    now_ns = ns("2026-01-10T00:00")
    night = schedule("cron(0 2 * * ? *)", created_ns=now_ns, window_minutes=90)
    morning = schedule("cron(0 9 * * ? *)", created_ns=now_ns)
    found = shortest_gaps_ms([night, morning], now_ns)
    hour_ms = 3_600_000
    assert found == {
        **dict.fromkeys((2, 3, 4), 5.5 * hour_ms),
        **dict.fromkeys((9, 10), 17 * hour_ms),
    }
    zoned = schedule("cron(0 2 * * ? *)", "Europe/Berlin", created_ns=now_ns)
    assert set(shortest_gaps_ms([zoned], now_ns)) == {23, 0, 1, 2}


@pytest.mark.parametrize(("window_minutes", "minutes"), [(0, 15), (10, 5), (15, 0), (60, 0)])
def test_a_flexible_window_of_the_earlier_run_shortens_the_gap(
    window_minutes: int, minutes: int
) -> None:
    now_ns = ns("2026-11-20T00:00")
    flexible = schedule("cron(0 2 * * ? *)", created_ns=now_ns, window_minutes=window_minutes)
    other = schedule("cron(15 2 * * ? *)", created_ns=now_ns)
    assert shortest_ms([flexible, other], now_ns) == minutes * 60_000


def test_a_flexible_window_shortens_the_gap_of_a_rate_without_a_beginning() -> None:
    flexible = schedule("rate(15 minutes)", window_minutes=5)
    assert shortest_ms([flexible], ns("2026-11-20T00:00")) == 10 * 60_000


@settings(max_examples=50)
@given(st.text(max_size=30) | st.text(alphabet="cronatei()*?,-/LW#0123456789 MOND", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for expression in (
        text,
        f"cron({text})",
        f"cron(0 0 {text} * ? *)",
        f"cron(0 0 ? * {text} *)",
        f"at({text})",
    ):
        try:
            next_due(schedule(expression), ns("2026-01-01T00:00"))
        except ScheduleExpressionError:
            continue
