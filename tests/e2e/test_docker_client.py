"""``task-profiler run`` before Docker's client: the daemon, which is not of the run, does the
work.
"""

from pathlib import Path

import pytest

from profiler.record.container_engine_clients import container_client
from tests.e2e.engine import Engine
from tests.e2e.images import BASE_IMAGE
from tests.integration.profiled import report_of, run

pytestmark = pytest.mark.e2e

# Uses 100 MiB, and a CPU for a second.
_WORK = """
import time
held = bytearray(b"x" * (100 << 20))
while time.process_time() < 1: pass
"""


def test_the_work_of_a_container_is_not_what_dockers_client_needs(
    engine: Engine, tmp_path: Path
) -> None:
    environment = {**engine.environment(), "XDG_DATA_HOME": str(tmp_path)}
    done = run(
        *("docker", "run", "--rm", "--network=host", BASE_IMAGE, "python3", "-c", _WORK),
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    record = report_of(done.stderr).record
    assert (record.metrics.max_memory_used_mb or 0) < 100
    assert record.recommendation.memory_mb is None
    assert container_client(record) == "docker"
