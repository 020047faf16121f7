"""Prices from the settings, which replace the prices of the built-in table."""

import math
from typing import ClassVar

from msgspec import Struct


class PriceOverrides(Struct, frozen=True, kw_only=True):
    """Prices in USD per hour: on Fargate of a vCPU, a GiB of memory and a GiB of storage; on EC2 of a task."""

    HOUR_NAME: ClassVar[str] = "TASK_PROFILER_PRICE_HOUR"

    vcpu_hour_usd: float | None = None
    gb_hour_usd: float | None = None
    storage_gb_hour_usd: float | None = None
    hour_usd: float | None = None

    def fargate_names(self) -> tuple[str, ...]:
        """Return the names of the Fargate price settings that are set."""
        named = (
            ("TASK_PROFILER_PRICE_VCPU_HOUR", self.vcpu_hour_usd),
            ("TASK_PROFILER_PRICE_GB_HOUR", self.gb_hour_usd),
            ("TASK_PROFILER_PRICE_STORAGE_GB_HOUR", self.storage_gb_hour_usd),
        )
        return tuple(name for name, value in named if value is not None)


def parse_price(text: str) -> float:
    """Parse the USD of a setting. Raises ValueError if it is not a finite number of at least 0."""
    price = float(text)
    if not math.isfinite(price) or price < 0:
        raise ValueError(text)
    return price
