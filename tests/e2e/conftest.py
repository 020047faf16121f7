"""Fixtures of the end-to-end tests."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.e2e.container import BATCH, ContainerSpec, monitor_container
from tests.e2e.engine import Engine, EngineMissingError, running_engine
from tests.e2e.images import (
    BASE_IMAGE,
    MONITOR_IMAGE,
    default_cache,
    image_exists,
    make_base_image,
    make_monitor_image,
    remove_image,
)
from tests.e2e.reports import LOG_GROUP, Start
from tests.e2e.task import Task
from tests.prerequisites import skip_or_fail
from tools.moto_server import FakeAws, fake_aws

_IMAGE_IS_MADE = "E2E_MONITOR_IMAGE_IS_MADE"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start one daemon for all processes of pytest-xdist, and build the monitor's image once."""
    config = session.config
    is_parent = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if not is_parent or config.option.collectonly:
        return
    stack = contextlib.ExitStack()
    config.add_cleanup(stack.close)
    try:
        engine = stack.enter_context(_engine_with_base())
    except EngineMissingError:
        return  # each test says so
    made = make_monitor_image(engine, config.rootpath)
    stack.callback(remove_image, engine, made)
    # The other processes find the daemon by it.
    os.environ.update(DOCKER_HOST=engine.environment()["DOCKER_HOST"], **{_IMAGE_IS_MADE: "yes"})


@contextlib.contextmanager
def _engine_with_base() -> Iterator[Engine]:
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(running_engine())
        if not image_exists(engine, BASE_IMAGE):
            make_base_image(engine, default_cache())
            stack.callback(remove_image, engine, BASE_IMAGE)
        yield engine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the file that takes longest, and end each with the tests that run alone: they
    wait for few others.
    """
    items.sort(
        key=lambda item: (
            item.path.stem != "test_processes",
            item.get_closest_marker("alone") is not None,
        )
    )


@pytest.fixture(autouse=True)
def _alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Let a test that is marked `alone` wait until no other process of pytest-xdist runs a test,
    and hold them up.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    is_alone = request.node.get_closest_marker("alone") is not None
    with (tmp_path_factory.getbasetemp().parent / "alone").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        yield


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(_engine_with_base())
        except EngineMissingError as reason:
            skip_or_fail(f"the end-to-end tests need Docker: {reason}")
        yield engine


@pytest.fixture(scope="session")
def monitor_image(engine: Engine, request: pytest.FixtureRequest) -> Iterator[str]:
    if _IMAGE_IS_MADE in os.environ:
        yield MONITOR_IMAGE
    else:
        yield make_monitor_image(engine, request.config.rootpath)
        remove_image(engine, MONITOR_IMAGE)


@pytest.fixture(scope="session")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as server:
        server.create_log_group(LOG_GROUP)
        yield server


@pytest.fixture
def start(engine: Engine, monitor_image: str, aws: FakeAws) -> Iterator[Start]:
    """Give a function that starts a batch with the monitor beside it, the batch's log stream
    being there.
    """
    assert monitor_image
    with contextlib.ExitStack() as stack:

        def start_task(
            batch: ContainerSpec, monitor: ContainerSpec | None = None, **mode: Any
        ) -> Task:
            beside = monitor or monitor_container(aws.environment())
            task = stack.enter_context(
                Task(engine, replace(batch, log_group=LOG_GROUP), beside, **mode)
            )
            aws.create_log_stream(LOG_GROUP, task.log_stream(BATCH))
            task.start()
            return task

        yield start_task
