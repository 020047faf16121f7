"""Whether clients may have connected to what a thread listens to: the kernel counts the connections
that others make in a network, not to whom.
"""

from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.sockets import read_accepted_connections
from profiler.readers.linux.thread_counters import FollowedThread
from profiler.readers.linux.wait_types import BlockedThread


def may_have_client(
    proc_folder: str,
    pid: int,
    thread: FollowedThread,
    before: BlockedThread | None,
    blocked: BlockedThread | None,
) -> bool | None:
    """Whether anybody may have connected since this was asked last to what the thread listened to
    in its wait before: somebody has connected to a process of its network then, or that is not
    known. None if it only goes on waiting, and nobody asked.
    """
    if thread.accepted is None and blocked is not None and blocked.is_timeout_of_listeners:
        thread.accepted = read_accepted_connections(proc_folder, pid)
    if not before or not before.is_timeout_of_listeners:
        return None
    if blocked and thread.busy_ns - thread.queued_ns < NS_PER_MS:
        return None
    known = thread.accepted
    thread.accepted = read_accepted_connections(proc_folder, pid)
    return known is None or thread.accepted != known
