"""Whether an answer is whole, or a part of what was asked for, and why."""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from profiler.core.optional_math import known_values

# The Region of a log group, None if it is unknown, and its name.
UnreadGroup: TypeAlias = tuple[str | None, str]


class Gap(Struct, frozen=True, kw_only=True):
    """A part of what was asked for that a reader did not get.

    ``place``: where it should be. ``reason``: a sentence, "" if it was said when it happened.
    ``group``: the log group whose families alone are concerned; None: all that were asked for.
    """

    place: str
    reason: str = ""
    group: UnreadGroup | None = None


class Completeness(Struct, frozen=True):
    """Whole without gaps, else a part. Nobody acts on a part."""

    gaps: tuple[Gap, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.gaps

    @property
    def sentences(self) -> tuple[str, ...]:
        """Why it is a part: each reason once, without those that were said."""
        return tuple(dict.fromkeys(gap.reason for gap in self.gaps if gap.reason))

    @property
    def places(self) -> tuple[str, ...]:
        """The places that lack something of every family."""
        return tuple(dict.fromkeys(gap.place for gap in self.gaps if gap.group is None))

    @property
    def groups(self) -> frozenset[UnreadGroup]:
        """The log groups whose families alone are concerned."""
        return frozenset(known_values(gap.group for gap in self.gaps))


WHOLE = Completeness()


def joined_completeness(parts: Iterable[Completeness]) -> Completeness:
    """Whole if all of them are."""
    gaps: dict[Gap, None] = {}
    for part in parts:
        gaps.update(dict.fromkeys(part.gaps))
    return Completeness(tuple(gaps))
