"""What a notification of an ended run advises: the size, why, and the command that changes it."""

import math

from msgspec import Struct

from profiler.core.commands_to_copy import NameArgument
from profiler.core.ecs_terms import FARGATE
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.notifications.next_steps import NextStep, show_command_of_run
from profiler.forwarder.notifications.value_formats import recommended_size_words
from profiler.record.record_model import NO_RECOMMENDATION, UNKNOWN_SIZE, TaskSize
from profiler.record.run_usage import run_usage_of
from profiler.record.task_needs import is_job


class RunAdvice(Struct, frozen=True, kw_only=True):
    """``size`` is a sentence, empty where the run has the recommended size. ``steps`` shows the
    plan of the change, where the family's definition can be changed.
    """

    size: str = ""
    reasons: tuple[str, ...] = ()
    steps: tuple[NextStep, ...] = ()


NO_ADVICE = RunAdvice()


def advice_after(run: EndedRun) -> RunAdvice:
    """The advice of the run's report; none from numbers before the end."""
    record = run.record
    advice = record.recommendation
    if advice == NO_RECOMMENDATION:
        return NO_ADVICE
    if TaskSize(vcpu=advice.vcpu, memory_mb=advice.memory_mb) == record.task_size:
        return RunAdvice(reasons=advice.reasons)
    if _is_before_the_end(run):
        return NO_ADVICE
    size = recommended_size_words(advice, run_usage_of(record).beside_text)
    if not size or record.launch_type not in (FARGATE, None) or is_job(record):
        return RunAdvice(size=size, reasons=advice.reasons)
    command = show_command_of_run(run, "taskdef", "resize", NameArgument(run.family))
    steps = (NextStep("see the plan of this size", command),)
    return RunAdvice(size=size, reasons=advice.reasons, steps=steps)


def _is_before_the_end(run: EndedRun) -> bool:
    """Whether the advice is from numbers before the end, which do not show what the run needed."""
    advice = run.record.recommendation
    limit_mb = run.metrics.memory_size_mb
    vcpu = advice.vcpu or math.inf
    memory_mb = advice.memory_mb or math.inf
    was = run.record.task_size
    if was == UNKNOWN_SIZE:
        was = TaskSize(vcpu=run.metrics.vcpu_size, memory_mb=limit_mb)
    is_smaller = vcpu < (was.vcpu or 0) or memory_mb < (was.memory_mb or 0)
    has_no_more = run.outcome.ran_out_of_memory and memory_mb <= (limit_mb or 0)
    return has_no_more or (run.outcome.status == "failure" and is_smaller)
