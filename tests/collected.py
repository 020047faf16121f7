"""The record that a program makes of other measurements and of its collectors."""

from collections.abc import Iterable

from profiler.aggregation.memory_peak import Exactness, evidence_from
from profiler.aggregation.record_assembly import RecordDraft
from profiler.aggregation.record_evidence import CpuEvidence, RunEvidence
from profiler.aggregation.run_end import RunEnd
from profiler.collectors.collector import collected_parts
from profiler.collectors.collector_kinds import Collector
from profiler.core.timestamps import parse_ns
from profiler.readers.container_sample import ResourceLimits
from profiler.record.record_model import Record, known_status
from profiler.record.units import MIB

COMMAND = ""


def size_bytes(size_mb: float | None) -> float | None:
    return None if size_mb is None else size_mb * MIB


def draft_of(record: Record) -> RecordDraft:
    """A draft of a run of which the task stats have the metrics of the record."""
    metrics = record.metrics
    end_ns = parse_ns(record.finished_at)
    if end_ns is None and metrics.duration_ms is not None:
        end_ns = round(metrics.duration_ms)
    end = RunEnd(status=known_status(record), exit_code=record.exit_code, until_ns=end_ns)
    sizes = ResourceLimits(vcpu=metrics.vcpu_size, memory_bytes=size_bytes(metrics.memory_size_mb))
    exactness: Exactness = "at least"
    if metrics.memory_peak_source == "kernel":
        exactness = "exact"
    cpu = None
    if metrics.cpu_seconds is not None:
        cpu = CpuEvidence(cpu_seconds=metrics.cpu_seconds)
    peak_bytes = size_bytes(metrics.max_memory_used_mb)
    memory = evidence_from("statistics", peak_bytes, exactness)
    evidence = RunEvidence(metrics=metrics, cpu=cpu, memory=memory)
    return RecordDraft(record, end, sizes, (evidence,))


def with_collected(record: Record, collectors: Iterable[Collector], batch: str = COMMAND) -> Record:
    """Return the record with what the collectors measured."""
    draft = draft_of(record)
    return draft.build_record(collected_parts(collectors, draft.run, batch))
