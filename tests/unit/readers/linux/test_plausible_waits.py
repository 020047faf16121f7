"""Which waits for a CPU count, of many threads."""

from profiler.readers.linux.thread_counters import ThreadTimeGrowth, with_plausible_waits
from tests.fakes import seconds

STEP_NS = seconds(1)


def grown(run: float, wait: float, *, steps: int = 1, could_run: bool = False) -> ThreadTimeGrowth:
    return ThreadTimeGrowth(seconds(run), seconds(wait), steps, could_run=could_run)


# They wake together and wait for up to 0.3 s.
HERD = [grown(0.005, 0.01 * number) for number in range(31)]


def counted_of(one: ThreadTimeGrowth, others: list[ThreadTimeGrowth]) -> bool:
    return one in tuple(with_plausible_waits([*others, one], STEP_NS))


def test_of_threads_that_ran_as_long_one_wait_of_many_times_the_others_is_wrong() -> None:
    assert not counted_of(grown(0.005, 0.95), HERD)
    assert tuple(with_plausible_waits(HERD, STEP_NS)) == tuple(HERD)


def test_a_few_wrong_waits_do_not_confirm_each_other() -> None:
    wrong = [grown(0.005, 0.9 + number / 100) for number in range(6)]
    assert tuple(with_plausible_waits([*HERD, *wrong], STEP_NS)) == tuple(HERD)


def test_a_thread_that_ran_longer_than_the_others_may_have_waited_longer() -> None:
    assert counted_of(grown(0.1, 0.8), HERD)


def test_a_thread_that_could_run_before_may_have_waited_for_long() -> None:
    assert counted_of(grown(0.005, 0.95, could_run=True), HERD)


def test_a_short_wait_counts_whatever_the_others_waited() -> None:
    assert counted_of(grown(0.001, 0.09), [grown(0.001, 0.001)] * 31)


def test_few_threads_show_nothing_of_each_other() -> None:
    assert counted_of(grown(0.005, 0.95), HERD[:14])


def test_a_thread_that_was_read_after_several_steps_is_compared_by_the_step() -> None:
    assert counted_of(grown(0.02, 1.2, steps=4), HERD)
    assert not counted_of(grown(0.02, 3.6, steps=4), HERD)
