"""What is read of GPUs."""

from msgspec import Struct


class GpuFacts(Struct, frozen=True, kw_only=True):
    """Which GPU, or which MIG instance of one.

    An instance has the ``index`` of its GPU, ``parent_uuid``, ``mig_index`` among the instances there, and the
    number by which the driver's events call it.
    """

    uuid: str
    index: int
    name: str | None = None
    parent_uuid: str | None = None
    mig_index: int | None = None
    instance_id: int | None = None

    @property
    def physical_uuid(self) -> str:
        """The UUID of the whole GPU."""
        return self.parent_uuid or self.uuid

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
    """An error event of the driver; ``uuid`` is the whole GPU's, None if it can no longer tell its name.

    ``instance_id``: of its MIG instances it concerns this one, as far as the driver knows.
    """

    uuid: str | None
    code: int
    instance_id: int | None = None

    def concerns(self, facts: GpuFacts) -> bool:
        """Whether it is an error of this GPU, or may be one of this instance."""
        unknown = facts.instance_id is None or self.instance_id is None
        return self.uuid == facts.physical_uuid and (unknown or self.instance_id == facts.instance_id)


class GpuReading(Struct, frozen=True, kw_only=True):
    """All GPUs that could be read at one moment, and what happened since the last one."""

    samples: tuple[GpuSample, ...] = ()
    xids: tuple[Xid, ...] = ()
    lost: tuple[GpuFacts, ...] = ()
    notes: tuple[str, ...] = ()
