"""``task-profiler setup image`` with one of its calls to ECR refused, throttled, or carried out
without an answer, each in turn: the error is said, and the command, run again, pushes the image
once.
"""

from typing import get_args

import pytest

from tests.fake_registry import IMAGE, Registry, built
from tests.nth_calls import SAID, Failure, NthCallFails


@pytest.mark.parametrize("failure", get_args(Failure))
def test_one_failed_call_is_said_and_the_next_run_pushes_the_image_once(
    failure: Failure, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = Registry()
    calls = NthCallFails(whole.open)
    assert built(calls, whole, monkeypatch) == ""
    assert whole.images == [IMAGE]
    for nth, name in enumerate(calls.calls, 1):
        registry = Registry()
        capfd.readouterr()
        error = built(NthCallFails(registry.open, nth, failure), registry, monkeypatch)
        said = error + "".join(capfd.readouterr())
        assert SAID[failure] in said, (nth, name, said)
        assert error or registry.images == whole.images, (nth, name)
        assert built(NthCallFails(registry.open), registry, monkeypatch) == "", (nth, name)
        assert registry.images == whole.images, (nth, name)
        assert f"{IMAGE}\n" in capfd.readouterr().out
