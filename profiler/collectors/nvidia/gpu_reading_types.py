"""Readings of GPUs, as immutable values."""

from msgspec import Struct


class GpuFacts(Struct, frozen=True, kw_only=True):
    """The identity of a GPU."""

    uuid: str
    index: int
    name: str | None = None


class GpuSample(Struct, frozen=True, kw_only=True):
    """One GPU at one moment; a field that the GPU did not report is None.

    Utilization is the share of the driver's last averaging window (1/6 to 1 s) in which a kernel ran. Energy and ECC
    errors are the driver's counters, read rarely: the energy call takes 4 ms. The fields from ``sm_active_percent`` on
    are GPM's (Hopper and newer), over the last ``gpm_ns``.
    """

    facts: GpuFacts
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_size_bytes: int | None = None
    power_watts: float | None = None
    sm_clock_mhz: int | None = None
    temperature_celsius: int | None = None
    throttle_reasons: int | None = None
    energy_millijoules: int | None = None
    ecc_uncorrected: int | None = None
    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    pcie_tx_bytes: int | None = None
    pcie_rx_bytes: int | None = None
    nvlink_tx_bytes: int | None = None
    nvlink_rx_bytes: int | None = None
    gpm_ns: int | None = None


class Xid(Struct, frozen=True):
    """An error event of the driver (Xid). ``uuid`` is None if the GPU can no longer be identified."""

    uuid: str | None
    code: int


class DriverReading(Struct, frozen=True, kw_only=True):
    """All GPUs at one moment; and since the last reading, those that were lost, errors, and sentences about gaps."""

    samples: tuple[GpuSample, ...] = ()
    xids: tuple[Xid, ...] = ()
    lost: tuple[GpuFacts, ...] = ()
    notes: tuple[str, ...] = ()
