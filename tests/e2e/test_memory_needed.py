"""The reported maximum is the memory that a batch needs: with a limit just above it, the same batch runs."""

import math

import pytest

from tests.aws import FakeAws
from tests.e2e.reports import Start, finished
from tests.e2e.specs import BATCH, batch_container

pytestmark = pytest.mark.e2e

_MARGIN = 1.1
# The load and the memory that the batch holds for as long as it idles. The rest of the maximum is the interpreter's.
_LOADS = {
    "anonymous, shared and mapped memory": (("--memory-mib", "50", "--shared-mib", "50", "--mapped-mib", "50"), 150),
    "file read twice": (("--memory-mib", "40", "--file-mib", "300"), 40),
}
# With the memory that the kernel needs for the page cache of a large file.
_MAX_INTERPRETER_MIB = 30


@pytest.mark.parametrize("kind", _LOADS)
def test_a_batch_runs_with_a_limit_of_its_maximum_and_a_tenth(kind: str, start: Start, aws: FakeAws) -> None:
    words, held_mib = _LOADS[kind]
    load = (*words, "--idle-seconds", "2.5")
    task = start(batch_container(*load, memory_mib=600))
    record = finished(aws, task)
    assert record["status"] == "success", record
    metrics = record["metrics"]
    used_mb, cache_mb = metrics["maxMemoryUsedMB"], metrics["memoryCacheMB"]
    assert held_mib <= used_mb <= held_mib + _MAX_INTERPRETER_MIB
    if kind == "file read twice":
        assert cache_mb["max"] >= 290
        assert metrics["memoryUsagePeakMB"] >= 330
    else:
        assert cache_mb["max"] <= 70  # the mapped file

    limit_mib = math.ceil(used_mb * _MARGIN)
    limited = start(batch_container(*load, memory_mib=limit_mib))
    again = finished(aws, limited)
    facts = limited[BATCH].facts
    assert (facts.exit_code, facts.oom_killed) == (0, False)
    assert (again["status"], again["metrics"]["memorySizeMB"]) == ("success", limit_mib)
    assert again["likelyOutOfMemory"] is False
