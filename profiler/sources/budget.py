"""How often something may be done that has its price."""


class DutyCycle:
    """Allows work again when what it took the last time is no more than a share of the time since then."""

    def __init__(self, share: float) -> None:
        self._max_share = share
        self._due_ns = 0

    def is_due(self, now_ns: int) -> bool:
        """Whether it is time."""
        return now_ns >= self._due_ns

    def add_cost(self, cost_ns: int, now_ns: int) -> None:
        """The work took ``cost_ns`` and is done now."""
        self._due_ns = now_ns + round(cost_ns / self._max_share)
