"""`run` and the monitors of a task say the same of one execution, as far as each can know
(`make waits`).
"""

from itertools import combinations

import pytest

from tests.simulation.known_runs import can_limit
from tests.timed_programs import PROGRAMS
from tests.timed_runs import points_of
from tests.watched_executions import Watcher, watch


@pytest.mark.waits
@pytest.mark.skipif(not can_limit(), reason="needs root and version 1 of the control groups")
@pytest.mark.parametrize(
    "name",
    [
        *("uninterruptible: read_directly", "uninterruptible: sync", "uninterruptible: vfork"),
        *("slow disk", "frozen in a group of version 1", "shell beside a listener"),
        *("beside accept", "beside accept: child", "make -j2", "pool: as_they_complete"),
        *("short children: gzip", "short children: captured"),
        *("short children: xargs", "short children: pool"),
        *("two processes compute together, 50/150", "lock of processes: held_lock, network"),
        *("chain: broker", "server of the run: udp_server", "asyncio beside rows: sleep"),
        "web server to which nobody comes",
    ],
)
def test_run_and_the_monitors_say_the_same_of_one_execution(name: str) -> None:
    program = PROGRAMS[name]
    seen = watch(program)
    unlike = {
        pair: found
        for pair in combinations(seen, 2)
        if (found := seen[pair[0]].unlike(seen[pair[1]], is_full="sidecar 1" not in pair))
    }
    points = points_of(program, by_monitor=True)
    wrong: dict[Watcher, dict[str, str]] = {
        watcher: found
        for watcher, each in seen.items()
        if (found := each.wrong(points, is_alone=False))
    }
    assert (wrong, unlike) == ({}, {})
