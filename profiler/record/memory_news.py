"""Whether the memory of a run that goes on is news: above everything that earlier successes of its
family reached.

Where nothing is known of the family, the monitor's forecast counts.
"""

import math
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import first_known, first_of, known
from profiler.core.text import words_if_known
from profiler.record.bounded_json_line import without_lists
from profiler.record.family_statistics import HighestPeak
from profiler.record.measured import Number
from profiler.record.mention_limits import NEAR_FULL_SHARE
from profiler.record.notice_model import Notice, NoticeEvidence, NoticeLine
from profiler.record.record_model import CHECKPOINT, Record, Report
from profiler.record.units import format_memory_share, format_minutes, format_share

MEMORY_NOTICE: Final = "memory"


class MemoryNow(Struct, frozen=True, kw_only=True):
    """What a run uses now, its size, and the minutes until it is full at its pace, if a forecast
    says so. ``counts_files``: what it uses may include pages of mapped files.
    """

    used_mb: Number
    size_mb: Number
    minutes_left: float | None = None
    counts_files: bool = False

    @property
    def is_near_full(self) -> bool:
        return self.used_mb >= NEAR_FULL_SHARE * self.size_mb

    def is_comparable_with(self, peak: HighestPeak) -> bool:
        """Whether the peaks of earlier runs say anything about this one: without their mapped
        files, they are below what an older monitor calls used.
        """
        return peak.counts_files or not self.counts_files


def memory_now(record: Record, evidence: NoticeEvidence | None = None) -> MemoryNow | None:
    """The memory of a running batch: in a notice's evidence, in the last interval, else so far."""
    evidence = evidence or NoticeEvidence()
    used_mb = first_of(
        (
            evidence.used_mb,
            record.interval.memory_used_mb.max,
            record.metrics.max_memory_used_mb,
        )
    )
    size_mb = first_known(evidence.size_mb, record.metrics.memory_size_mb)
    if used_mb is None or not size_mb or not math.isfinite(used_mb / size_mb):
        return None
    return MemoryNow(
        used_mb=used_mb,
        size_mb=size_mb,
        minutes_left=evidence.minutes_left,
        counts_files=record.metrics.counts_files,
    )


def is_checkpoint_near_full(report: Report) -> bool:
    """Whether the checkpoint of a running batch shows most of its memory in use."""
    if report.type != CHECKPOINT:
        return False
    now = memory_now(report.record)
    return now is not None and now.is_near_full


def memory_news_text(now: MemoryNow, peak: HighestPeak) -> str:
    """A sentence without its full stop, if the run uses more than all successes did; "" if that
    is no news.
    """
    if not now.is_comparable_with(peak) or not peak.is_exceeded_by(now.used_mb, now.size_mb):
        return ""
    text = (
        f"The run's memory is at {format_memory_share(now.used_mb, now.size_mb)}, above everything "
        f"that {peak.runs} earlier runs reached ({format_share(peak.peak_mb, now.size_mb)})"
    )
    return text + words_if_known(
        ", full in {} at this pace", known(format_minutes, now.minutes_left)
    )


def notice_if_news(line: NoticeLine, peak: HighestPeak) -> NoticeLine | None:
    """A forecast of the monitor in the words of what is known of its family; None if it is no
    news.
    """
    notice = line.notice
    now = memory_now(line.record, notice.evidence)
    if now is None or not now.is_comparable_with(peak):
        return line
    text = memory_news_text(now, peak)
    if not text:
        return None
    evidence = _evidence_with_peak(notice.evidence or NoticeEvidence(), now, peak)
    return replace(line, notice=replace(notice, message=f"{text}.", evidence=evidence))


def notice_of_checkpoint(report: Report, peak: HighestPeak) -> NoticeLine | None:
    """The notice that a checkpoint is worth; None if it is no news."""
    now = memory_now(report.record)
    if now is None:
        return None
    text = memory_news_text(now, peak)
    if not text:
        return None
    evidence = _evidence_with_peak(NoticeEvidence(), now, peak)
    notice = Notice(kind=MEMORY_NOTICE, message=f"{text}.", since=report.time, evidence=evidence)
    return NoticeLine(time=report.time, notice=notice, record=without_lists(report.record))


def _evidence_with_peak(
    evidence: NoticeEvidence, now: MemoryNow, peak: HighestPeak
) -> NoticeEvidence:
    return replace(
        evidence,
        used_mb=now.used_mb,
        size_mb=now.size_mb,
        earlier_peak_mb=peak.peak_mb,
        earlier_runs=peak.runs,
    )
