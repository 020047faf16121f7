"""The machine with AWS's own programs, for all modules of this folder."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import pytest

from tests.real import night
from tests.real.control_plane import StartedTask
from tests.real.lab import Lab, running_lab
from tests.real.night import BeginNight
from tests.real.programs import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the proofs, which wait for a minute: the night runs beside them. The jobs of AWS
    Batch are last, because their cluster has an agent of its own.
    """
    order = {"test_proof": 0, "test_batch_jobs": 2}
    items.sort(key=lambda item: order.get(item.path.stem, 1))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(f"it needs {reason}")
    with running_lab() as lab:
        yield lab


@pytest.fixture(scope="session")
def begin_night(lab: Lab) -> Iterator[BeginNight]:
    with ThreadPoolExecutor(max_workers=1) as pool:

        @cache
        def begin() -> Future[dict[str, StartedTask]]:
            return pool.submit(night.begin_night, lab)

        yield begin
