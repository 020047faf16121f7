"""What happened to a run, in one sentence, with the evidence in another."""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import known
from profiler.core.text import words_if_known
from profiler.core.timestamps import NS_PER_MS
from profiler.record.hardware import most_telling_gpu_error
from profiler.record.measured import Exactly
from profiler.record.record_model import (
    CHECKPOINT,
    LOCAL,
    Metrics,
    Record,
)
from profiler.record.run_outcome import Outcome
from profiler.record.units import (
    format_duration,
    format_memory,
    format_memory_share,
    format_share,
)
from profiler.runs.past_runs.lost_runs import LOST, is_silent
from profiler.runs.past_runs.past_run import PastRun

UNCONFIRMED = "Unconfirmed: nothing proves whose task this was, so it counts in no advice."


class VerdictSentences(Struct, frozen=True, kw_only=True):
    """The verdict on a run. ``evidence`` is "" if the first sentence contains it."""

    text: str
    evidence: str = ""
    tone: Literal["good", "bad", "warning", "neutral"]


def verdict_of(run: PastRun, now_ns: int) -> VerdictSentences:
    """Say what happened to a run, and whether it counts."""
    verdict = _verdict_of(run, now_ns)
    if run.counts:
        return verdict
    evidence = f"{verdict.evidence} {UNCONFIRMED}".lstrip()
    return replace(verdict, evidence=evidence)


def _verdict_of(run: PastRun, now_ns: int) -> VerdictSentences:
    record = run.record
    outcome = run.outcome
    family = record.family or record.container.name or "The run"
    name = family + words_if_known(":{}", record.revision)
    status = outcome.status
    if status == "running" or record.status == LOST:
        return _running_verdict(run, name, now_ns)
    if outcome.ran_out_of_memory:
        return _out_of_memory_verdict(record, outcome, name)
    if status == "success":
        return _success_verdict(record, name)
    if status == "failure":
        return _failure_verdict(run, outcome, name)
    if status == "stopped":
        return VerdictSentences(
            text=f"{name} was stopped{_after_duration(record)}.",
            evidence=_stop_sentence(record, outcome),
            tone="warning",
        )
    # The command may have run on when its profiler was killed, and the task after its last minute.
    may_run = record.launch_type == LOCAL or (
        record.is_sampled_each_minute and record.finished_at is None
    )
    if may_run:
        text = f"The result of {name} is unknown."
    else:
        text = f"{name} ended{_after_duration(record)} with an unknown result."
    return VerdictSentences(text=text, evidence=_lost_sentence(run), tone="warning")


def _success_verdict(record: Record, name: str) -> VerdictSentences:
    """An error of the GPU's driver is a warning: the result may be wrong."""
    text = f"{name} succeeded{_duration_text(record, ' in ')}."
    if not most_telling_gpu_error(record):
        return VerdictSentences(text=text, tone="good")
    return VerdictSentences(text=text, evidence=_gpu_error_text(record), tone="warning")


def _gpu_error_text(record: Record) -> str:
    from profiler.record.gpu_facts import gpu_error_text  # most runs have no GPU

    return gpu_error_text(record)


def _running_verdict(run: PastRun, name: str, now_ns: int) -> VerdictSentences:
    seen_ns = run.report.time_ns
    if seen_ns is None or not is_silent(run.report, now_ns):
        return VerdictSentences(
            text=f"{name} is running{_duration_text(run.record, ', for ', ' so far')}.",
            evidence="This is its last checkpoint: the numbers are not final.",
            tone="neutral",
        )
    return VerdictSentences(
        text=(
            f"{name} was running when it was last seen, "
            f"{format_duration((now_ns - seen_ns) / NS_PER_MS)} ago."
        ),
        evidence=(
            "Only checkpoints were found, and no report: the task was lost, or its report is in "
            "another place."
        ),
        tone="warning",
    )


def _out_of_memory_verdict(record: Record, outcome: Outcome, name: str) -> VerdictSentences:
    metrics = record.metrics
    if outcome.status == "success":
        kills = record.memory_kills
        count = "a process" if kills is None or kills.count == 1 else f"{kills.count} processes"
        return VerdictSentences(
            text=f"{name} succeeded{_duration_text(record, ' in ')}, but ran out of memory.",
            evidence=f"The kernel killed {count} for lack of memory: the result may be incomplete.",
            tone="warning",
        )
    if outcome.memory_evidence == "ecs" and outcome.reason:
        evidence = f"ECS reported: {outcome.reason.rstrip('.')}."
    elif record.is_sampled_each_minute:
        evidence = "ECS reported an OutOfMemoryError."
    elif outcome.memory_evidence == "kernel-counter" or record.memory_kills is not None:
        evidence = f"The kernel counted the kill{_peak_text(metrics)}."
    else:
        code = words_if_known(", exit code {}", outcome.exit_code_text)
        evidence = f"It was killed{_peak_text(metrics)}{code}. No stop was requested."
    return VerdictSentences(
        text=f"{name} ran out of memory{_after_duration(record)}.", evidence=evidence, tone="bad"
    )


def _out_of_gpu_memory_verdict(record: Record, outcome: Outcome, name: str) -> VerdictSentences:
    from profiler.record.gpu_facts import gpu_memory_evidence_text, gpu_memory_sentence

    evidence = gpu_memory_evidence_text(record)
    if evidence:
        evidence += words_if_known(" Exit code {}.", outcome.exit_code_text)
    text = gpu_memory_sentence(name, _after_duration(record))
    return VerdictSentences(text=text, evidence=evidence, tone="bad")


def _failure_verdict(run: PastRun, outcome: Outcome, name: str) -> VerdictSentences:
    record = run.record
    if outcome.cause == "gpu-oom":
        return _out_of_gpu_memory_verdict(record, outcome, name)
    cause = _gpu_error_text(record) if outcome.cause == "gpu-error" else _cause_sentence(outcome)
    exit_code = outcome.exit_code_text
    if exit_code is None:
        if record.started_at is None:
            text = f"{name} did not start."
        else:
            text = f"{name} failed{_after_duration(record)}."
        return VerdictSentences(text=text, evidence=cause or _lost_sentence(run), tone="bad")
    used_mb = record.metrics.max_memory_used_mb
    size_mb = record.metrics.memory_size_mb
    if record.likely_out_of_memory is False and not cause and used_mb is not None and size_mb:
        # The measurement alone: a runtime can end at its own lower limit, such as a heap size.
        share = f"at most {format_memory_share(used_mb, size_mb)}"
        cause = f"No sample reached the memory limit: {share} was seen."
        if isinstance(record.metrics.memory_peak, Exactly):
            cause = f"The memory limit was not reached: {share} was used."
    return VerdictSentences(
        text=f"{name} failed with exit code {exit_code}{_after_duration(record)}.",
        evidence=cause,
        tone="bad",
    )


def _stop_sentence(record: Record, outcome: Outcome) -> str:
    cause = _cause_sentence(outcome)
    if cause and record.launch_type != LOCAL:
        return cause
    code = outcome.exit_code_text
    if code is None:
        return "The task was stopped before the batch ended; the exit code was not seen."
    if record.launch_type == LOCAL:
        return f"A signal asked it to stop, and it ended with exit code {code}."
    return f"The task was stopped before the batch ended, with exit code {code}."


def _cause_sentence(outcome: Outcome) -> str:
    """Why the run ended, and ECS's text; not the exit code, which stands in the verdict."""
    words = "" if outcome.cause in ("failure", "unknown") else outcome.sentence
    reason = (outcome.additional_reason or "").rstrip(".")
    if words and reason:
        return f"{words}: {reason}."
    if reason:
        return f"ECS reported: {reason}."
    return f"{words}." if words else ""


def _lost_sentence(run: PastRun) -> str:
    if run.record.is_sampled_each_minute:
        is_ended = run.record.finished_at is not None
        if is_ended:
            return "ECS reported no exit code."
        return "Container Insights does not record how a task ends."
    is_checkpoint = run.report.type == CHECKPOINT
    if run.record.launch_type == LOCAL and not is_checkpoint:
        return "The profiler did not see the end of the command."
    if not run.has_record:
        return "The run left no report: only what ECS reported is known."
    if is_checkpoint:
        return "The run left no report: the numbers come from its last checkpoint."
    return "The monitor did not see the end of the batch."


def _duration_text(record: Record, before: str, after: str = "") -> str:
    """The run's duration between two texts; nothing if it is unknown."""
    return words_if_known(before + "{}" + after, known(format_duration, record.metrics.duration_ms))


def _after_duration(record: Record) -> str:
    return _duration_text(record, " after ")


def _peak_text(metrics: Metrics) -> str:
    used_mb = metrics.max_memory_used_mb
    size_mb = metrics.memory_size_mb
    if used_mb is None:
        return ""
    if size_mb:
        of_size = f" of its {format_memory(size_mb)} ({format_share(used_mb, size_mb)})"
    else:
        of_size = ""
    return f" at {metrics.memory_peak.text(format_memory)}{of_size}"
