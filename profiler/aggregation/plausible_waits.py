"""Which waits for a CPU can be true.

Linux 6.12 and later leave a thread that goes to sleep in the queue of its CPU for a while. If it is
moved to another CPU meanwhile, the kernel counts its sleep as a wait for a CPU. This happens on a
machine with much to do: there, up to 8 % of the waits of 32 processes that woke together once a
second were several times too long.
"""

from collections.abc import Iterator, Sequence

from profiler.readers.linux.thread_counters import ThreadGrowth

# So many threads that ran at least half as long show what one may have waited: the kernel gives all
# about as much of the CPUs, unless they may use other CPUs or have another priority. A thread's
# wait is wrong if it was blocked before, and the wait is this many times as long as three in four
# of theirs, and a notable part of the step.
_MIN_PEERS = 16
_MAX_TIMES_PEERS = 2
_NOTABLE_PART = 10


def plausible_waits(growth: Sequence[ThreadGrowth], step_ns: int) -> Iterator[ThreadGrowth]:
    """The growth of the threads less those whose wait the kernel invented; ``step_ns`` is the
    length of the step.
    """
    notable_ns = step_ns // _NOTABLE_PART
    limits_ns: dict[int, int | None] = {}  # by the number of bits of the time on a CPU
    for grown in growth:
        wait_ns = grown.wait_ns // grown.steps
        if len(growth) < _MIN_PEERS or wait_ns <= notable_ns or grown.could_run:
            yield grown
            continue
        bits = _run_bits(grown)
        if bits not in limits_ns:
            limits_ns[bits] = _limit_ns(growth, bits)
        limit_ns = limits_ns[bits]
        if limit_ns is None or wait_ns <= limit_ns:
            yield grown


def _run_bits(grown: ThreadGrowth) -> int:
    return (grown.run_ns // grown.steps).bit_length()


def _limit_ns(growth: Sequence[ThreadGrowth], bits: int) -> int | None:
    """The longest wait that the waits of threads that ran as long make plausible; None if these
    are too few.
    """
    peers_ns = sorted(
        [grown.wait_ns // grown.steps for grown in growth if _run_bits(grown) >= bits]
    )
    if len(peers_ns) < _MIN_PEERS:
        return None
    return _MAX_TIMES_PEERS * peers_ns[len(peers_ns) * 3 // 4]
