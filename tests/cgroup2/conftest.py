"""Fixtures of the tests in a virtual machine with cgroup v2."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from profiler.record.record_model import Record, decode
from tests.cgroup2.machine import MachineMissingError, default_cache, prepare, write_archive
from tests.e2e.engine import CommandFailedError
from tests.prerequisites import skip_or_fail
from tests.values import present

_TIMEOUT_SECONDS = 4 * 3600.0
_PATHS = ("profiler", "tests/cgroup2", "tests/e2e", "tests/http_server.py", "tools/waiting.py")

Outcomes = Mapping[str, Mapping[str, Any]]
Results = Mapping[str, Any]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "scenario(name): the scenario in the virtual machine whose results the test asserts",
    )


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> Outcomes:
    """Perform the scenarios of the selected tests in one run of the machine, and return their
    results by name.
    """
    repository = Path(request.config.rootpath)
    names = dict.fromkeys(
        marker.args[0] for item in request.session.items for marker in item.iter_markers("scenario")
    )
    try:
        machine = prepare(repository, default_cache())
    except MachineMissingError as error:
        skip_or_fail(f"the tests on cgroup v2 need a virtual machine: {error}")
    # Not in /tmp, which may be in memory: QEMU writes up to some gigabytes of changes to the disk.
    with tempfile.TemporaryDirectory(dir=default_cache().parent, prefix="cgroup2-") as name:
        archive = Path(name) / "job.tar"
        write_archive(
            archive,
            repository,
            _PATHS,
            f"exec python3 -m tests.cgroup2.scenarios {' '.join(names)}\n",
        )
        finished = machine.run(archive, Path(name), _TIMEOUT_SECONDS)
    found = {document["scenario"]: document for document in finished.results}
    if len(found) < len(names):
        ending = f"was killed after {_TIMEOUT_SECONDS:g} s" if finished.timed_out else "ended early"
        reason = f"the machine {ending}; its console ended with:\n{finished.console}"
        found |= {missing: {"error": reason} for missing in names if missing not in found}
    return found


@pytest.fixture
def results(request: pytest.FixtureRequest, outcomes: Outcomes) -> Results:
    marker = request.node.get_closest_marker("scenario")
    assert marker is not None
    outcome = outcomes[marker.args[0]]
    if "error" in outcome:
        # Not an AssertionError, which an expected failure would hide.
        raise CommandFailedError(outcome["error"])
    found: Results = outcome["results"]
    return found


def of(scenario: str, *values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.scenario(scenario), id=scenario)


def record_of(result: Any, *, exit_code: int) -> Record:
    assert result["exitCode"] == exit_code, result["errors"]
    assert result["report"] is not None, result["errors"]
    return decode(json.dumps(result["report"])).record


def max_used_mb(record: Record) -> float:
    return present(record.metrics.max_memory_used_mb)
