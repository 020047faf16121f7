"""Many cases in one test."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any


def each_case(
    names: str | Sequence[str],
    cases: Iterable[Any],
    *,
    ids: Iterable[str] | Callable[[Any], object] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As ``pytest.mark.parametrize``, for a test that costs less than pytest takes for a test of
    its own: some ten milliseconds of a CPU. All cases run, and each that fails is named. They share
    the test's fixtures.
    """
    known = tuple(cases)
    given = tuple(names.split(", ")) if isinstance(names, str) else tuple(names)
    labels = tuple(map(ids, known) if callable(ids) else ids or map(repr, known))
    assert known, "a test without a case cannot fail"
    values = [case if len(given) > 1 else (case,) for case in known]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            for label, case in zip(labels, values, strict=True):
                try:
                    test(**fixtures, **dict(zip(given, case, strict=True)))
                except Exception as error:  # noqa: BLE001  each is raised below
                    error.add_note(f"case: {label}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(known)} cases fail", failures)

        rest = [one for name, one in signature.parameters.items() if name not in given]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate
