"""The runs of families in Elasticsearch or OpenSearch, aggregated there.

The numbers of all runs are the cluster's; of at most five runs of a family (the newest, those that
used and needed the most, one that ran out of memory) the whole record is read.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from profiler.errors import TaskProfilerError
from profiler.known import max_known
from profiler.record import TaskSize, decode
from profiler.search_setup import SearchServer, ServerResponse
from profiler.sizing.cluster_queries import Window, evidence_query, windows_query
from profiler.sizing.evidence import Evidence, spike_of, with_assumption
from profiler.sizing.needs import RunFacts, Task, facts_of
from profiler.times import NS_PER_MS, format_ms, parse_ns

# Of 32-bit floats, seven digits in all are true.
_DIGITS = 5
_EMPTY: Mapping[str, Any] = {}


class FamilyEvidence(Struct, frozen=True, kw_only=True):
    """A family, and what its last runs say; None if none of them was measured."""

    name: str
    evidence: Evidence | None


class ClusterRuns:
    """Reports in the indices that begin with a prefix."""

    def __init__(self, server: SearchServer, prefix: str) -> None:
        self._server = server
        self._path = f"/{quote(prefix)}-reports-*/_search?ignore_unavailable=true&allow_no_indices=true"

    def families(self, patterns: Sequence[str], last: int) -> Iterator[FamilyEvidence]:
        """Families whose name matches one of the shell patterns (all without one).

        Raises TaskProfilerError if the cluster does not answer or refuses.
        """
        after: Mapping[str, Any] | None = None
        while True:
            page = self._search(windows_query(patterns, last, after)).get("families", _EMPTY)
            windows = [
                window for bucket in page.get("buckets", ()) if (window := _window(bucket, patterns)) is not None
            ]
            if windows:
                answer = self._search(evidence_query(windows))["families"]["buckets"]
                for place, window in enumerate(windows):
                    yield FamilyEvidence(name=window.family, evidence=_evidence(window, answer[str(place)]))
            after = page.get("after_key")
            if after is None:
                return

    def _search(self, body: object) -> Mapping[str, Any]:
        answer = self._server.request("POST", self._path, body)
        if not answer.ok or not isinstance(answer.body, dict):
            raise TaskProfilerError(
                f"The cluster did not answer the search (HTTP {answer.status}: {_reason(answer)}): check URL, sign-in "
                "and --prefix, and that the index templates are installed ('task-profiler kibana import')."
            )
        found: Mapping[str, Any] = answer.body.get("aggregations") or _EMPTY
        return found


def _reason(answer: ServerResponse) -> str:
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    causes = error.get("root_cause") if isinstance(error, dict) else None
    if isinstance(causes, list) and causes and isinstance(causes[0], dict):
        return str(causes[0].get("reason"))
    return str(error or "no reason given")


def _window(bucket: Mapping[str, Any], patterns: Sequence[str]) -> Window | None:
    family = str(bucket["key"]["family"])
    starts = bucket["starts"]["buckets"]
    if not starts or (patterns and not any(fnmatchcase(family, pattern) for pattern in patterns)):
        return None
    in_time = list(reversed(starts))
    peaks = (_number(start["peak"]) for start in in_time)
    return Window(
        family=family,
        first_start_ms=int(in_time[0]["key"]),
        last_start_ms=int(in_time[-1]["key"]),
        peaks_mb=tuple(peak for peak in peaks if peak is not None),
    )


def _evidence(window: Window, bucket: Mapping[str, Any]) -> Evidence | None:
    found, out_of_memory = bucket["measured"], bucket["killed"]
    if not found["doc_count"]:
        return None
    newest, highest, neediest, busiest = (_run(found[name]) for name in ("newest", "highest", "neediest", "busiest"))
    killed = _run(out_of_memory["largest"]) if out_of_memory["doc_count"] else None
    read = [run for run in (newest, highest, neediest, busiest, killed) if run is not None and run.is_measured]
    others = _OtherContainers(newest)
    memory_mb = max_known(_number(found["task_memory"]), others.with_memory(_number(found["alone"]["memory"])))
    vcpu = max_known(_number(found["task_vcpu"]), others.with_vcpu(_number(found["alone_vcpu"]["vcpu"])))
    evidence = Evidence(
        family=window.family,
        runs=found["doc_count"],
        latest=newest.task if newest is not None else _task(found["newest"]),
        failed=found["failed"]["doc_count"],
        stopped=found["stopped"]["doc_count"],
        out_of_memory=out_of_memory["doc_count"],
        out_of_memory_unmeasured=out_of_memory["unmeasured"]["doc_count"],
        ignored=bucket["ignored"]["doc_count"],
        required_memory_mb=memory_mb,
        required_vcpu=vcpu,
        batch_peak_mb=next((run.peak_mb for run in read if _is_close(run.requirements.memory_mb, memory_mb)), None),
        cpu_bound_runs=found["bound"]["doc_count"],
        cpu_bound_vcpu=_number(found["bound"]["vcpu"]),
        oom_size_mb=max_known(_number(out_of_memory["size"]), killed.oom_size_mb if killed is not None else None),
        peak_source="sampled" if found["sampled"]["doc_count"] else "kernel" if found["kernel"]["doc_count"] else None,
        stats_period_ms=max_known(*(run.stats_period_ms for run in read)),
        first_started_at=_moment(found["first"]),
        last_started_at=_moment(found["last"]),
        window_ns=(window.last_start_ms - window.first_start_ms) * NS_PER_MS,
        mean_billed_ms=_number(found["billed_ms"]),
        spike=None if highest is None else spike_of([highest]),
        peaks_mb=window.peaks_mb,
        gpus_idle=_number(found["gpu"]) == 0 and newest is not None and newest.gpus_idle is True,
    )
    return with_assumption(evidence, others.sentence) if others.were_assumed else evidence


class _OtherContainers:
    """What the other containers need in runs whose document does not tell: what they needed in the newest."""

    def __init__(self, newest: RunFacts | None) -> None:
        self._newest = newest
        self.were_assumed = False
        self.sentence = (
            "What the other containers needed is not in the index for every run, so that of the newest run is assumed."
        )

    def with_memory(self, batch_mb: float | None) -> float | None:
        newest = self._newest
        if batch_mb is None or newest is None or newest.peak_mb is None or newest.requirements.memory_mb is None:
            return batch_mb
        return self._with_others(batch_mb, newest.requirements.memory_mb - newest.peak_mb)

    def with_vcpu(self, batch_vcpu: float | None) -> float | None:
        newest = self._newest
        if batch_vcpu is None or newest is None or newest.batch_vcpu is None or newest.requirements.vcpu is None:
            return batch_vcpu
        return self._with_others(batch_vcpu, newest.requirements.vcpu - newest.batch_vcpu)

    def _with_others(self, batch: float, others: float) -> float:
        self.were_assumed = self.were_assumed or bool(self._newest and self._newest.task.has_other_containers)
        return round(batch + others, _DIGITS)


def _run(top: Mapping[str, Any]) -> RunFacts | None:
    """The facts of the one document, from its whole record; None if it has none that can be read."""
    source = _source(top)
    text = source.get("record")
    if not isinstance(text, str):
        return None
    with contextlib.suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return facts_of(decode(text))
    return None


def _task(top: Mapping[str, Any]) -> Task:
    """Without the whole record the sizes that bounded the batch stand for the task's."""
    source = _source(top)
    usage = source.get("usage", _EMPTY)
    vcpu, memory_mb = usage.get("cpu", _EMPTY).get("size"), usage.get("memory", _EMPTY).get("size_mb")
    return Task(
        size=None if vcpu is None and memory_mb is None else TaskSize(vcpu=vcpu, memory_mb=memory_mb),
        launch_type=source.get("task", _EMPTY).get("launch_type"),
        region=source.get("cloud", _EMPTY).get("region"),
        vcpu_size=vcpu,
        memory_size_mb=memory_mb,
    )


def _source(top: Mapping[str, Any]) -> Mapping[str, Any]:
    hits = top["hits"]["hits"]
    source: Mapping[str, Any] = hits[0].get("_source", _EMPTY) if hits else _EMPTY
    return source


def _number(metric: Mapping[str, Any]) -> float | None:
    """Of no documents Elasticsearch says null, an older one an infinity as text."""
    value = metric.get("value")
    return round(float(value), _DIGITS) if isinstance(value, int | float) else None


def _moment(metric: Mapping[str, Any]) -> str | None:
    value = metric.get("value")
    if not isinstance(value, int | float):
        return None
    text = metric.get("value_as_string")
    return text if isinstance(text, str) and parse_ns(text) is not None else format_ms(int(value) * NS_PER_MS)


def _is_close(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-6)
