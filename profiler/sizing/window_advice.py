"""What the runs of a window call for, by the size at which they ran: computed once, however often a
size is decided on.
"""

from functools import cached_property, partial

from profiler.core.optional_math import known
from profiler.record.record_model import TaskSize
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.evidence import Evidence
from profiler.sizing.family_window import FamilyWindow
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_limits import ResizePolicy
from profiler.sizing.window_evidence import evidence_at_size, with_all_needs


class SizeAdvice:
    """What the measured runs at one size show. The window is closed."""

    def __init__(self, advised: "WindowAdvice", evidence: Evidence) -> None:
        self._advised = advised
        self.evidence = evidence

    @cached_property
    def advice(self) -> Advice:
        """The advice by the runs at the size."""
        return self._advised.advice_on_evidence(self.evidence)

    @cached_property
    def advice_of_all(self) -> Advice:
        """The advice with what runs at any size needed."""
        return self._advised.advice_on_evidence(with_all_needs(self.evidence, self._advised.window))


class WindowAdvice:
    """What a closed window's runs call for at each size."""

    def __init__(
        self, window: FamilyWindow, policy: ResizePolicy, price_overrides: PriceOverrides
    ) -> None:
        self.window = window
        self.policy = policy
        self.price_overrides = price_overrides
        self._at_sizes: dict[TaskSize, SizeAdvice | None] = {}

    def advice_at_size(self, size: TaskSize) -> SizeAdvice | None:
        """The advice on the runs at a size; None if none was measured."""
        if size not in self._at_sizes:
            evidence = evidence_at_size(self.window, size)
            self._at_sizes[size] = known(partial(SizeAdvice, self), evidence)
        return self._at_sizes[size]

    def advice_on_evidence(self, evidence: Evidence) -> Advice:
        return advise_on_size(evidence, self.policy.size, self.price_overrides)
