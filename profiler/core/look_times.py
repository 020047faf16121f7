"""When to look at something that may be periodic: spread over each step, not on a grid."""

from typing import Protocol

from msgspec import Struct

from profiler.core.optional_math import first_known
from profiler.core.timestamps import NEVER_NS

MAX_LOOKS = 5
# The smaller part of the golden section: with the larger one, two looks of which each is the only
# one of its step would be up to 1.62 steps apart, more than a look covers.
GOLDEN_PART = 0.3819660112501051
# The cost of a look, or of a peek, is a mean of the last ones, in which this is the part of the
# newest: a rare expensive one, as the first, counts little. A mean that falls faster than it rises
# would be that of the cheap ones, so that the looks together cost several times their share.
_PART_OF_NEWEST = 1 / 16
# If the looks of so many steps have found each thread in the same wait again, one look in each step
# is enough until one finds another: more would say the same. It is taken together with the reading
# of the processes, which has woken this thread already. In each eighth step there is another one,
# at its place: what happens again and again between two readings would never be seen.
_SAME_STEPS = 20
# The counters have to say for how long any thread could run, but for a tenth of the time. A step of
# which they leave more open costs ten times as many steps, one that was not looked at half of that,
# of those that were the same before, up to a minute and these.
_MAX_OPEN_PART = 0.1
_UNREAD_PART = 0.5
_STEPS_PER_OPEN = 10
_STEPS_PER_PLACED = 8
# If nothing has run in so many steps, readings of the processes alone say it. Of a step in which
# something runs again, it is not known when: that is a 30th of such a time at most.
_ASLEEP_STEPS = 30
# For the same reason, after so many same steps each second reading comes without a look.
_LONG_SAME_STEPS = 60


class Look(Protocol):
    """What a look has found, beside the look before."""

    @property
    def is_still(self) -> bool:
        """Whether nothing ran in between."""

    @property
    def has_other_waits(self) -> bool:
        """Whether a thread waits for something else, or has ended."""

    @property
    def open_ns(self) -> int | None:
        """For how long the counters leave open whether any thread could run; None if some were not
        read.
        """


class LookTimes(Struct):
    """The times of looks: in each step one to five of them, as many as cost at most a share of one
    core, one in each equal part of the step, at a place that moves by the golden ratio.

    ``_place`` is the first one's, between 0 and 1. Where there are fewer than five, five peeks in
    each step say in between whether anything could run, if the share has room for these, too. There
    are only peeks where each look is taken together with another reading. ``_same_since_ns``: the
    looks since then have found each thread in the same wait, later if they left much open;
    ``_still_since_ns``: each has found that none ran. ``_left_out``: readings since the last look
    that came without one.
    """

    _start_ns: int
    _step_ns: int
    _max_share: float
    _place: float
    _step: int = 0
    _index: int = 0
    _count: int = MAX_LOOKS
    _cost_ns: float = 0.0
    _peek_cost_ns: float = 0.0
    _peek: int = 0
    _peek_place: float = 0.5
    _has_peeks: bool = False
    _same_since_ns: int | None = None
    _still_since_ns: int | None = None
    _left_out: int = 0

    @property
    def due_ns(self) -> int:
        """When the next look or peek is due."""
        if not self._has_peeks:
            return self._look_due_ns
        return min(self._look_due_ns, self._peek_due_ns)

    @property
    def peek_due_ns(self) -> float:
        """When the next peek is due; NEVER_NS without any."""
        return self._peek_due_ns if self._has_peeks else NEVER_NS

    @property
    def is_peek(self) -> bool:
        """Whether the next one is a peek."""
        return self._has_peeks and self._peek_due_ns < self._look_due_ns

    @property
    def _look_due_ns(self) -> int:
        part = (self._index + self._place) / self._count
        return self._start_ns + round((self._step + part) * self._step_ns)

    @property
    def _peek_due_ns(self) -> int:
        part = (self._peek + self._peek_place) / MAX_LOOKS
        return self._start_ns + round(part * self._step_ns)

    @property
    def part_ns(self) -> int:
        """The part of the step for which the next look stands."""
        return self._step_ns // self._count

    def note_look(
        self,
        now_ns: int,
        cost_ns: int,
        *,
        is_enough: bool = False,
        can_peek: bool = True,
        look: Look | None = None,
    ) -> None:
        """Go on after a look that has cost this CPU time.

        ``is_enough``: more than one look in a step would cost too much, or say no more.
        ``can_peek``: a peek would say something. ``look`` None: it could not be taken.
        """
        self._note_found(now_ns, look)
        self._cost_ns = _mean_ns(self._cost_ns, cost_ns)
        self._place = (self._place + GOLDEN_PART) % 1
        self._index += 1
        if self._index >= self._count or is_enough or now_ns >= self._step_end_ns:
            self._begin_step(now_ns, is_enough=is_enough, can_peek=can_peek)

    def note_peek(self, now_ns: int, cost_ns: int) -> None:
        """Go on after a peek that has cost this CPU time."""
        self._peek_cost_ns = _mean_ns(self._peek_cost_ns, cost_ns)
        self._peek_place = (self._peek_place + GOLDEN_PART) % 1
        self._peek = max(self._peek + 1, (now_ns - self._start_ns) * MAX_LOOKS // self._step_ns)

    def is_with_reading(self, now_ns: int) -> bool:
        """Whether there is a look together with the reading of the processes at this moment."""
        return self._has_lasted(self._same_since_ns, _SAME_STEPS, now_ns)

    def leave_out_if_long_same(self, now_ns: int) -> bool:
        """Leave the look of the reading at this moment to the next reading if looks have found the
        same for long; returns whether that is so.
        """
        step = self._step_of_reading(now_ns)
        if step % 2 == 0 or not self._has_lasted(self._same_since_ns, _LONG_SAME_STEPS, now_ns):
            return False
        if now_ns < self._look_due_ns:  # else the one at its place is taken late
            self._step = max(self._step, step + 1)
        self._left_out += 1
        return True

    def _step_of_reading(self, now_ns: int) -> int:
        """The step that begins with a reading, which may come a moment too early."""
        return (now_ns - self._start_ns + self._step_ns // 2) // self._step_ns

    def note_with_reading(self, now_ns: int, look: Look | None) -> None:
        """Go on after a look that was taken with the reading: see :meth:`note_look`. In this step
        there are others if it has found another wait, or leaves too much open, and another one if
        its turn has come.
        """
        self._index = 0
        self._note_found(now_ns, look)
        if not self.is_with_reading(now_ns):
            self._count = self._affordable_count
            return
        self._has_peeks = False
        self._step = self._step_of_reading(now_ns)
        is_asleep = self._has_lasted(self._still_since_ns, _ASLEEP_STEPS, now_ns)
        self._step += is_asleep or self._step % _STEPS_PER_PLACED > 0

    def _note_found(self, now_ns: int, look: Look | None) -> None:
        """Note since when the looks have found each thread in the same wait."""
        step_ns = (1 + self._left_out) * self._step_ns
        self._left_out = 0
        is_still = look is not None and look.is_still
        self._still_since_ns = first_known(self._still_since_ns, now_ns) if is_still else None
        if look is not None and look.has_other_waits:
            self._same_since_ns = None
            return
        open_ns = None if look is None else look.open_ns
        open_part = _UNREAD_PART if open_ns is None else min(open_ns / step_ns, 1.0)
        since_ns = first_known(self._same_since_ns, now_ns)
        if open_part > _MAX_OPEN_PART:
            earliest_ns = now_ns - (_LONG_SAME_STEPS + _STEPS_PER_OPEN) * self._step_ns
            lost_ns = round(_STEPS_PER_OPEN * open_part * self._step_ns)
            since_ns = min(max(since_ns, earliest_ns) + lost_ns, now_ns)
        self._same_since_ns = since_ns

    def _has_lasted(self, since_ns: int | None, steps: int, now_ns: int) -> bool:
        return since_ns is not None and now_ns - since_ns >= steps * self._step_ns

    @property
    def _affordable_count(self) -> int:
        """How many looks a step has by what they cost."""
        affordable = int(self._max_share * self._step_ns / max(self._cost_ns, 1.0))
        return min(max(affordable, 1), MAX_LOOKS)

    def looked_with_others(self, now_ns: int, *, can_peek: bool) -> None:
        """Go on after a look that was taken together with another reading."""
        self._step = max(self._step, (now_ns - self._start_ns) // self._step_ns)
        self._allow_peeks(self._max_share * self._step_ns if can_peek else 0)

    @property
    def _step_end_ns(self) -> int:
        return self._start_ns + (self._step + 1) * self._step_ns

    def _begin_step(self, now_ns: int, *, is_enough: bool, can_peek: bool) -> None:
        """Begin the next step that is not over."""
        self._step = max(self._step + 1, (now_ns - self._start_ns) // self._step_ns)
        self._index = 0
        share_ns = self._max_share * self._step_ns
        self._count = 1 if is_enough else self._affordable_count
        is_same = self._has_lasted(self._same_since_ns, _SAME_STEPS, now_ns)
        if is_same:
            self._count = 1
        is_room = can_peek and not (is_enough or is_same) and self._count < MAX_LOOKS
        self._allow_peeks(share_ns - self._count * self._cost_ns if is_room else 0)

    def _allow_peeks(self, left_ns: float) -> None:
        """Allow peeks if so much is left for those of a step."""
        had_peeks = self._has_peeks
        self._has_peeks = left_ns > 0 and MAX_LOOKS * self._peek_cost_ns <= left_ns
        if self._has_peeks and not had_peeks:
            self._peek = max(self._peek, self._step * MAX_LOOKS)


def _mean_ns(mean_ns: float, cost_ns: int) -> float:
    """The mean cost of the last ones, with one more."""
    return mean_ns + (cost_ns - mean_ns) * _PART_OF_NEWEST
