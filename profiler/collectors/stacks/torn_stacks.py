"""Recognizes stacks that were read while they changed: the process runs on meanwhile.

The outermost function of a thread stays the same as long as the thread lives. So a running thread whose stack begins
elsewhere than before was read in the middle of a change.
"""

from collections.abc import Iterable

from profiler.collectors.stacks.thread_stacks import ThreadStack

# The outermost functions of the main thread and of threads of the module threading.
_USUAL_ROOTS = frozenset({"<module>", "_bootstrap", "Thread._bootstrap", "_run_module_as_main"})
_MAX_THREADS = 10_000


class ThreadRoots:
    """The outermost functions of the threads of one process, as far as they are the usual ones."""

    def __init__(self) -> None:
        self._roots: dict[int, str] = {}

    def without_torn(self, stacks: Iterable[ThreadStack]) -> tuple[ThreadStack, ...]:
        """The stacks without those that cannot be right. The stack of a thread that waits does not change."""
        return tuple(stack for stack in stacks if not (self._differs(stack) and stack.is_active))

    def _differs(self, stack: ThreadStack) -> bool:
        root = stack.frames[0].function
        if root in _USUAL_ROOTS and len(self._roots) < _MAX_THREADS:
            self._roots[stack.thread_id] = root
        return self._roots.get(stack.thread_id, root) != root
