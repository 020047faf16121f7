"""What is read of GPUs."""

from msgspec import Struct


class GpuFacts(Struct, frozen=True, kw_only=True):
    """Which GPU, or which MIG instance of one.

    An instance has the ``index`` of its GPU, ``parent_uuid``, and ``place`` among the instances there.
    """

    uuid: str
    index: int
    name: str | None = None
    parent_uuid: str | None = None
    place: int | None = None

    @property
    def is_instance(self) -> bool:
        """Whether it is a part of a GPU."""
        return self.parent_uuid is not None


class GpuSample(Struct, frozen=True, kw_only=True):
    """One GPU at one moment; None is what it did not tell.

    ``utilization_percent`` is the share of the driver's last window (1/6 to 1 s) in which a kernel
    ran. ``throttle_reasons`` are NVML's bits. Energy and ECC errors are counters of the driver and
    are read seldom, because the energy call takes 4 ms.
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


class Xid(Struct, frozen=True):
    """An error event of the driver; ``uuid`` is None if its GPU can no longer tell its name."""

    uuid: str | None
    code: int


class GpuReading(Struct, frozen=True, kw_only=True):
    """All GPUs that could be read at one moment, and what happened since the last one."""

    samples: tuple[GpuSample, ...] = ()
    xids: tuple[Xid, ...] = ()
    lost: tuple[GpuFacts, ...] = ()
    notes: tuple[str, ...] = ()
