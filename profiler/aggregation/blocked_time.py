"""The time in which nothing could run, before it is known what the run waited for then."""

from msgspec import Struct


class BlockedTime(Struct, frozen=True):
    """The part of a stretch that is not busy: ``fixed_ns``, less the share of ``open_ns`` that is
    busy by the looks of the whole run.
    """

    fixed_ns: float = 0.0
    open_ns: float = 0.0

    def __add__(self, other: "BlockedTime") -> "BlockedTime":
        """The sum of both."""
        return BlockedTime(self.fixed_ns + other.fixed_ns, self.open_ns + other.open_ns)

    def share_of(self, share: float) -> "BlockedTime":
        return BlockedTime(share * self.fixed_ns, share * self.open_ns)

    def total_ns(self, open_share: float) -> float:
        """The length of the blocked time, given which share of the open ranges was busy."""
        return max(self.fixed_ns - open_share * self.open_ns, 0.0)


class UndividedTime(Struct):
    """Blocked time that no look has taken so far: ``left``, and what no look covers of ``gaps``
    that ended with looks which say nothing about it.
    """

    left: BlockedTime = BlockedTime()
    gaps: BlockedTime = BlockedTime()

    def add_blocked_time(self, blocked: BlockedTime, known: float) -> None:
        """Add blocked time, of which a look covers the share ``known``."""
        self.left += blocked.share_of(known)
        if known < 1:
            self.gaps += blocked.share_of(1 - known)

    def assign_gaps(self, *, is_same: bool) -> None:
        """A look shows what the last one before the gaps did, or something else."""
        if is_same:
            self.left += self.gaps
        self.gaps = BlockedTime()

    def take_share(self, share: float) -> BlockedTime:
        """Take this share of what is left."""
        taken = self.left.share_of(share)
        self.left = self.left.share_of(1 - share)
        return taken
