"""Sleeps of a thread one after the other, until it asks again whether a child has ended.

A look sees one of several such sleeps: what the thread used between two looks was not after one.
"""

from profiler.aggregation.thread_wait import Sleeps, ThreadWait
from profiler.core.timestamps import NS_PER_MS

# Who sleeps again and again, and used less than this each time, asks whether others have ended:
# what it used between two looks was not after one of these sleeps.
_MAX_ASKING_NS = NS_PER_MS // 2


def asks_until(before: ThreadWait, following: ThreadWait) -> bool:
    """Whether the thread sleeps again and again until the following wait, and does hardly
    anything in between.
    """
    return int(following.slices) - int(before.slices) > 1 and _sleeps_until(before, following)


def note_sleeps(before: ThreadWait, following: ThreadWait) -> ThreadWait | None:
    """Note whether the thread asks whether a child has ended, and sleeps until it asks again;
    returns the first of these sleeps if that is new of them.
    """
    if not _sleeps_until(before, following):
        return None
    if before.sleeps is None:
        before.sleeps = Sleeps(before)
    following.sleeps = before.sleeps
    if before.sleeps.is_asking or not asks_until(before, following):
        return None
    before.sleeps.is_asking = True
    return before.sleeps.first


def _sleeps_until(before: ThreadWait, following: ThreadWait) -> bool:
    """Whether the thread sleeps, and sleeps again after hardly any work."""
    if following.is_of_worker:  # others have taken the CPU, or a lock, from it in between
        return False
    if not (before.is_sleep and following.is_sleep):
        return False
    slices = int(following.slices) - int(before.slices)
    return following.run_ns - before.run_ns < slices * _MAX_ASKING_NS
