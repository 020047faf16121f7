from collections.abc import Callable
from functools import partial

from profiler.aggregation.run_end import run_end_of_exit, was_ended_by_stop
from tests.cases import each_case

GIB = 2**30
SECOND = 10**9
KILLED = run_end_of_exit(137, 1, was_stopped=False)


@each_case(
    ("stop", "exit_code", "finished_ns", "explains"),
    [
        (was_ended_by_stop, 143, 5, False),
        (partial(was_ended_by_stop, is_task_stopping=True), 143, 5, True),
        (partial(was_ended_by_stop, is_task_stopping=True), 143, None, True),
        # Seen only after the end: an essential batch that ends by itself stops the task.
        (partial(was_ended_by_stop, is_task_stopping=True, is_stop_denied=True), 143, 5, False),
        (partial(was_ended_by_stop, is_task_stopping=True), 137, 5, False),
        (partial(was_ended_by_stop, is_task_stopping=True), 0, 5, False),
        (
            partial(
                was_ended_by_stop, is_task_stopping=True, signalled_ns=6, first_end_ns=6, seen_ns=6
            ),
            137,
            5,
            False,
        ),
        (partial(was_ended_by_stop, signalled_ns=4), 137, 5, True),
        (partial(was_ended_by_stop, signalled_ns=4), 0, 5, True),
        (partial(was_ended_by_stop, first_end_ns=8 * SECOND - 1), 0, 9 * SECOND, True),
        (partial(was_ended_by_stop, first_end_ns=9 * SECOND), 0, 9 * SECOND, False),
        # The fraction of the batch's own end was cut.
        (partial(was_ended_by_stop, first_end_ns=9 * SECOND), 0, 9 * SECOND + 999_999_999, False),
        (partial(was_ended_by_stop, first_end_ns=9_123_000_000), 0, 9_123_456_789, False),
        (
            partial(was_ended_by_stop, first_end_ns=9 * SECOND, others_finished_ns=(7 * SECOND,)),
            0,
            9_999_999_999,
            False,
        ),
        (
            partial(
                was_ended_by_stop, first_end_ns=9 * SECOND, others_finished_ns=(9_999_999_999,)
            ),
            0,
            9_500_000_000,
            False,
        ),
        (
            partial(
                was_ended_by_stop, first_end_ns=9_300_000_000, others_finished_ns=(9_200_000_000,)
            ),
            0,
            9_500_000_000,
            True,
        ),
        (
            partial(
                was_ended_by_stop, first_end_ns=9 * SECOND, others_finished_ns=(9_200_000_000,)
            ),
            0,
            9_500_000_000,
            True,
        ),
        (partial(was_ended_by_stop, seen_ns=4), 3, 5, True),
        (partial(was_ended_by_stop, seen_ns=6), 3, 5, False),
        (partial(was_ended_by_stop, seen_ns=6), 143, 5, True),
        (partial(was_ended_by_stop, seen_ns=4), 3, None, True),
        (partial(was_ended_by_stop, signalled_ns=4, first_end_ns=4), 3, None, False),
    ],
)
def test_a_stop_explains_an_end_that_followed_it(
    *,
    stop: Callable[[int | None, int | None], bool],
    exit_code: int | None,
    finished_ns: int | None,
    explains: bool,
) -> None:
    assert stop(exit_code, finished_ns) is explains
