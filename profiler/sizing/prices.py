"""AWS Fargate's prices and the settings', and the cost of a run.

AWS's price list (service AmazonECS, on demand, Linux):
https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonECS/current/region_index.json
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import EC2, FARGATE, MANAGED_INSTANCES
from profiler.core.optional_math import (
    first_known,
    known_members,
    known_values,
    product,
)
from profiler.core.timestamps import MS_PER_HOUR
from profiler.record.record_model import LOCAL, NO_NEURON, UNKNOWN_COST, Cost, Record
from profiler.record.spot_price import ON_DEMAND_PRICE, SPOT_FRACTION
from profiler.record.task_needs import task_size_of
from profiler.record.units import MB_PER_GB, format_percent
from profiler.sizing.fargate_sizes import whole_size
from profiler.sizing.instance_gpus import gpus_of_type

PRICE_TABLE_DATE: Final = "2026-09-11"
X86: Final = "X86_64"
_ARCHITECTURES: Final = (X86, "ARM64")
_PERCENT = 100
# These tasks have no price of their own.
_ON_INSTANCES: Final = (EC2, MANAGED_INSTANCES)
_PART_OF_GPU: Final = "MIG-"  # the beginning of its UUID


class _ListedPrices(NamedTuple):
    """The list prices of a Region and architecture, of which each can be unknown: a row of the
    table.
    """

    vcpu_hour_usd: float | None = None
    gb_hour_usd: float | None = None
    storage_gb_hour_usd: float | None = None


_Row = tuple[float | None, float | None, float | None]
_NONE: Final = (None, None, None)
# By Region, on X86_64 and ARM64; None where no published value was found. The prices of X86_64 in
# 22 Regions are from https://github.com/theuves/fgcalc, which compared them with AWS's offer of
# 2026-09-11. The others were quoted from that offer in public repositories (eu-north-1 on ARM64:
# from the one before it). A price on ARM64 does not follow from the one on X86_64: it is 80 % in
# most Regions, and 56 % in ap-south-1.
PRICE_TABLE: Final[Mapping[str, tuple[_Row, _Row]]] = {
    "af-south-1": ((0.0546, 0.006, None), _NONE),
    "ap-east-1": ((0.0556, 0.0061, None), (0.04449, 0.00487, None)),
    "ap-northeast-1": ((0.05056, 0.00553, 0.000133), (0.04045, 0.00442, 0.000133)),
    "ap-northeast-2": ((0.04656, 0.00511, 0.000127), (0.03725, 0.00409, 0.000127)),
    "ap-northeast-3": (_NONE, (0.04045, 0.00442, None)),
    "ap-south-1": ((0.04256, 0.004655, None), (0.02383, 0.00261, None)),
    "ap-south-2": ((0.04256, 0.004655, None), (0.02383, 0.00261, None)),
    "ap-southeast-1": ((0.05056, 0.00553, None), (0.04045, 0.00442, None)),
    "ap-southeast-2": ((0.04856, 0.00532, None), _NONE),
    "ca-central-1": ((0.04456, 0.004865, None), (0.03565, 0.00389, None)),
    "eu-central-1": ((0.04656, 0.00511, None), (0.03725, 0.00409, None)),
    "eu-north-1": ((0.0445, 0.0049, None), (0.0356, 0.00392, None)),
    "eu-south-1": ((0.0486, 0.0053, None), _NONE),
    "eu-west-1": ((0.04048, 0.004445, None), (0.03238, 0.00356, None)),
    "eu-west-2": ((0.04656, 0.00511, 0.000129), (0.03725, 0.00409, 0.000129)),
    "eu-west-3": ((0.0486, 0.0053, None), _NONE),
    "il-central-1": ((0.0518144, 0.0056896, None), (0.04145152, 0.00455168, None)),
    "me-south-1": ((0.0526, 0.0058, None), _NONE),
    "sa-east-1": ((0.0696, 0.0076, None), (0.0557, 0.00612, None)),
    "us-east-1": ((0.04048, 0.004445, 0.000111), (0.03238, 0.00356, 0.000111)),
    "us-east-2": ((0.04048, 0.004445, 0.000111), _NONE),
    "us-gov-east-1": ((0.0486, 0.0053, None), _NONE),
    "us-gov-west-1": ((0.0486, 0.0053, None), _NONE),
    "us-west-1": ((0.04656, 0.00511, None), (0.03725, 0.00409, None)),
    "us-west-2": ((0.04048, 0.004445, 0.000111), (0.03238, 0.00356, 0.000111)),
}


class PriceOverrides(Struct, frozen=True, kw_only=True):
    """Prices in USD per hour: on Fargate of a vCPU, a GiB of memory and a GiB of storage; on EC2
    of a task, or of instances by their types.
    """

    vcpu_hour_usd: float | None = None
    gb_hour_usd: float | None = None
    storage_gb_hour_usd: float | None = None
    hour_usd: float | None = None
    instances_usd: tuple[tuple[str, float], ...] = ()

    def names_of_set_fargate_prices(self) -> tuple[str, ...]:
        """Return the names of the Fargate price settings that are set."""
        named = (
            ("TASK_PROFILER_PRICE_VCPU_HOUR", self.vcpu_hour_usd),
            ("TASK_PROFILER_PRICE_GB_HOUR", self.gb_hour_usd),
            ("TASK_PROFILER_PRICE_STORAGE_GB_HOUR", self.storage_gb_hour_usd),
        )
        return tuple(known_members(dict(named)))


def parse_price(text: str) -> float:
    """Parse the USD of a setting. Raises ValueError if it is not a finite number of at least 0."""
    price = float(text)
    if not 0 <= price < math.inf:
        raise ValueError(text)
    return price


class HourPrices(Struct, frozen=True, kw_only=True):
    """Prices in USD per hour of a vCPU, a GiB of memory, and a GiB of storage above the included
    20 GiB.
    """

    vcpu_hour_usd: float
    gb_hour_usd: float
    storage_gb_hour_usd: float | None = None
    basis: str = ""

    def size_hour_price_usd(self, vcpu: float, memory_mb: float) -> float:
        """Return the price in USD per hour of a task of this size, without storage."""
        return vcpu * self.vcpu_hour_usd + memory_mb / MB_PER_GB * self.gb_hour_usd

    def hour_price_usd(
        self, vcpu: float, memory_mb: float, storage_mb: float | None
    ) -> float | None:
        """Return the price in USD per hour of a task; None if its storage is charged and has no
        known price.
        """
        size_usd = self.size_hour_price_usd(vcpu, memory_mb)
        charged_gb = charged_storage_gb(storage_mb)
        if not charged_gb:
            return size_usd
        if self.storage_gb_hour_usd is None:
            return None
        return size_usd + charged_gb * self.storage_gb_hour_usd


# A vCPU costs nine times as much as a GiB in every region, so the cheapest size is the same
# everywhere.
REFERENCE_PRICES: Final = HourPrices(vcpu_hour_usd=0.04048, gb_hour_usd=0.004445)


def fargate_prices(
    region: str | None,
    architecture: str | None,
    overrides: PriceOverrides,
    *,
    on_spot: bool = False,
) -> HourPrices | None:
    """Fargate's prices from the settings, else from the table, on Spot times a fraction; None if
    neither has them.
    """
    listed = _listed_prices(region, architecture)
    names = ", ".join(overrides.names_of_set_fargate_prices())
    fraction = SPOT_FRACTION if on_spot and not names else 1
    vcpu_hour_usd = first_known(overrides.vcpu_hour_usd, product(listed.vcpu_hour_usd, fraction))
    gb_hour_usd = first_known(overrides.gb_hour_usd, product(listed.gb_hour_usd, fraction))
    if vcpu_hour_usd is None or gb_hour_usd is None:
        return None
    uses_table = None in (overrides.vcpu_hour_usd, overrides.gb_hour_usd)
    basis = (
        region,
        FARGATE,
        architecture,
        PRICE_TABLE_DATE if uses_table else None,
        f"with {names}" if names else ON_DEMAND_PRICE,
    )
    return HourPrices(
        vcpu_hour_usd=vcpu_hour_usd,
        gb_hour_usd=gb_hour_usd,
        storage_gb_hour_usd=first_known(
            overrides.storage_gb_hour_usd, product(listed.storage_gb_hour_usd, fraction)
        ),
        basis=" ".join(filter(None, basis)),
    )


def _listed_prices(region: str | None, architecture: str | None) -> _ListedPrices:
    """The prices of the table, in which a Region or an architecture can be missing."""
    of_region = PRICE_TABLE.get(region or "")
    if of_region is None or architecture not in _ARCHITECTURES:
        return _ListedPrices()
    return _ListedPrices(*of_region[_ARCHITECTURES.index(architecture)])


def has_any_price(region: str, overrides: PriceOverrides) -> bool:
    """Whether the prices of any architecture in the Region are known."""
    return any(known_values(fargate_prices(region, one, overrides) for one in _ARCHITECTURES))


def missing_prices(record: Record, overrides: PriceOverrides) -> list[str]:
    """The settings of the prices on Fargate that a task's cost lacks: of its size, and of its
    storage where that is charged.
    """
    of_size = fargate_prices(record.region, record.cpu_architecture, overrides)
    names = [] if of_size else ["TASK_PROFILER_PRICE_VCPU_HOUR", "TASK_PROFILER_PRICE_GB_HOUR"]
    storage_usd = (of_size or overrides).storage_gb_hour_usd
    if charged_storage_gb(record.metrics.ephemeral_storage_size_mb) and storage_usd is None:
        names.append("TASK_PROFILER_PRICE_STORAGE_GB_HOUR")
    return names


def charged_storage_gb(storage_mb: float | None) -> int:
    """Return the charged GiB of storage, above the included 20 GiB. ECS reports 20 GiB as 20496
    MiB.
    """
    return max(round((storage_mb or 0) / MB_PER_GB) - 20, 0)


class _HourPrice(Struct, frozen=True, kw_only=True):
    """What an hour of a run costs, None if that is unknown, and where the price is from."""

    usd: float | None = None
    basis: str = ""


_UNPRICED: Final = _HourPrice()


def cost_of(record: Record, overrides: PriceOverrides) -> Cost:
    """Calculate the cost of the run: billed duration × price per hour; UNKNOWN_COST if one of
    them is unknown.
    """
    if record.launch_type == FARGATE:
        return _cost_at_price(_price_on_fargate(record, overrides), record)
    return _cost_at_price(_price_outside_fargate(record, overrides), record)


def _cost_at_price(price: _HourPrice, record: Record) -> Cost:
    metrics = record.metrics
    is_local = record.launch_type == LOCAL
    duration_ms = metrics.duration_ms if is_local else metrics.billed_duration_ms
    if duration_ms is None or price.usd is None:
        return UNKNOWN_COST
    usd = duration_ms / MS_PER_HOUR * price.usd
    return Cost(usd=round(usd, 8), price_basis=price.basis)


def _price_on_fargate(record: Record, overrides: PriceOverrides) -> _HourPrice:
    size = whole_size(record.task_size)
    of_region = fargate_prices(record.region, record.cpu_architecture, overrides)
    if size is None or of_region is None:
        return _UNPRICED
    storage_mb = record.metrics.ephemeral_storage_size_mb
    usd = of_region.hour_price_usd(size.vcpu, size.memory_mb, storage_mb)
    return _HourPrice(usd=usd, basis=of_region.basis)


def _price_outside_fargate(record: Record, overrides: PriceOverrides) -> _HourPrice:
    """The price of a run that has none in a list: of a task on an instance, which without a price
    of its own costs its share of the instance, and of a local run with a GPU.
    """
    is_on_instance = record.launch_type in _ON_INSTANCES
    if not is_on_instance and not (record.launch_type == LOCAL and record.gpus):
        return _UNPRICED
    if is_on_instance and overrides.hour_usd is None:
        return _price_of_share(record, overrides)
    basis = f"{record.launch_type} with TASK_PROFILER_PRICE_HOUR"
    return _HourPrice(usd=overrides.hour_usd, basis=basis)


def _price_of_share(record: Record, overrides: PriceOverrides) -> _HourPrice:
    """The price of a task's share of its instance."""
    instance_type = record.visible.instance_type
    instance_usd = dict(overrides.instances_usd).get(instance_type or "")
    share = instance_share(record)
    if instance_usd is None or share is None:
        return _UNPRICED
    of_it = format_percent(_PERCENT * share)
    basis = (
        f"{record.launch_type} {instance_type} with TASK_PROFILER_PRICE_INSTANCES, {of_it} of it"
    )
    return _HourPrice(usd=share * instance_usd, basis=basis)


def instance_share(record: Record) -> float | None:
    """The part of its instance that a task asks for: the largest one of vCPUs, memory and GPUs.
    None if one of them is unknown, and with Neuron devices, of which the instance may have more.
    """
    size = task_size_of(record)
    visible = record.visible
    if not (size.vcpu and size.memory_mb and visible.cpus and visible.memory_mb):
        return None
    gpu_share = _gpu_share_of_instance(record, visible.instance_type)
    if gpu_share is None or record.neuron is not NO_NEURON:
        return None
    return min(max(size.vcpu / visible.cpus, size.memory_mb / visible.memory_mb, gpu_share), 1)


def _gpu_share_of_instance(record: Record, instance_type: str | None) -> float | None:
    """The part of the instance's GPUs that are the task's own; None if that is not known, as of a
    GPU that others use, too, or of a part of one.
    """
    if not record.gpus:
        return 0
    of_instance = gpus_of_type(instance_type)
    is_own = not record.are_gpus_of_instance and not any(
        gpu.shared or gpu.uuid.startswith(_PART_OF_GPU) for gpu in record.gpus
    )
    if of_instance is None or not is_own:
        return None
    return len(record.gpus) / of_instance


def priced_record(record: Record, overrides: PriceOverrides) -> Record:
    """The record with what its run costs, for every output: its own cost, else its machine's by
    the settings, also of the idle time of its GPUs.
    """
    price = _price_outside_fargate(record, overrides)
    if price.usd is None or record.status == "running":
        return record
    idle = record.gpu_idle
    duration_ms = record.metrics.duration_ms
    if idle is not None and idle.usd is None and duration_ms is not None:
        usd = idle.percent / _PERCENT * duration_ms / MS_PER_HOUR * price.usd
        record = replace(record, gpu_idle=replace(idle, usd=round(usd, 8)))
    if record.cost == UNKNOWN_COST:
        record = replace(record, cost=_cost_at_price(price, record))
    return record
