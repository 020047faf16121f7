"""Keeps a bounded number of items, whatever the order and the number of those that are added."""

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class HighestRanked(Generic[_Item]):
    """The ``limit`` items of the highest rank; an identity is kept once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.entries: list[tuple[int, int, _Item]] = []
        self._identities: set[int] = set()

    def add(self, rank: int, identity: int, item: _Item) -> None:
        if identity in self._identities:
            return
        is_full = len(self.entries) == self._limit
        if is_full and (rank, identity) < self.entries[0][:2]:
            return
        self._identities.add(identity)
        entry = (rank, identity, item)
        if not is_full:
            heapq.heappush(self.entries, entry)
            return
        _, dropped, _ = heapq.heappushpop(self.entries, entry)
        self._identities.discard(dropped)

    def merge(self, other: "HighestRanked[_Item]") -> None:
        for rank, identity, item in other.entries:
            self.add(rank, identity, item)

    def items(self) -> list[_Item]:
        """The items, in no particular order."""
        return [item for _, _, item in self.entries]

    def __iter__(self) -> Iterator[tuple[int, _Item]]:
        """The identities with their items, in no particular order."""
        return ((identity, item) for _, identity, item in self.entries)
