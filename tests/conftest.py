"""Fixtures for all tests."""

import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.botocore_caches import cached_botocore
from tests.diagonals import mark_rest_as_slow
from tests.fake_slack import FakeSlack
from tests.file_scheduling import FileScheduling
from tests.http_server import FakeElasticsearch
from tests.late_starts import begin_late
from tests.open_files import open_files
from tests.terminals import Pipe

# Tests print local times. A test of another zone has the fixture los_angeles or set_zone.
os.environ["TZ"] = "UTC"
time.tzset()

# A busy machine is slow: a property is about values, never about time. The tests try the same
# examples on every machine, so that a result depends on the code alone. `make fuzz` searches for
# other examples with new seeds.
settings.register_profile(
    "same-examples",
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "new-examples",
    deadline=None,
    database=None,
    max_examples=250,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# `make test` tries the first sixth of them, `make slow` all.
settings.register_profile("first-examples", settings.get_profile("same-examples"), max_examples=5)
settings.load_profile("first-examples")

_TESTS = Path(__file__).parent
# The files of these folders begin in turns, those that mostly wait and those that compute, so that
# no processor is idle and few processes are enough: each imports all tests, for three seconds of a
# CPU.
_WAITING = ("integration", "simulation", "faults")
_COMPUTING = ("contract",)
_FOLDERS = (*_WAITING, *_COMPUTING, "unit")

# moto makes 1,296 machine images for each of its EC2 backends, which takes longer than the test. No
# test looks at them.
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
# No test is a web page of another origin.
os.environ["MOTO_DISABLE_GLOBAL_CORS"] = "true"

_MAX_LEFT_OPEN = 8

if "LATE" in os.environ:
    begin_late(os.environ["LATE"])

# Python ignores these two itself; subprocess resets both in the processes it starts.
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for each core: one of them mostly waits. Of tests that only compute, one for each
    core: each further one collects all tests, for fifteen seconds of a CPU.
    """
    cores = len(os.sched_getaffinity(0))
    is_waiting = any(_folder(Path(argument).absolute()) in _WAITING for argument in config.args)
    return 2 * cores if is_waiting else cores


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist keep our order; its own has the files with the fewest tests last, and
    these are the slowest. botocore's caches begin before moto is imported, which reads a file of
    botocore for each region.
    """
    caches = ExitStack()
    caches.enter_context(cached_botocore())
    config.add_cleanup(caches.close)
    if config.getoption("dist", None) == "loadfile":
        config.option.loadscopereorder = False
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None:
        _send_only_whatis_read(config)
        paths = [path for argument in config.args for path in _parts(Path(argument))]
        first = len(paths) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        # Each process begins elsewhere and finds what the others have compiled. The order of the
        # tests stays the same.
        config.args[:] = map(str, (*paths[first:], *paths[:first]))


def _send_only_whatis_read(config: pytest.Config) -> None:
    """Of a test that passes, pytest-xdist sends three reports, of which pytest counts the second,
    and its beginning and its end, which pytest shows with --verbose alone. The others took more
    than a millisecond of a CPU for each test. Lists of durations and files of results have the
    times of all three.
    """
    if config.getoption("durations", None) is not None or config.getoption("xmlpath", None):
        return
    is_verbose = config.get_verbosity(config.VERBOSITY_TEST_CASES) > 0
    unread = () if is_verbose else ("logstart", "logfinish")
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "sendevent"):  # pytest-xdist's, whose class no module has
            plugin.sendevent = partial(_send_event, plugin.sendevent, unread)


def _send_event(
    send: Callable[..., None], unread: Collection[str], name: str, **given: Any
) -> None:
    if name not in unread and (name != "testreport" or is_read(given["data"])):
        send(name, **given)


def is_read(report: dict[str, Any]) -> bool:
    """Whether pytest counts a report, or shows what it says. Below the failure of a call, it shows
    what the teardown wrote, from a report of its own.
    """
    return (
        report["when"] == "call"
        or report["outcome"] != "passed"
        or any("teardown" in title for title, _ in report["sections"])
    )


def _parts(path: Path) -> Iterator[Path]:
    """What is directly in one of the folders of tests; anything else as it is."""
    if path.name in _FOLDERS and path.is_dir():
        yield from sorted(
            part for part in path.iterdir() if part.is_dir() or part.name.startswith("test_")
        )
    else:
        yield path


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import the tests without garbage collection: nothing of them is garbage before the end of
    the session. Collect more rarely than Python while they run, which saves a tenth of their time:
    what a test leaves is mostly freed without a collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(200_000)
        gc.enable()


def pytest_sessionfinish() -> None:
    """Look for garbage once: pytest does it five times more at its end, for a second of a CPU in
    each process.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The unit tests come last: their files are so short that all processes end together."""
    mark_rest_as_slow(items, _is_costly)
    files = Counter(item.path for item in items)
    # The longest waits begin first: of a file with many tests, each of which waits.
    waiting = [path for path, _ in files.most_common() if _folder(path) in _WAITING]
    computing = [path for path in files if _folder(path) in _COMPUTING]
    in_turns = [path for pair in zip_longest(waiting, computing) for path in pair if path]
    place = {path: number for number, path in enumerate(dict.fromkeys((*in_turns, *files)))}
    items.sort(key=lambda item: place[item.path])
    for item in items:
        # Tracing moto and servers costs as much as their tests. The unit tests alone must reach the
        # floors of coverage.
        if _folder(item.path) != "unit":
            item.add_marker(pytest.mark.no_cover)


def _is_costly(item: pytest.Item) -> bool:
    """Whether a test runs whole commands, and in `make test` rather than in a lane of its own."""
    is_in_own_lane = any(map(item.get_closest_marker, ("accuracy", "waits")))
    return _folder(item.path) in (*_WAITING, *_COMPUTING) and not is_in_own_lane


@cache
def _folder(path: Path) -> str:
    """The folder of tests that a file is in; none for other files, as those that a test writes."""
    return path.relative_to(_TESTS).parts[0] if path.is_relative_to(_TESTS) else ""


@pytest.fixture(scope="session", autouse=True)
def inherited_signals() -> Iterator[None]:
    """Start processes with default signal dispositions, even if a shell or nohup started this
    session with others.

    An ignored signal stays ignored across fork and exec. A handler that does nothing protects this
    process as before, and exec resets it to the default.
    """
    ignored = [
        number
        for number in signal.valid_signals() - _IGNORED_BY_PYTHON
        if signal.getsignal(number) is signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="module", autouse=True)
def reported_finalizers() -> Iterator[None]:
    """Report failures of finalizers again after tests of commands that a signal has ended."""
    before = sys.unraisablehook
    yield
    sys.unraisablehook = before


@pytest.fixture(scope="module", autouse=True)
def closed_files() -> Iterator[None]:
    """Fail where the tests of a file leave more open than a server of the session has: one process
    runs hundreds of files, and select(2) ends at the descriptor 1023.

    A socket belongs to an object, which closes it, perhaps at the next garbage collection.
    """
    before = open_files()
    yield
    if len(_left_open(before)) > _MAX_LEFT_OPEN:
        gc.collect()
        left = _left_open(before)
        assert len(left) <= _MAX_LEFT_OPEN, "the tests of this file leave these open"


def _left_open(before: set[tuple[str, str]]) -> list[str]:
    """The links of the descriptors that were not open before, without sockets."""
    return sorted(link for _, link in open_files() - before if not link.startswith("socket:"))


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack() as fake:
        yield fake


@pytest.fixture
def cluster() -> Iterator[FakeElasticsearch]:
    with FakeElasticsearch() as fake:
        yield fake


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system starts no further thread: the limit on processes is reached, or there is no
    memory for a stack.
    """

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.fixture
def set_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Set this machine's time zone until the end of the test."""

    def set_it(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield set_it
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(name="los_angeles")
def _los_angeles(set_zone: Callable[[str], None]) -> None:
    set_zone("America/Los_Angeles")


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with Pipe() as opened:
        yield opened
