"""The table of schedules at any width, and the JSON of a row."""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.cli.schedules_command import ScheduleRow, order_of, schedule_row, table_lines
from profiler.core.timestamps import parse_ns
from profiler.record.family_identity import UsualDuration
from profiler.schedules.due_outcomes import JudgedSchedule
from profiler.schedules.schedule_model import DueTime, Schedule
from tests.terminals import texts

NOW = parse_ns("2026-11-20T08:00:00Z") or 0
CLUSTER = "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs"
MINUTE_MS = 60_000


def schedule(name: str, expression: str, **more: Any) -> Schedule:
    arn = f"arn:aws:ecs:eu-west-1:123456789012:task-definition/{name}:7"
    identity: dict[str, Any] = {"kind": "schedule", "name": name, "expression": expression, "definition_arn": arn}
    return Schedule(**identity | {"cluster_arn": CLUSTER, "created_ns": NOW - 10**15} | more)


def due(outcome: Any, moment: str = "2026-11-20T02:00:00Z", reason: str | None = None) -> DueTime:
    return DueTime(due_ns=parse_ns(moment) or 0, outcome=outcome, reason=reason)


def rows() -> list[ScheduleRow]:
    judged = (
        (schedule("nightly-etl", "cron(0 2 * * ? *)"), due("ran"), 20),
        (schedule("load", "cron(30 7 * * ? *)", time_zone="Europe/Berlin"), due("missed"), None),
        (schedule("hourly-import", "rate(1 hour)", group="imports"), due("overlapped", reason="It still ran."), 70),
        (schedule("weekly-a", "cron(0 2 ? * MON *)"), due("unknown", reason="ECS forgot."), None),
        (schedule("weekly-b", "cron(0 2 ? * MON *)"), due("unknown", reason="ECS forgot."), None),
    )
    made = [
        schedule_row(
            JudgedSchedule(schedule=one, due_times=(last,)),
            UsualDuration(median_ms=minutes * MINUTE_MS, p95_ms=minutes * MINUTE_MS, runs=9) if minutes else None,
            NOW,
        )
        for one, last, minutes in judged
    ]
    made.append(schedule_row(JudgedSchedule(schedule=schedule("new", "cron(0 9 * * ? *)")), None, NOW))
    return sorted(made, key=order_of)


def shown(width: int | None) -> str:
    return "".join(f"{row}\n" for row in texts(table_lines(rows(), width)))


WIDE = """\
Schedule               Expression                        Last due (UTC)    Outcome     Next due            Usual
load                   cron(30 7 * * ? *) Europe/Berlin  2026-11-20 02:00  missed      2026-11-21 06:30        -
imports/hourly-import  rate(1 hour) UTC                  2026-11-20 02:00  overlapped  2026-11-20 08:13   1h 10m
weekly-a               cron(0 2 ? * MON *) UTC           2026-11-20 02:00  unknown     2026-11-23 02:00        -
weekly-b               cron(0 2 ? * MON *) UTC           2026-11-20 02:00  unknown     2026-11-23 02:00        -
nightly-etl            cron(0 2 * * ? *) UTC             2026-11-20 02:00  ran         2026-11-21 02:00  20m 00s
new                    cron(0 9 * * ? *) UTC             -                 none        2026-11-20 09:00        -

- imports/hourly-import: It still ran.
- imports/hourly-import: takes 1h 10m, due every 1h 00m.
- weekly-a, weekly-b: ECS forgot.
"""


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert shown(None) == shown(140) == WIDE
    narrow = shown(80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.partition("\n\n")[2] == WIDE.partition("\n\n")[2]  # the sentences fit


@pytest.mark.usefixtures("los_angeles")
def test_the_times_of_the_sentences_are_those_of_the_table() -> None:
    late = replace(rows()[0], last_ns=parse_ns("2026-11-20T01:00:00Z"), reason="It ran at 2026-11-20T01:00:06.000Z.")
    text = "\n".join(texts(table_lines([late], None)))
    assert "(PST/PDT)" in text
    assert text.count("2026-11-19 17:00") == 2
    assert late.as_json()["reason"] == "It ran at 2026-11-20T01:00:06.000Z."


def test_a_row_as_json() -> None:
    (row,) = [one for one in rows() if one.schedule.name == "hourly-import"]
    assert row.as_json() == {
        "name": "hourly-import",
        "kind": "schedule",
        "expression": "rate(1 hour)",
        "timeZone": "UTC",
        "cluster": "jobs",
        "family": "hourly-import",
        "lastDue": "2026-11-20T02:00:00.000Z",
        "outcome": "overlapped",
        "reason": "It still ran.",
        "nextDue": "2026-11-20T08:13:20.000Z",
        "usualDurationMs": 4_200_000,
        "overlap": "takes 1h 10m, due every 1h 00m",
    }
