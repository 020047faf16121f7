"""A monitor in the task and one for the instance say of the same program what it says itself, each
level as far as it can know.
"""

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

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
        runs = {
            (name, watcher): pool.submit(run_beside_sidecar, engine, PROGRAMS[name], watcher)
            for name in names
            for watcher in SIDECARS
        }
        on_instance = {
            name: pool.submit(run_on_instance, engine, PROGRAMS[name], monitors) for name in names
        }
        seen: dict[tuple[str, Watcher], Observation] = {
            key: run.result() for key, run in runs.items()
        }
        for name, run in on_instance.items():
            seen |= {(name, watcher): each for watcher, each in run.result().items()}
    wrong = {
        key: found
        for key, each in seen.items()
        if (found := each.wrong(points_of(PROGRAMS[key[0]], by_monitor=True), is_alone=False))
    }
    assert wrong == {}
