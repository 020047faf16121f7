"""Divides items into batches that a request may hold."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def batches(items: Sequence[_T], max_items: int) -> Iterator[Sequence[_T]]:
    """Divide items into batches of ``max_items``; the last one may have fewer."""
    for start in range(0, len(items), max_items):
        yield items[start : start + max_items]


def divide(
    sized: Iterable[tuple[_T, int]], *, max_items: float = math.inf, max_bytes: int
) -> Iterator[list[_T]]:
    """Divide items, each with its size, into batches within both limits.

    A larger item is alone in its batch.
    """
    batch: list[_T] = []
    batch_bytes = 0
    for item, size in sized:
        if batch and (len(batch) == max_items or batch_bytes + size > max_bytes):
            yield batch
            batch = []
            batch_bytes = 0
        batch.append(item)
        batch_bytes += size
    if batch:
        yield batch
