"""Which threads a look leaves to the next ones."""

from itertools import pairwise

import pytest

from profiler.readers.linux.reading_turns import ThreadTurns


def _turns(threads: int, *, disk_every: int | None) -> list[int]:
    """The readings in which threads have their turn; in each such the disk may be waited for."""
    turns = ThreadTurns()
    found = []
    for number in range(1, 1000):
        if not turns.are_due(number) or not turns.begin_if_due(threads, number):
            continue
        found.append(number)
        if disk_every is not None and len(found) % disk_every == 0:
            turns.disk_number = number
    return found


@pytest.mark.parametrize(
    ("threads", "disk_every", "readings"),
    [(8, None, 40), (8, 1, 20), (16, 1, 20), (24, 1, 30), (32, 1, 40), (64, 1, 40), (8, 10, 20)],
)
def test_after_a_wait_for_a_disk_few_threads_have_their_turn_more_often(
    threads: int, disk_every: int | None, readings: int
) -> None:
    late = _turns(threads, disk_every=disk_every)[-5:]
    assert [after - before for before, after in pairwise(late)] == [readings] * 4
