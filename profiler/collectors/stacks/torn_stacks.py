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
        self._accepted: set[tuple[int, str]] = set()

    def without_torn(self, stacks: Iterable[ThreadStack]) -> tuple[ThreadStack, ...]:
        """The stacks without those that cannot be right. The stack of a thread that waits does not change."""
        for stack in stacks:
            root = stack.frames[0].function
            if len(self._accepted) < _MAX_THREADS:
                self._accepted.add((stack.thread_id, root))
            if root in _USUAL_ROOTS and len(self._roots) < _MAX_THREADS:
                self._roots[stack.thread_id] = root
        return tuple(stack for stack in stacks if not (stack.is_active and self._differs(stack)))

    def is_doubtful(self, stacks: Iterable[ThreadStack]) -> bool:
        """Whether a stack is torn, or begins with an unusual function for the first time."""
        return any(stack.is_active and (self._differs(stack) or self._is_new(stack)) for stack in stacks)

    def _is_new(self, stack: ThreadStack) -> bool:
        root = stack.frames[0].function
        return root not in _USUAL_ROOTS and (stack.thread_id, root) not in self._accepted

    def _differs(self, stack: ThreadStack) -> bool:
        root = stack.frames[0].function
        return self._roots.get(stack.thread_id, root) != root
