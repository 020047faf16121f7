"""What a run cost on Fargate Spot: a fraction of its on-demand price.

The metadata endpoint does not show Spot.

AWS changes Spot prices and has no list of them: its pricing page (2026-09) says "up to 70 % off",
and copies of it show 30 % in us-west-2 (2023), 33 % in eu-west-1 (2020) and 34 % in sa-east-1. So
the fraction is the least that Spot costs.
"""

from typing import Final

from profiler.record.measured import Measured, measured_from
from profiler.record.record_model import Cost

FARGATE_SPOT: Final = "FARGATE_SPOT"
# How the price basis of AWS's list prices ends.
ON_DEMAND_PRICE: Final = "on-demand price"
SPOT_FRACTION: Final = 0.3


def spot_fraction(cost: Cost) -> float:
    """The price on Spot as a fraction of the cost; 1 if it was calculated with the user's own
    prices.
    """
    is_own = "TASK_PROFILER_PRICE" in (cost.price_basis or "")
    return 1.0 if is_own else SPOT_FRACTION


def cost_on_provider(capacity_provider: str | None, cost: Cost) -> Cost:
    """The cost of a run on this capacity provider, from the cost that the monitor calculated."""
    fraction = spot_fraction(cost)
    if cost.usd is None or capacity_provider != FARGATE_SPOT or fraction == 1:
        return cost
    basis = (
        f"at least, on {FARGATE_SPOT}: {fraction:.0%} of "
        f"{cost.price_basis or f'the {ON_DEMAND_PRICE}'}"
    )
    return Cost(usd=usd_on_spot(cost.usd, fraction), price_basis=basis)


def is_on_spot(cost: Cost) -> bool:
    """Whether it is a cost on Spot: the least that the run can have cost."""
    return FARGATE_SPOT in (cost.price_basis or "")


def measured_cost(cost: Cost) -> Measured:
    """The cost: at least that on Spot."""
    return measured_from(cost.usd, is_least=is_on_spot(cost))


def usd_on_spot(usd: float, fraction: float) -> float:
    """An amount on Spot."""
    return round(usd * fraction, 8)
