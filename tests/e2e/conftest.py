"""Fixtures of the end-to-end tests."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.aws import PlayedAws, played_aws
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
from tests.e2e.specs import TaskSpec
from tests.e2e.task import Task
from tests.missing import skip_or_fail


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Give a Docker daemon that has the base image."""
    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(running_engine())
            if not image_exists(engine, BASE_IMAGE):
                make_base_image(engine, default_cache())
                stack.callback(remove_image, engine, BASE_IMAGE)
        except EngineMissingError as reason:
            skip_or_fail(f"the end-to-end tests need Docker: {reason}")
        yield engine


@pytest.fixture(scope="session")
def monitor_image(engine: Engine, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give the name of an image that runs the product as it is in the working tree."""
    yield make_monitor_image(engine, Path(request.config.rootpath))
    remove_image(engine, MONITOR_IMAGE)


@pytest.fixture(scope="session")
def aws() -> Iterator[PlayedAws]:
    """Give a played CloudWatch Logs."""
    with played_aws() as server:
        yield server


@pytest.fixture
def run_task(engine: Engine) -> Iterator[Callable[[TaskSpec], Task]]:
    """Give a function that starts a task; whatever is left of it is removed after the test."""
    with contextlib.ExitStack() as stack:

        def start(spec: TaskSpec) -> Task:
            task = stack.enter_context(Task(engine, spec))
            task.start()
            return task

        yield start
