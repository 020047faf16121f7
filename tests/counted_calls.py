"""Counts the calls of functions, from wherever they are called."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def counted_calls(*functions: Callable[..., Any]) -> Iterator[list[str]]:
    """The names of the functions, in the order of their calls."""
    names = {function.__code__: function.__name__ for function in functions}
    calls: list[str] = []

    def count(frame: FrameType, event: str, _value: object) -> None:
        if event == "call" and frame.f_code in names:
            calls.append(names[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
