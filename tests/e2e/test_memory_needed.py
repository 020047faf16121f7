"""The reported maximum is the memory that a batch needs: with a limit just above it, the same batch runs."""

import json
import math
import os
from pathlib import Path

import pytest

from tests.aws import FakeAws
from tests.e2e.reports import END_SECONDS, Start, report_in_stream
from tests.e2e.specs import BATCH, batch_container

pytestmark = pytest.mark.e2e

_MARGIN = 1.1
_LOADS = {
    "anonymous memory": ("--memory-mib", "150"),
    "shared memory": ("--shared-mib", "150"),
    "mapped file": ("--mapped-mib", "150"),
    "file read twice": ("--memory-mib", "40", "--file-mib", "300"),
}
# The memory that the batch holds for as long as it idles. The rest of the maximum is the interpreter's.
_HELD_MIB = {"anonymous memory": 150, "shared memory": 150, "mapped file": 150, "file read twice": 40}
# With the memory that the kernel needs for the page cache of a large file.
_MAX_INTERPRETER_MIB = 30


@pytest.mark.parametrize("kind", _LOADS)
def test_a_batch_runs_with_a_limit_of_its_maximum_and_a_tenth(kind: str, start: Start, aws: FakeAws) -> None:
    load = (*_LOADS[kind], "--idle-seconds", "2.5")
    task = start(batch_container(*load, memory_mib=600))
    task.wait_stopped(END_SECONDS)
    record = report_in_stream(aws, task)
    assert record["status"] == "success", record
    metrics = record["metrics"]
    used_mb, cache_mb = metrics["maxMemoryUsedMB"], metrics["memoryCacheMB"]
    assert _HELD_MIB[kind] <= used_mb <= _HELD_MIB[kind] + _MAX_INTERPRETER_MIB
    if kind == "file read twice":
        assert cache_mb["max"] >= 290
        assert metrics["memoryUsagePeakMB"] >= 330
    else:
        assert cache_mb["max"] <= 20 + 150 * (kind == "mapped file")

    limit_mib = math.ceil(used_mb * _MARGIN)
    limited = start(batch_container(*load, memory_mib=limit_mib))
    limited.wait_stopped(END_SECONDS)
    again = report_in_stream(aws, limited)
    facts = limited[BATCH].facts
    _note(
        kind, {"usage peak": metrics.get("memoryUsagePeakMB"), "used": used_mb, "cache": cache_mb, "limit": limit_mib}
    )
    assert (facts.exit_code, facts.oom_killed) == (0, False)
    assert (again["status"], again["metrics"]["memorySizeMB"]) == ("success", limit_mib)
    assert again["likelyOutOfMemory"] is False


def _note(kind: str, numbers: dict[str, object]) -> None:
    """Append the numbers to a file, for the table in docs/measuring.md."""
    path = os.environ.get("MEMORY_NEEDED_TABLE")
    if path:
        with Path(path).open("a") as table:
            table.write(f"{kind}: {json.dumps(numbers)}\n")
