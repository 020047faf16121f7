"""A family may be named like an option, and a person copies the commands of a notification."""

import shlex

import pytest
from msgspec.structs import replace

from profiler.cli.resize_command import resize
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.kill_after_resize import reduced_memory_sentence, size_change_of_definition
from profiler.forwarder.notifications.next_steps import steps_after_due_time, steps_after_run
from profiler.forwarder.notifications.run_advice import advice_after
from profiler.record.notice_model import NoticedSchedule, ScheduleNotice, ScheduleNoticeLine
from profiler.record.record_model import Recommendation
from profiler.record.stop_causes import EventEnd
from tests.ended_runs import RECORD, TASK, report_line, run_of
from tests.values import present

RESIZED = {"memory": "512", "tags": [{"key": "task-profiler:resized-from", "value": "4/1024/4096"}]}
KILLED = EventEnd(cause="oom", out_of_memory=True, exit_code=137)
FAMILIES = ["-x", "--register", "--yes"]


def ended(family: str, *, has_line: bool = True) -> EndedRun:
    arn = f"arn:aws:ecs:eu-west-1:111122223333:task-definition/{family}:7"
    task = replace(TASK, definition_arn=arn, memory_mb=512)
    record = replace(RECORD, recommendation=Recommendation(vcpu=1, memory_mb=4096))
    return run_of(task, KILLED, "batch", report_line(record) if has_line else None)


def commands(family: str) -> list[str]:
    """Of a run that was killed, of one that left nothing, and of schedules."""
    run = ended(family)
    assert run.family == family
    back = present(reduced_memory_sentence(run, size_change_of_definition(RESIZED))).partition(
        "This puts it back: "
    )[2]
    steps = [*advice_after(run).steps, *steps_after_run(ended(family, has_line=False))]
    for queue in (None, "nightly"):
        line = ScheduleNoticeLine(
            time="2026-03-01T10:00:00Z",
            schedule=NoticedSchedule(name="night", kind="schedule"),
            notice=ScheduleNotice(kind="missed", message="missed", due_at="2026-03-01T10:00:00Z"),
            family=family,
            queue=queue,
        )
        steps += [step for step in steps_after_due_time(line) if family in step.command]
    return [back, *(step.command for step in steps)]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_command_takes_a_familys_name_for_an_option(family: str) -> None:
    found = [*map(shlex.split, commands(family))]
    kinds = [" ".join(words[1:3]) for words in found]
    assert len(found) == 5, kinds
    for words in found:
        assert words[-2:] == ["--", family]
    assert "--revert" in found[0][:-2]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_command_reads_it_as_a_family(family: str) -> None:
    plan = shlex.split(present(next(iter(advice_after(ended(family)).steps))).command)
    context = resize.make_context("resize", plan[3:])
    assert context.params["globs"] == (family,)
    assert not context.params["register"]
