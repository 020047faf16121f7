"""What outputs tell of a run: how it ended, what it used, and the rest as rows, all made once.

The terminal, the report page, Slack, mails and events print the rows that they have room for, by
their names, and word nothing themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from profiler.core.text import as_sentence
from profiler.record.activity_model import WaitTarget
from profiler.record.batch_job import job_text
from profiler.record.container_engine_clients import container_client_text
from profiler.record.cpu_wait import long_cpu_wait
from profiler.record.fact_list import bytes_texts, cost_text, kills_fact, longest_wait_targets
from profiler.record.hardware import visible_cpus_advice, visible_memory_advice
from profiler.record.held_huge_pages import huge_pages_text
from profiler.record.mapped_files import mapped_files_text
from profiler.record.process_rows import largest_process_texts
from profiler.record.record_model import NO_NEURON, NOT_MEASURED, Record
from profiler.record.run_outcome import Outcome
from profiler.record.run_usage import RunUsage, run_usage_of
from profiler.record.success_advice import memory_advice, time_advice
from profiler.record.time_shares import TimeShare, time_shares

RowName = Literal[
    "job",
    "cost",
    "unmeasured",
    "files",
    "huge",
    "CPU wait",
    "GPU use",
    "GPU idle",
    "GPU work",
    "GPU error",
    "GPU remedy",
    "GPU advice",
    "Neuron use",
    "ECC",
    "memory advice",
    "time advice",
    "memory limit",
    "CPU limit",
    "killed",
    "I/O",
    "largest",
    "warning",
]
# What the memory used lacks: kept pages of files, and huge pages.
BESIDE_MEMORY: Final[tuple[RowName, ...]] = ("files", "huge")
# The limits that a program does not see, where it hit them.
UNSEEN_LIMITS: Final[tuple[RowName, ...]] = ("memory limit", "CPU limit")
# Whose the numbers of the GPUs are, when they were idle and what that costs, how they worked, an
# error that the verdict does not say, errors of their memory (also of Neuron devices), and what to
# do if their memory was too small.
GPU_NOTES: Final[tuple[RowName, ...]] = ("GPU idle", "GPU work", "GPU error", "ECC", "GPU remedy")
# Between the texts of a row.
DOT: Final = " · "


class StoryRow(Struct, frozen=True):
    """A row: its name, its text in a list, and, where that is another one, its sentence."""

    name: RowName
    text: str
    said: str = ""

    @property
    def sentence(self) -> str:
        return self.said or as_sentence(self.text)


class Story(Struct, frozen=True, kw_only=True):
    """How a run ended, what it used, where its time went, and its rows in their order; some names
    have several.

    ``waits``: what it waited for, the longest one first, without short ones. ``covered_percent``:
    the part of the run in which its threads were seen; None if that is unknown.
    """

    outcome: Outcome
    usage: RunUsage
    time: tuple[TimeShare, ...]
    waits: tuple[WaitTarget, ...]
    covered_percent: float | None
    rows: tuple[StoryRow, ...]

    @property
    def advice(self) -> list[StoryRow]:
        """What to do about a run that succeeded, the most useful first, without its size."""
        by_memory = self.rows_named("memory advice")
        on_gpus = self.rows_named("GPU advice")
        first = [*on_gpus, *by_memory] if self.usage.gpus.idle else [*by_memory, *on_gpus]
        return [*first, *self.rows_named("time advice")]

    def rows_named(self, *names: RowName) -> list[StoryRow]:
        """The rows of these names that the run has."""
        return [row for row in self.rows if row.name in names]

    def first_text_named(self, name: RowName) -> str:
        """The text of the first row of this name; "" without one."""
        return next((row.text for row in self.rows_named(name)), "")

    def first_sentence_named(self, name: RowName) -> str:
        """The sentence of the first row of this name; "" without one."""
        return next((row.sentence for row in self.rows_named(name)), "")


def story_of(record: Record, outcome: Outcome, usage: RunUsage | None = None) -> Story:
    """All rows of a run that ended so. ``usage``: what it used, if that is known already."""
    usage = usage or run_usage_of(record)
    rows = tuple(row for row in _story_rows(record, usage, outcome) if row.text)
    times = record.time_breakdown
    return Story(
        outcome=outcome,
        usage=usage,
        time=time_shares(times, is_wait_partial=usage.cpu.is_wait_partial),
        waits=longest_wait_targets(times),
        covered_percent=times.covered_percent,
        rows=rows,
    )


def _story_rows(record: Record, usage: RunUsage, outcome: Outcome) -> Iterator[StoryRow]:
    yield StoryRow("job", job_text(record.batch))
    yield StoryRow("cost", cost_text(record.cost))
    yield StoryRow("unmeasured", _unmeasured_text(record, usage, outcome))
    yield StoryRow("files", mapped_files_text(record.metrics))
    yield StoryRow("huge", huge_pages_text(record.metrics))
    wait = long_cpu_wait(record)
    yield StoryRow("CPU wait", wait.text, as_sentence(wait.sentence))
    # A record that was too long has lost its GPUs, but not their idle time.
    has_gpus = record.gpus or record.gpu_idle is not None or outcome.cause == "gpu-oom"
    if has_gpus or record.neuron != NO_NEURON:
        yield from _device_rows(record, usage, outcome)
    is_killed = outcome.ran_out_of_memory
    if outcome.status == "success" and not is_killed:
        yield StoryRow("memory advice", memory_advice(record))
        said = wait.sentence and f"{wait.sentence}."
        yield StoryRow("time advice", time_advice(record, said))
    memory = visible_memory_advice(record, is_out_of_memory=is_killed)
    yield StoryRow("memory limit", memory or "")
    yield StoryRow("CPU limit", visible_cpus_advice(record) or "")
    kills = kills_fact(record.memory_kills)
    yield StoryRow("killed", kills.text, kills.sentence)
    yield StoryRow("I/O", DOT.join(bytes_texts(record)))
    yield StoryRow("largest", DOT.join(largest_process_texts(record.processes, usage.memory.peak)))
    yield StoryRow("warning", container_client_text(record))
    for warning in record.monitor.warnings:
        yield StoryRow("warning", warning)


def _unmeasured_text(record: Record, usage: RunUsage, outcome: Outcome) -> str:
    """Why a run has neither a CPU nor a memory number; "" if it has one."""
    has_memory = record.metrics.has_memory or usage.memory.used != NOT_MEASURED
    if record.sampling.samples != 0 or has_memory or usage.cpu.used != NOT_MEASURED:
        return ""
    what = "The run ended before its first sample"
    if outcome.status in ("unknown", "running"):
        what = "No sample was taken"
    return f"{what}: CPU and memory were not measured"


def _device_rows(record: Record, usage: RunUsage, outcome: Outcome) -> Iterator[StoryRow]:
    # Most runs have no devices.
    from profiler.record.gpu_facts import (
        device_memory_sentences,
        gpu_error_note,
        gpu_remedy,
        gpu_work_texts,
    )
    from profiler.record.gpu_sentences import gpu_advice, gpu_idle_texts

    gpus = usage.gpus
    yield StoryRow("GPU use", gpus.text)
    for text in gpu_idle_texts(record):
        yield StoryRow("GPU idle", text)
    yield StoryRow("GPU work", DOT.join(gpu_work_texts(record, gpus, outcome)))
    yield StoryRow("GPU error", gpu_error_note(record, outcome))
    yield StoryRow("GPU remedy", gpu_remedy(record, outcome))
    if outcome.status in ("success", "running"):
        for text in gpu_advice(record, gpus):
            yield StoryRow("GPU advice", text)
    yield StoryRow("Neuron use", usage.neuron.text)
    for text in device_memory_sentences(record):
        yield StoryRow("ECC", text)
