"""What the instance's monitor reports of the containers of a real Docker daemon on cgroup v2,
with systemd's driver.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from profiler.core.timestamps import parse_ns
from profiler.record.record_model import Record, decode
from tests.cgroup2.conftest import Results, max_used_mb
from tests.cgroup2.instance_tasks import BATCHES, REPLACED
from tests.values import present

_EACH = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.scenario(batch.scenario))
        for name, batch in BATCHES.items()
    ],
)
_SHARED = [name for name, batch in BATCHES.items() if batch.other is not None]
_KILLED = [name for name in BATCHES if "killed" in name]


def _record(seen: Mapping[str, Any], container: str = "batch") -> Record:
    (report,) = seen[container]["reports"]
    return decode(json.dumps(report)).record


@_EACH
def test_each_task_has_one_report_with_its_end(results: Results, name: str) -> None:
    """Each task has one report with its end and a kill for memory is certain."""
    record, state, exit_code = (
        _record(results[name]),
        results[name]["batch"]["state"],
        BATCHES[name].exit_code,
    )
    status = "stopped" if name == "stopped" else "failure" if exit_code else "success"
    assert record.status == status
    assert record.exit_code == exit_code
    assert state["ExitCode"] == exit_code
    duration_ms = (
        present(parse_ns(state["FinishedAt"])) - present(parse_ns(state["StartedAt"]))
    ) / 1e6
    # A daemon on an emulated processor may note the start of `true` after its end.
    assert record.metrics.duration_ms == (
        pytest.approx(duration_ms, abs=1) if duration_ms >= 0 else None
    )
    evidence = "kernel-counter" if name in _KILLED else None
    assert record.likely_out_of_memory == (name in _KILLED)
    assert record.out_of_memory_evidence == evidence


@_EACH
def test_the_cpu_time_is_the_kernels(results: Results, name: str) -> None:
    """Of one container all that its task's group has counted, also after the end of the
    container's own.

    Of several it is that less what the others used, within 1 %: a monitor that came after the end
    of another container does not know what that one used, and keeps the last sample of the batch.
    """
    seen = results[name]
    own, task, cpu_seconds = (
        seen["batch"]["own"],
        seen["task"],
        present(_record(seen).metrics.cpu_seconds),
    )
    if task is None:
        assert cpu_seconds == pytest.approx(own["cpuNs"] / 1e9, abs=0.5)
    else:
        others = present(_record(seen, "other").metrics.cpu_seconds) if name in _SHARED else 0
        assert cpu_seconds + others <= task["cpuNs"] / 1e9 + 0.001
        assert name in _SHARED or cpu_seconds == pytest.approx(task["cpuNs"] / 1e9, abs=0.001)
        least_share = 0.99 if name in _SHARED else 1
        assert own is None or least_share * own["cpuNs"] / 1e9 <= cpu_seconds


@_EACH
def test_the_peak_is_the_kernels_mark_without_page_cache(results: Results, name: str) -> None:
    """Where the task's group has counted the batch alone."""
    record, seen = _record(results[name]), results[name]
    is_mark = seen["task"] is not None and name not in _SHARED
    assert record.metrics.memory_peak_source == ("kernel" if is_mark else "sampled")
    cache_mb = 200 if name.startswith("file") else 0
    if is_mark:
        used_mb = seen["task"]["markBytes"] / 2**20 - cache_mb
        # A group also has the pages of the programs' files that it was the first to read.
        other_cache_mb = 8 if cache_mb else 0
        assert used_mb - other_cache_mb - 1 <= max_used_mb(record) <= used_mb + 1
    if name.startswith("spike"):
        assert 200 <= max_used_mb(record) < 210


@pytest.mark.scenario(REPLACED)
@pytest.mark.parametrize(
    "name", [name for name, batch in BATCHES.items() if batch.scenario == REPLACED]
)
def test_a_monitor_that_came_later_says_so(results: Results, name: str) -> None:
    assert "started after the batch" in present(_record(results[name]).monitor).warnings[0]
