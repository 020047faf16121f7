"""Fixtures of the arm64 tests: those of the end-to-end tests, and the image for arm64."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arm64.emulator import EmulatorMissingError, arm64_programs

# Pytest finds the fixtures by these names.
from tests.e2e.conftest import aws, engine, start  # noqa: F401
from tests.e2e.engine import Engine
from tests.e2e.images import ARM64, default_cache, make_base_image, make_monitor_image, remove_image
from tests.prerequisites import skip_or_fail

IMAGE = "task-profiler-e2e-arm64:latest"


@pytest.fixture(scope="session")
def monitor_image(engine: Engine, request: pytest.FixtureRequest) -> Iterator[str]:  # noqa: F811
    """Give the name of the product's image for arm64, built from the working tree under the
    emulator.
    """
    try:
        with arm64_programs():
            base = make_base_image(engine, default_cache(), ARM64)
            yield make_monitor_image(engine, Path(request.config.rootpath), IMAGE, platform=ARM64)
            remove_image(engine, IMAGE)
            remove_image(engine, base)
    except EmulatorMissingError as reason:
        skip_or_fail(f"the arm64 tests need an emulator: {reason}")
