"""The work of one GPU in one run: how much of it there was, and when it began and ended.

Everything has a constant size, however long the run is.
"""

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.statistics import TimeWeightedStatistics
from profiler.core.timestamps import NS_PER_SECOND

# Work that is separated by a longer pause begins or ends anew: the larger of both.
_MIN_PAUSE_NS = 2 * NS_PER_SECOND
_PAUSE_SHARE = 20
# The first piece of work that has this share of all of it is the beginning of the work. At most 21
# pieces are separated by a twentieth of the run, so one of them has more.
_MIN_PIECE_SHARE = 0.04
_MAX_PIECES = 64
# The making and the end of a context show as 1 or 2 % of a window.
_WEAK_PERCENT = 2
_PERCENT = 100


class _PieceOfWork(Struct):
    """Work on the GPU without a long pause; the times in use are sums since the run's start."""

    start_ns: int
    end_ns: int
    used_ns: float
    used_before_ns: float
    used_until_ns: float


class _PiecesOfWork:
    """The pieces of work of a run: the pauses that separate them grow with the run."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._pieces: list[_PieceOfWork] = []

    def add_piece(self, piece: _PieceOfWork) -> None:
        """Add work that begins at the end of the last piece or later."""
        self._pieces.append(piece)
        if len(self._pieces) > 1 and self._are_one(self._pieces[-2], piece, piece.end_ns):
            self._pieces.pop()
            self._extend(self._pieces[-1], piece)
        if len(self._pieces) > _MAX_PIECES:
            self._pieces = self._merged_pieces(piece.end_ns)

    def first_and_last_large(self, until_ns: int) -> tuple[_PieceOfWork, _PieceOfWork] | None:
        """The first and the last piece that are more than a small part of the work; None without
        work.
        """
        pieces = self._merged_pieces(until_ns)
        least_ns = _MIN_PIECE_SHARE * sum(piece.used_ns for piece in pieces)
        large = [piece for piece in pieces if piece.used_ns and piece.used_ns >= least_ns]
        return (large[0], large[-1]) if large else None

    def _are_one(self, first: _PieceOfWork, second: _PieceOfWork, until_ns: int) -> bool:
        pause_ns = max(_MIN_PAUSE_NS, (until_ns - self._started_ns) // _PAUSE_SHARE)
        return second.start_ns - first.end_ns < pause_ns

    def _extend(self, piece: _PieceOfWork, following: _PieceOfWork) -> None:
        piece.end_ns = max(piece.end_ns, following.end_ns)
        piece.used_ns += following.used_ns
        piece.used_until_ns = following.used_until_ns

    def _merged_pieces(self, until_ns: int) -> list[_PieceOfWork]:
        merged: list[_PieceOfWork] = []
        for piece in self._pieces:
            if merged and self._are_one(merged[-1], piece, until_ns):
                self._extend(merged[-1], piece)
            else:
                merged.append(replace(piece))
        return merged


class WorkLimits(Struct, frozen=True, kw_only=True):
    """When a GPU worked for a run (monotonic), and how long it was idle before, between and
    after.
    """

    first_ns: int
    last_ns: int
    before_ns: float
    between_ns: float
    after_ns: float


class GpuWork:
    """Sums up the windows of one GPU in a run that began at ``started_ns``."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self.utilization = TimeWeightedStatistics()
        self.used_ns = 0.0
        self.covered_ns = 0
        self._pieces = _PiecesOfWork(started_ns)
        self._strong_pieces = _PiecesOfWork(started_ns)
        self._strong_ns = 0.0
        self._used_until_ns: int | None = None

    def add_window(
        self, start_ns: int, end_ns: int, used_ns: float, *, within: tuple[int, int], percent: float
    ) -> None:
        """Add a window of which ``used_ns`` were work, somewhere ``within`` a part of it;
        ``percent`` is the driver's, of the whole window.
        """
        length_ns = end_ns - start_ns
        self.covered_ns += length_ns
        self.utilization.add_value(_PERCENT * used_ns / length_ns, length_ns)
        if not used_ns:
            return
        first_ns, last_ns = within
        # Work that ends a pause is at the end of its window, and work before one at its begin.
        begin_ns = round(last_ns - used_ns)
        until_ns = last_ns
        if self._used_until_ns == first_ns:
            begin_ns = first_ns
            until_ns = round(first_ns + used_ns)
        before_ns = self.used_ns
        self.used_ns += used_ns
        work = (begin_ns, until_ns, used_ns, before_ns, self.used_ns)
        self._pieces.add_piece(_PieceOfWork(*work))
        if percent > _WEAK_PERCENT:
            self._strong_ns += used_ns
            self._strong_pieces.add_piece(_PieceOfWork(*work))
        self._used_until_ns = last_ns

    def work_limits_until(self, until_ns: int) -> WorkLimits | None:
        """When the GPU worked until this end of the run; None if it did not.

        Weak windows neither begin nor end the work if there was enough of other work.
        """
        pieces = self._pieces
        if self._strong_ns >= self.used_ns / 2:
            pieces = self._strong_pieces
        found = pieces.first_and_last_large(until_ns)
        if found is None:
            return None
        first, last = found
        used_between_ns = last.used_until_ns - first.used_before_ns
        used_after_ns = self.used_ns - last.used_until_ns
        before_ns = first.start_ns - self._started_ns - first.used_before_ns
        between_ns = last.end_ns - first.start_ns - used_between_ns
        after_ns = until_ns - last.end_ns - used_after_ns
        return WorkLimits(
            first_ns=first.start_ns,
            last_ns=last.end_ns,
            before_ns=max(before_ns, 0),
            between_ns=max(between_ns, 0),
            after_ns=max(after_ns, 0),
        )
