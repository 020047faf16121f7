"""A test waits for what must come until it comes: a limit of its own is red on a busy machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cases import each_case
from tools.waiting import LIMIT_SECONDS, WaitTimeoutError, wait_until

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("tests", "tools")
# Methods that wait as many seconds as their last argument says.
_WAITS = {
    *("wait", "wait_readable", "join", "settimeout", "communicate", "drain"),
    *("stop", "final_reading", "wait_for_first_reading", "is_readable"),
}
_MAY_WAIT = re.compile(rf"\btimeout\b|\b({'|'.join(sorted(_WAITS))})\(")
# Here a number is no limit of a wait for what must come.
_OTHERS = {
    "tests/gpu/test_real_gpu.py",  # measures
    "tests/unit/readers/linux/test_waited_target.py",  # the timeout of a call that is read
    "tests/unit/aggregation/test_wait_attribution.py",  # makes waits
    "tests/unit/collectors/nvidia/test_gpu_collector.py",  # longer than any test
    "tests/unit/core/test_signal_handler.py",
    "tests/unit/core/test_threads.py",
}


def _is_number(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and node.value >= 5
        and not isinstance(node.value, bool)
    )


def _own_limits(source: str) -> Iterator[str]:
    """The calls that have a number of seconds from 5 on as the limit of a wait. A shorter one is
    for what must not come.
    """
    if not _MAY_WAIT.search(source):  # most files, which need no parser
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        # A method's or a function's: to write out an expression takes long.
        name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
        given = [keyword.value for keyword in node.keywords if keyword.arg == "timeout"]
        if name in _WAITS:
            given += node.args[-1:]
        if any(map(_is_number, given)):
            yield f"line {node.lineno}: {ast.unparse(node)[:100]}"


def test_no_test_has_a_limit_of_its_own() -> None:
    found = {
        str(path.relative_to(_ROOT)): limits
        for folder in _FOLDERS
        for path in sorted((_ROOT / folder).rglob("*.py"))
        if str(path.relative_to(_ROOT)) not in _OTHERS
        and (limits := list(_own_limits(path.read_text())))
    }
    assert found == {}, "wait with tools.waiting: wait_until, or LIMIT_SECONDS"


@each_case(
    ("call", "found"),
    [
        ("subprocess.run(words, timeout=60)", 1),
        ("process.communicate(timeout=120.0)", 1),
        ("event.wait(30)", 1),
        ("is_readable(pipe, 60)", 1),
        ("event.wait(LIMIT_SECONDS)", 0),
        ("event.wait(0.02)", 0),
        ("answers.get('key', 30)", 0),
        ("', '.join(names)", 0),
    ],
)
def test_a_limit_of_its_own_is_found(call: str, found: int) -> None:
    assert len(list(_own_limits(call))) == found


def test_a_wait_ends_with_its_event_or_says_what_did_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter((None, 0, "it"))
    assert wait_until(lambda: next(answers), "an answer", step_seconds=0) == "it"
    assert LIMIT_SECONDS >= 600, "a busy machine keeps a process waiting for more than a minute"
    moments = iter(range(0, 10_000, 100))
    clock = SimpleNamespace(monotonic=lambda: next(moments), sleep=lambda _seconds: None)
    monkeypatch.setattr("tools.waiting.time", clock)
    with pytest.raises(WaitTimeoutError, match=r"^waited 900 s for a reader$"):
        wait_until(lambda: None, "a reader", step_seconds=0)
