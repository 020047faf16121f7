"""The commands that a notification offers: to look, to stop, to see what is due next.

Slack shows them as they are, the mail and other channels on one line. Who copies a command runs
it: one that a channel would show with other characters is in no notification. AWS's names have no
such characters, but a batch can write a line with any name.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from profiler.core.commands_to_copy import (
    NameArgument,
    aws_command_line,
    command_line,
    option_words,
)
from profiler.core.ecs_terms import cluster_name
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.job_notice import JobNotice
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.units import format_count
from profiler.schedules.schedule_model import STARTERS

# A longer one is left out. The command of a resize names up to five families.
MAX_COMMAND_BYTES: Final = 2000
# A channel replaces them, also the quotes of the shell around them, or makes one space of several.
_REPLACED = re.compile(r"""["\\`~<>\[\]|]|\s{2}""")
_SEE_DUE = "see what is due next"
# Between a command and what follows it on the line, so that a reader sees where it ends.
STEP_SEPARATOR: Final = " · "


class NextStep(Struct, frozen=True):
    """A command, and what it is for, as in "To look: …"."""

    purpose: str
    command: str


def show_command_of_run(run: EndedRun, *words: str) -> str:
    """A command about the run or its family, which reads the log group of the definition: a
    record's can be false.
    """
    log = run.report_log or run.log
    if not log:
        return command_line(*words, region=run.task.region)
    return command_line(*words, log_group=log.group, region=log.region or run.task.region)


def steps_after_run(run: EndedRun) -> tuple[NextStep, ...]:
    """What helps with a run that did not succeed, or not as its family does; nothing for another
    success. Of one that left nothing to show, doctor says why the family's runs do not start or
    have no report, or how the job ended.
    """
    is_notable = run.outcome.ran_out_of_memory or bool(run.unusual)
    if run.outcome.status == "success" and not is_notable:
        return ()
    if run.has_line and run.report_log is not None:
        return (NextStep("look", show_command_of_run(run, "show", run.task.id)),)
    steps = []
    named = run.record.batch.job_id or run.task.family
    if named:
        command = command_line("doctor", NameArgument(named), region=run.task.region)
        steps.append(NextStep("look", command))
    is_scheduled = (run.task.started_by or "").startswith(tuple(STARTERS.values()))
    if is_scheduled and not run.has_started:
        steps.append(_show_schedules_step(run.task.cluster, run.task.region))
    return tuple(steps)


def steps_after_job(notice: JobNotice) -> tuple[NextStep, ...]:
    """Where the newest attempt of a failed job, or of an array's children, is looked at, or why a
    job does not start.
    """
    job = notice.job
    if notice.is_success:
        return ()
    if notice.is_blocked_or_unattempted:
        return (NextStep("look", command_line("doctor", job.id, region=job.region)),)
    command = command_line("show", job.id, log_group=job.log_group, region=job.region)
    return (NextStep("look", command),)


def steps_while_running(line: NoticeLine) -> tuple[NextStep, ...]:
    """How to watch the task, and how to stop it."""
    record = line.record
    cluster = cluster_name(record.cluster)
    if not cluster:
        return ()
    watch = command_line("watch", record.task_id, "--cluster", cluster, region=record.region)
    task = ("--cluster", cluster, "--task", record.task_id)
    stop = aws_command_line("ecs", "stop-task", *task, region=record.region)
    return NextStep("look", watch), NextStep("stop it", stop)


def steps_after_due_time(line: ScheduleNoticeLine) -> tuple[NextStep, ...]:
    """How to see the schedule's due times; for a run that is missing, what is wrong with its task;
    for one that is there, how to watch it. Of jobs, their queue is looked at.
    """
    families = line.families
    if line.is_of_jobs:
        due = command_line("schedules", *map(NameArgument, families), region=line.region)
        queue = option_words({"--queue": line.queue})
        look = command_line(
            "watch" if line.notice.task_id else "doctor", *queue, region=line.region
        )
        return NextStep(_SEE_DUE, due), NextStep("look", look)
    steps = [_show_schedules_step(cluster_name(line.cluster), line.region)]
    if line.notice.kind == "missed" and len(families) == 1:
        steps.append(
            NextStep("look", command_line("doctor", NameArgument(families[0]), region=line.region))
        )
    cluster = cluster_name(line.cluster)
    if line.notice.task_id and cluster:
        words = ("watch", line.notice.task_id, "--cluster", cluster)
        steps.append(NextStep("watch it", command_line(*words, region=line.region)))
    return tuple(steps)


def _show_schedules_step(cluster: str | None, region: str | None) -> NextStep:
    words = option_words({"--cluster": cluster})
    return NextStep(_SEE_DUE, command_line("schedules", *words, region=region))


def is_command_shown_whole(command: str) -> bool:
    """Whether each channel shows a command as it is."""
    length_bytes = len(command.encode(errors="replace"))
    return length_bytes <= MAX_COMMAND_BYTES and not _REPLACED.search(command)


def steps_shown_whole(steps: Iterable[NextStep]) -> Iterator[NextStep]:
    """The steps that each channel shows as they are."""
    return (step for step in steps if is_command_shown_whole(step.command))


def steps_in_words(steps: Iterable[NextStep], fits: Callable[[str], bool]) -> str:
    """The steps on one line: "To look: task-profiler … · To stop it: aws ecs …".

    ``fits``: whether each channel shows a line whole. A command is whole or not there: then the
    line ends with the number of those that are left out.
    """
    words: list[str] = []
    left_out = 0
    for step in steps:
        longer = [*words, f"To {step.purpose}: {step.command}"]
        if is_command_shown_whole(step.command) and fits(STEP_SEPARATOR.join(longer)):
            words = longer
        else:
            left_out += 1
    if left_out:
        verb = "is" if left_out == 1 else "are"
        words.append(f"{format_count(left_out, 'command')} {verb} left out here")
    return STEP_SEPARATOR.join(words)
