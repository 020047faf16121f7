"""A call that may take no longer than what is left of a budget."""

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def run_with_timeout(seconds: float, function: Callable[[], _T]) -> _T | None:
    """The function's result, or None if it took longer.

    The function runs in a daemon thread: one that hangs is left behind and cannot keep the
    process alive. An exception of the function is raised here.
    """
    results: list[_T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001  handed to the caller, whatever it is
            errors.append(error)

    thread = threading.Thread(target=work, name="bounded-call", daemon=True)
    thread.start()
    thread.join(max(seconds, 0))
    if errors:
        raise errors[0]
    return results[0] if results else None
