"""Fixtures of the end-to-end tests."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.aws import FakeAws, fake_aws
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
from tests.e2e.specs import BATCH, ContainerSpec, TaskSpec, monitor_container
from tests.e2e.task import Task
from tests.prerequisites import skip_or_fail


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
def aws() -> Iterator[FakeAws]:
    """Give a played CloudWatch Logs that has the batch's log group."""
    with fake_aws() as server:
        server.create_log_group(LOG_GROUP)
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


@pytest.fixture
def start(engine: Engine, monitor_image: str, aws: FakeAws) -> Iterator[Start]:
    """Give a function that starts a batch with the monitor beside it, the batch's log stream being there."""
    assert monitor_image
    with contextlib.ExitStack() as stack:

        def start_task(
            batch: ContainerSpec,
            monitor: ContainerSpec | None = None,
            *,
            others: tuple[ContainerSpec, ...] = (),
            stream: bool = True,
            vcpu: float | None = 1,
            memory_mib: int | None = 1024,
            pid_mode_task: bool = False,
            stats_period_seconds: float = 0,
        ) -> Task:
            beside = monitor or monitor_container(aws.environment())
            spec = TaskSpec(
                containers=(dataclasses.replace(batch, log_group=LOG_GROUP), beside, *others),
                limit_vcpu=vcpu,
                limit_memory_mib=memory_mib,
                pid_mode_task=pid_mode_task,
                stats_period_seconds=stats_period_seconds,
            )
            task = stack.enter_context(Task(engine, spec))
            if stream:
                aws.create_log_stream(LOG_GROUP, task.log_stream(BATCH))
            task.start()
            return task

        yield start_task
