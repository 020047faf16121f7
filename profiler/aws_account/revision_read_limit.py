"""Reads a few revisions of each family, however many it has: ECS allows some 20 calls a second to
all programs of an account.
"""

from collections import Counter
from collections.abc import Callable

from profiler.core.ecs_terms import family_of, revision_text
from profiler.core.errors import TaskProfilerError

MAX_READS = 3


class BoundedReads:
    """Reads at most three revisions of each family.

    ``describe`` has the form of :meth:`TaskDefinitions.describe`. The newest revision of a family
    is read each time, because it may have changed. ``reads_twice``: one call is kept for that.
    What was read ahead is the answer to the first question for it.
    """

    def __init__(self, describe: Callable[[str], bytes], *, reads_twice: bool) -> None:
        self._describe = describe
        self._reads_twice = reads_twice
        self._known: dict[str, bytes] = {}
        self._ahead: dict[str, bytes] = {}
        self._reads: Counter[str] = Counter()
        self._newest_reads: Counter[str] = Counter()

    def read_ahead(self, family: str) -> bytes:
        """ECS's response for a family, before it is planned. Raises TaskProfilerError."""
        response = self.describe(family)
        self._ahead[family] = response
        return response

    def describe(self, name: str) -> bytes:
        """ECS's response for a family, or for ``family:revision``. Raises TaskProfilerError."""
        family = family_of(name)
        revision = revision_text(name)
        if family in self._ahead and not revision:
            return self._ahead.pop(family)
        if not revision:
            self._newest_reads[family] += 1
            self._reads[family] += 1
            return self._describe(name)
        if name not in self._known:
            self._check_limit(family, name)
            self._reads[family] += 1
            self._known[name] = self._describe(name)
        return self._known[name]

    def _check_limit(self, family: str, name: str) -> None:
        is_second_to_come = self._reads_twice and self._newest_reads[family] < 2  # noqa: PLR2004
        if self._reads[family] + is_second_to_come >= MAX_READS:
            raise TaskProfilerError(
                f"{name} was not read: a call reads {MAX_READS} revisions of a family at most."
            )
