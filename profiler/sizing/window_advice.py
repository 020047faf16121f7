"""What the runs of a window call for, by the size at which they ran: computed once, however often a
size is decided on.
"""

from functools import cached_property

from profiler.record.record_model import TaskSize
from profiler.sizing.advice import Advice, advise
from profiler.sizing.evidence import Evidence
from profiler.sizing.family_window import FamilyWindow
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_policy import ResizePolicy
from profiler.sizing.window_evidence import evidence_at, with_all_needs


class SizeAdvice:
    """What the runs at one size show. The window is closed."""

    def __init__(
        self,
        window: FamilyWindow,
        size: TaskSize,
        policy: ResizePolicy,
        price_overrides: PriceOverrides,
    ) -> None:
        self._window = window
        self._size = size
        self._policy = policy
        self._price_overrides = price_overrides

    @cached_property
    def evidence(self) -> Evidence | None:
        """None if no run at the size was measured."""
        return evidence_at(self._window, self._size)

    @cached_property
    def advice(self) -> Advice | None:
        """By the runs at the size."""
        if self.evidence is None:
            return None
        return self.on(self.evidence)

    @cached_property
    def advice_of_all(self) -> Advice | None:
        """With what runs at any size needed."""
        if self.evidence is None:
            return None
        return self.on(with_all_needs(self.evidence, self._window))

    def on(self, evidence: Evidence) -> Advice:
        return advise(evidence, self._policy.size, self._price_overrides, brief=True)


class WindowAdvice:
    """What a closed window's runs call for at each size."""

    def __init__(
        self, window: FamilyWindow, policy: ResizePolicy, price_overrides: PriceOverrides
    ) -> None:
        self.window = window
        self.policy = policy
        self._price_overrides = price_overrides
        self._at_sizes: dict[TaskSize, SizeAdvice] = {}

    def at(self, size: TaskSize) -> SizeAdvice:
        if size not in self._at_sizes:
            self._at_sizes[size] = SizeAdvice(self.window, size, self.policy, self._price_overrides)
        return self._at_sizes[size]
