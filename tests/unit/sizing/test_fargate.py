import itertools

import pytest
from msgspec.structs import replace

from profiler.record.record_model import Record
from profiler.sizing.fargate import LEGAL_SIZES
from profiler.sizing.prices import (
    PRICE_TABLE,
    PRICE_TABLE_DATE,
    REFERENCE_PRICES,
    PriceOverrides,
    charged_storage_gb,
    cost_of,
    prices,
)
from tests.runs import report
from tests.values import present

NONE = PriceOverrides()
GB = 1024


def test_the_sizes_are_those_of_fargate() -> None:
    memories = {
        vcpu: [size.memory_mb for size in LEGAL_SIZES if size.vcpu == vcpu] for vcpu in (0.25, 0.5, 1, 2, 4, 8, 16, 32)
    }
    assert memories[0.25] == [512, 1024, 2048]
    assert memories[0.5] == [1 * GB, 2 * GB, 3 * GB, 4 * GB]
    assert (memories[1][0], memories[1][-1], len(memories[1])) == (2 * GB, 8 * GB, 7)
    assert (memories[2][0], memories[2][-1], len(memories[2])) == (4 * GB, 16 * GB, 13)
    assert (memories[4][0], memories[4][-1], len(memories[4])) == (8 * GB, 30 * GB, 23)
    assert memories[8] == [gb * GB for gb in range(16, 61, 4)]
    assert memories[16] == [gb * GB for gb in range(32, 121, 8)]
    assert memories[32] == [60 * GB, 120 * GB, 244 * GB]
    assert len(LEGAL_SIZES) == sum(map(len, memories.values()))


@pytest.mark.parametrize(
    ("storage_mb", "charged_gb"), [(None, 0), (20480, 0), (20496, 0), (21 * GB, 1), (30 * GB + 16, 10), (200 * GB, 180)]
)
def test_storage_above_20_gib_is_charged_and_20496_mib_are_20_gib(storage_mb: float | None, charged_gb: int) -> None:
    assert charged_storage_gb(storage_mb) == charged_gb


def cost(**record: object) -> tuple[float | None, str | None] | None:
    return cost_with(NONE, **record)


def cost_with(own: PriceOverrides, **record: object) -> tuple[float | None, str | None] | None:
    found = cost_of(replace(report().record, **record), own)
    return None if found is None else (found.usd, found.price_basis)


def with_storage(storage_mb: float) -> Record:
    record = report().record
    return replace(record, metrics=replace(record.metrics, ephemeral_storage_size_mb=storage_mb))


def test_the_cost_is_billed_duration_times_size() -> None:
    """Ten minutes of 1 vCPU and 2 GiB: (0.04048 + 2 x 0.004445) / 6 = 0.00822833."""
    assert cost() == (0.00822833, f"us-east-1 FARGATE X86_64 {PRICE_TABLE_DATE} on-demand price")


def test_storage_without_a_price_leaves_the_cost_unknown() -> None:
    record = replace(with_storage(30 * GB), region="eu-central-1")
    assert cost_of(record, NONE) is None
    found = present(cost_of(record, PriceOverrides(storage_gb_hour_usd=0.0006)))
    assert found.usd == pytest.approx((0.04656 + 2 * 0.00511 + 10 * 0.0006) / 6, abs=1e-8)


@pytest.mark.parametrize(
    "record",
    [
        {"launch_type": "EC2"},
        {"launch_type": "EXTERNAL"},
        {"launch_type": "LOCAL"},
        {"launch_type": None},
        {"region": "us-gov-west-1"},
        {"region": None},
        {"cpu_architecture": "ARM64", "region": "eu-central-1"},
        {"cpu_architecture": None},
        {"task_size": None},
    ],
    ids=str,
)
def test_without_a_price_or_a_size_the_cost_is_absent(record: dict[str, object]) -> None:
    assert cost(**record) is None


def test_the_settings_replace_the_table() -> None:
    own = PriceOverrides(vcpu_hour_usd=0.06, gb_hour_usd=0.006)
    basis = "us-east-1 FARGATE X86_64 with TASK_PROFILER_PRICE_VCPU_HOUR, TASK_PROFILER_PRICE_GB_HOUR"
    assert cost_with(own) == (0.012, basis)
    assert cost_with(own, region="us-gov-west-1") == (0.012, basis.replace("us-east-1", "us-gov-west-1"))


def test_on_ec2_only_the_settings_hourly_price_counts() -> None:
    fargates = PriceOverrides(vcpu_hour_usd=1, gb_hour_usd=1)
    assert cost_with(fargates, launch_type="EC2") is None
    own = PriceOverrides(hour_usd=0.6)
    for launch_type in ("EC2", "MANAGED_INSTANCES"):
        basis = f"{launch_type} with TASK_PROFILER_PRICE_HOUR"
        assert cost_with(own, launch_type=launch_type, task_size=None) == (0.1, basis)
    assert cost_with(own) == cost()


@pytest.mark.parametrize("where", PRICE_TABLE, ids=" ".join)
def test_prices_are_such_that_the_cheapest_size_is_the_same_everywhere(where: tuple[str, str]) -> None:
    listed = present(prices(*where, NONE))
    assert listed.basis == f"{where[0]} FARGATE {where[1]} {PRICE_TABLE_DATE} on-demand price"
    by_price = sorted(LEGAL_SIZES, key=lambda size: listed.size_hour_usd(size.vcpu, size.memory_mb))
    # A vCPU costs as much as 9.1 GiB: only sizes of nearly the same price may be in another order.
    compared = [REFERENCE_PRICES.size_hour_usd(size.vcpu, size.memory_mb) for size in by_price]
    assert all(earlier <= later * 1.02 for earlier, later in itertools.pairwise(compared))
