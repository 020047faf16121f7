from profiler.aggregation.unread_time import UnreadTime
from profiler.readers.linux.waited_target import Wait

CHILD = Wait("child")


def unread(*, working: int, blocked: int, certain_ns: int, possible_ns: int | None) -> UnreadTime:
    """Steps of 100 ns, of which 20 were on a CPU."""
    time = UnreadTime()
    for number in range(working + blocked):
        time.add(length_ns=100, known_ns=20, possible_ns=possible_ns, certain_ns=certain_ns)
        if number < working:
            time.add_working_sample()
        else:
            time.add_blocked_sample({CHILD: 100})
    return time


def test_few_samples_say_less_than_the_groups_own_counter() -> None:
    without = unread(working=3, blocked=0, certain_ns=0, possible_ns=None).parts()
    parts = unread(working=3, blocked=0, certain_ns=75, possible_ns=None).parts()
    assert parts.waiting_ns == 225
    assert parts.unknown_ns == 15
    assert parts.unknown_ns < without.unknown_ns


def test_samples_that_show_blocked_threads_limit_what_the_group_waited() -> None:
    parts = unread(working=0, blocked=400, certain_ns=80, possible_ns=None).parts()
    assert parts.waiting_ns == 0
    assert parts.blocked_ns[CHILD] > 0.79 * 400 * 100


def test_a_group_that_has_not_waited_was_blocked() -> None:
    parts = unread(working=20, blocked=20, certain_ns=0, possible_ns=0).parts()
    assert parts.waiting_ns == 0


def test_the_groups_waits_never_exceed_the_rest_of_the_step() -> None:
    parts = unread(working=5, blocked=0, certain_ns=900, possible_ns=900).parts()
    assert parts.waiting_ns == 400
    assert parts.unknown_ns == 0
    assert sum(parts.blocked_ns.values()) == 0
