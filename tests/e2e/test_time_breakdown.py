"""A monitor in the task and one for the instance say of the same program what it says itself, each
level as far as it can know.
"""

from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import combinations

import pytest

from tests.e2e.engine import Engine
from tests.e2e.timed_tasks import (
    SIDECARS,
    Watcher,
    instance_monitors,
    run_beside_sidecar,
    run_on_instance,
)
from tests.timed_programs import PROGRAMS
from tests.timed_runs import Observation, points_of

# On a machine that does nothing else: beside other work, a program waits for a CPU.
pytestmark = [pytest.mark.e2e, pytest.mark.waits]

_AT_ONCE = 4
_FEW = ("beside accept: child", "lock of processes: joinable_queue, sleep")
_MANY = (
    *("beside unreaped: child", "asyncio beside a server: to_thread", "shell beside a listener"),
    *("web server to which nobody comes", "child that holds the lock of a file"),
    *("two processes compute together, 50/150", "signal that does not come"),
    *("pool: as_they_complete", "server of the run: managers_queue"),
    *("lock of processes: held_lock, network", "lock of processes: timed_event, sleep"),
    *("chain: broker", "chain: unix_broker", "chain: unix_proxy_by_select"),
)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(_FEW, id="few"),
        pytest.param(_MANY, id="many", marks=pytest.mark.timeout(0)),
    ],
)
def test_all_monitors_say_what_the_program_itself_says(
    engine: Engine, monitor_image: str, names: Collection[str]
) -> None:
    assert monitor_image
    with instance_monitors(engine) as monitors, ThreadPoolExecutor(_AT_ONCE) as pool:
        runs: dict[tuple[str, str], Future[Mapping[Watcher, Observation]]] = {
            (name, watcher): pool.submit(
                run_beside_sidecar, engine, PROGRAMS[name], watcher, monitors
            )
            for name in names
            for watcher in SIDECARS
        }
        runs |= {
            (name, "alone"): pool.submit(run_on_instance, engine, PROGRAMS[name], monitors)
            for name in names
        }
        executions = {key: run.result() for key, run in runs.items()}
    wrong: dict[tuple[str, ...], object] = {}
    for (name, beside), seen in executions.items():
        points = points_of(PROGRAMS[name], by_monitor=True)
        for watcher, each in seen.items():
            if found := each.wrong(points, is_alone=False):
                wrong[name, beside, watcher] = found
        for one, other in combinations(seen, 2):
            is_full = one.endswith("2") and other.endswith("2")
            if found := seen[one].unlike(seen[other], is_full=is_full, is_alone=False):
                wrong[name, beside, one, other] = found
    assert wrong == {}
