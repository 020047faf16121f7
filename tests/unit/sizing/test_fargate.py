from typing import Any

import pytest
from msgspec.structs import replace

from profiler.sizing.prices import PRICE_TABLE_DATE, PriceOverrides, charged_storage_gb, cost_of
from tests.runs import report
from tests.values import present

NONE = PriceOverrides()
GB = 1024


def test_storage_above_20_gib_is_charged_and_20496_mib_are_20_gib() -> None:
    sizes_mb = (None, 20480, 20496, 21 * GB, 30 * GB + 16, 200 * GB)
    assert [charged_storage_gb(storage_mb) for storage_mb in sizes_mb] == [0, 0, 0, 1, 10, 180]


def cost(own: PriceOverrides = NONE, **record: Any) -> tuple[float | None, str | None] | None:
    found = cost_of(replace(report().record, **record), own)
    return None if found is None else (found.usd, found.price_basis)


def test_the_cost_is_billed_duration_times_size() -> None:
    """Ten minutes of 1 vCPU and 2 GiB: (0.04048 + 2 x 0.004445) / 6 = 0.00822833."""
    assert cost() == (0.00822833, f"us-east-1 FARGATE X86_64 {PRICE_TABLE_DATE} on-demand price")


def test_storage_without_a_price_leaves_the_cost_unknown() -> None:
    record = report(metrics={"ephemeral_storage_size_mb": 30 * GB}, region="eu-central-1").record
    assert cost_of(record, NONE) is None
    found = present(cost_of(record, PriceOverrides(storage_gb_hour_usd=0.0006)))
    assert found.usd == pytest.approx((0.04656 + 2 * 0.00511 + 10 * 0.0006) / 6, abs=1e-8)


def test_without_a_price_or_a_size_the_cost_is_absent() -> None:
    assert cost(launch_type="EC2") is cost(cpu_architecture="ARM64", region="eu-central-1") is None
    assert cost(region="us-gov-west-1") is cost(region=None) is None
    assert cost(cpu_architecture=None) is cost(task_size=None) is None


def test_the_settings_replace_the_table() -> None:
    own = PriceOverrides(vcpu_hour_usd=0.06, gb_hour_usd=0.006)
    basis = "us-east-1 FARGATE X86_64 with TASK_PROFILER_PRICE_VCPU_HOUR, TASK_PROFILER_PRICE_GB_HOUR"
    assert cost(own) == (0.012, basis)
    assert cost(own, region="us-gov-west-1") == (0.012, basis.replace("us-east-1", "us-gov-west-1"))


def test_on_ec2_only_the_settings_hourly_price_counts() -> None:
    fargates = PriceOverrides(vcpu_hour_usd=1, gb_hour_usd=1)
    assert cost(fargates, launch_type="EC2") is None
    own = PriceOverrides(hour_usd=0.6)
    for launch_type in ("EC2", "MANAGED_INSTANCES"):
        basis = f"{launch_type} with TASK_PROFILER_PRICE_HOUR"
        assert cost(own, launch_type=launch_type, task_size=None) == (0.1, basis)
    assert cost(own) == cost()
