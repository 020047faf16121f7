"""Data on AWS Fargate: legal task sizes, prices, and the cost of a run.

Sizes: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/fargate-tasks-services.html .
Prices: AWS's price list (service AmazonECS, on demand, Linux). docs/right-size.md lists the source and date of each.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from profiler.record.model import Cost
from profiler.sizing.prices import PriceOverrides

FARGATE: Final = "FARGATE"
# ECS runs these tasks on EC2 instances, in the second case on instances that it manages. They have no price per task.
ON_INSTANCES: Final = ("EC2", "MANAGED_INSTANCES")
X86: Final = "X86_64"
PRICE_TABLE_DATE: Final = "2026-09"

_MB_PER_GB = 1024
_MS_PER_HOUR = 3_600_000
_INCLUDED_STORAGE_GB = 20
_MAX_WINDOWS_VCPU = 4
_MIN_WINDOWS_VCPU = 1
_USD_DIGITS = 8


class Size(Struct, frozen=True, order=True):
    """A task's size: vCPUs and MiB."""

    vcpu: float
    memory_mb: float


class Prices(Struct, frozen=True, kw_only=True):
    """Prices in USD per hour of a vCPU, a GiB of memory, and a GiB of storage above the included 20 GiB."""

    vcpu_hour_usd: float
    gb_hour_usd: float
    storage_gb_hour_usd: float | None = None
    basis: str = ""

    def size_hour_usd(self, size: Size) -> float:
        """Return the price in USD per hour of a task of this size, without storage."""
        return size.vcpu * self.vcpu_hour_usd + size.memory_mb / _MB_PER_GB * self.gb_hour_usd

    def hour_usd(self, size: Size, storage_mb: float | None) -> float | None:
        """Return the price in USD per hour of a task; None if its storage is charged and has no known price."""
        charged_gb = charged_storage_gb(storage_mb)
        if not charged_gb:
            return self.size_hour_usd(size)
        if self.storage_gb_hour_usd is None:
            return None
        return self.size_hour_usd(size) + charged_gb * self.storage_gb_hour_usd


def _sizes() -> tuple[Size, ...]:
    gb = _MB_PER_GB
    memories_mb: Mapping[float, tuple[int, ...]] = {
        0.25: (512, gb, 2 * gb),
        0.5: tuple(range(gb, 4 * gb + 1, gb)),
        1: tuple(range(2 * gb, 8 * gb + 1, gb)),
        2: tuple(range(4 * gb, 16 * gb + 1, gb)),
        4: tuple(range(8 * gb, 30 * gb + 1, gb)),
        8: tuple(range(16 * gb, 60 * gb + 1, 4 * gb)),
        16: tuple(range(32 * gb, 120 * gb + 1, 8 * gb)),
        32: (60 * gb, 120 * gb, 244 * gb),
    }
    return tuple(Size(vcpu, memory_mb) for vcpu, sizes_mb in memories_mb.items() for memory_mb in sizes_mb)


LEGAL_SIZES: Final = _sizes()
LEGAL_VCPUS: Final = tuple(sorted({size.vcpu for size in LEGAL_SIZES}))

# USD per vCPU hour, GB hour and storage GB hour; None where no source was found.
PRICE_TABLE: Final[Mapping[tuple[str, str], tuple[float, float, float | None]]] = {
    ("us-east-1", X86): (0.04048, 0.004445, 0.000111),
    ("us-east-1", "ARM64"): (0.03238, 0.00356, 0.000111),
    ("us-east-2", X86): (0.04048, 0.004445, 0.000111),
    ("us-west-2", X86): (0.04048, 0.004445, 0.000111),
    ("sa-east-1", X86): (0.0696, 0.0076, None),
    ("sa-east-1", "ARM64"): (0.0557, 0.00612, None),
    ("eu-west-1", X86): (0.04048, 0.004445, None),
    ("eu-west-1", "ARM64"): (0.03238, 0.00356, None),
    ("eu-west-2", X86): (0.04656, 0.00511, 0.000129),
    ("eu-west-2", "ARM64"): (0.03725, 0.00409, 0.000129),
    ("eu-central-1", X86): (0.04656, 0.00511, None),
    ("ap-northeast-1", X86): (0.05056, 0.00553, 0.000133),
    ("ap-northeast-1", "ARM64"): (0.04045, 0.00442, 0.000133),
    ("ap-southeast-1", X86): (0.05056, 0.00553, None),
    ("ap-southeast-1", "ARM64"): (0.04045, 0.00442, None),
}
# A vCPU costs nine times as much as a GiB in every region, so the cheapest size is the same everywhere.
REFERENCE_PRICES: Final = Prices(vcpu_hour_usd=0.04048, gb_hour_usd=0.004445)


def legal_sizes(*, windows: bool = False) -> tuple[Size, ...]:
    """Return the legal task sizes, smallest first. Windows tasks have those of 1 to 4 vCPU."""
    if not windows:
        return LEGAL_SIZES
    return tuple(size for size in LEGAL_SIZES if _MIN_WINDOWS_VCPU <= size.vcpu <= _MAX_WINDOWS_VCPU)


def prices(region: str | None, architecture: str | None, overrides: PriceOverrides) -> Prices | None:
    """Find Fargate's prices: from the settings, else from the table; None if neither has them."""
    table_prices = PRICE_TABLE.get((region or "", architecture or ""), (None, None, None))
    vcpu_hour_usd = table_prices[0] if overrides.vcpu_hour_usd is None else overrides.vcpu_hour_usd
    gb_hour_usd = table_prices[1] if overrides.gb_hour_usd is None else overrides.gb_hour_usd
    if vcpu_hour_usd is None or gb_hour_usd is None:
        return None
    return Prices(
        vcpu_hour_usd=vcpu_hour_usd,
        gb_hour_usd=gb_hour_usd,
        storage_gb_hour_usd=table_prices[2] if overrides.storage_gb_hour_usd is None else overrides.storage_gb_hour_usd,
        basis=_basis(region, architecture, overrides),
    )


def is_priced(region: str, overrides: PriceOverrides) -> bool:
    """Whether the prices of any architecture in the Region are known."""
    architectures = {architecture for _, architecture in PRICE_TABLE}
    return any(prices(region, architecture, overrides) is not None for architecture in architectures)


def _basis(region: str | None, architecture: str | None, overrides: PriceOverrides) -> str:
    where = " ".join(part for part in (region, FARGATE, architecture) if part)
    names = overrides.fargate_names()
    uses_table = overrides.vcpu_hour_usd is None or overrides.gb_hour_usd is None
    parts = (where, PRICE_TABLE_DATE if uses_table else None, f"with {', '.join(names)}" if names else None)
    return " ".join(part for part in parts if part)


def charged_storage_gb(storage_mb: float | None) -> int:
    """Return the charged GiB of storage, above the included 20 GiB. ECS reports 20 GiB as 20496 MiB."""
    return 0 if storage_mb is None else max(round(storage_mb / _MB_PER_GB) - _INCLUDED_STORAGE_GB, 0)


def run_cost(
    *,
    launch_type: str | None,
    billed_ms: float | None,
    hour_usd: float | None,
    basis: str | None,
    overrides: PriceOverrides,
) -> Cost | None:
    """Calculate billed duration × price per hour; None if no price applies.

    On Fargate the price is ``hour_usd``, which ``basis`` explains in the record; on instances it is that of the
    setting.
    """
    if launch_type in ON_INSTANCES:
        hour_usd, basis = overrides.hour_usd, f"{launch_type} with {overrides.HOUR_NAME}"
    elif launch_type != FARGATE:
        return None
    if billed_ms is None or hour_usd is None:
        return None
    return Cost(usd=round(billed_ms / _MS_PER_HOUR * hour_usd, _USD_DIGITS), price_basis=basis)
