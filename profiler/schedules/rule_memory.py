"""How long rules have been as they are: AWS does not return it, and CloudTrail shows a change some minutes later."""

from collections.abc import Iterable

from profiler.core.timestamps import NS_PER_SECOND
from profiler.schedules.schedule_model import Schedule

# CloudTrail shows most calls within five minutes.
_SETTLED_NS = 15 * 60 * NS_PER_SECOND


class RuleMemory:
    """Keeps the time since which each rule was seen without a change."""

    def __init__(self) -> None:
        self._since_ns: dict[Schedule, int] = {}

    def add(self, schedules: Iterable[Schedule], now_ns: int) -> None:
        """Remember the rules that were read now. One that is not among them counts as new later."""
        self._since_ns = {one: self._since_ns.get(one, now_ns) for one in schedules if one.kind == "rule"}

    def is_settled(self, schedule: Schedule, now_ns: int) -> bool:
        """Whether CloudTrail shows every change that has an effect on earlier due times."""
        return schedule.kind != "rule" or now_ns - self._since_ns.get(schedule, now_ns) >= _SETTLED_NS
