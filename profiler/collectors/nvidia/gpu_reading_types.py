"""Readings of GPUs, as immutable values."""

from msgspec import Struct


class GpuFacts(Struct, frozen=True, kw_only=True):
    """The identity of a GPU or of a MIG instance.

    An instance has the ``index`` of its GPU, the GPU's UUID as ``parent_uuid``, its position among the GPU's instances
    as ``mig_index``, and the number that the driver's events use for it as ``instance_id``.
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
        return self.parent_uuid is not None


class GpuSample(Struct, frozen=True, kw_only=True):
    """One GPU at one moment; a field that the GPU did not report is None.

    ``utilization_percent`` is the share of the driver's last averaging window (1/6 to 1 s) in which a kernel ran.
    ``throttle_reasons`` are NVML's bits. Energy and ECC errors are counters of the driver. They are read rarely,
    because the energy call takes 4 ms.
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
    """An error event of the driver (Xid).

    ``uuid`` is that of the whole GPU, None if the GPU can no longer be identified. ``instance_id`` is the MIG instance
    that the error concerns, None if the driver does not know it.
    """

    uuid: str | None
    code: int
    instance_id: int | None = None

    def concerns(self, facts: GpuFacts) -> bool:
        """Whether the error is one of this GPU or may be one of this instance."""
        unknown = facts.instance_id is None or self.instance_id is None
        return self.uuid == facts.physical_uuid and (unknown or self.instance_id == facts.instance_id)


class DriverReading(Struct, frozen=True, kw_only=True):
    """All GPUs that were read at one moment, and what happened since the reading before.

    ``lost`` are the GPUs that disappeared. ``notes`` are sentences about gaps in the numbers.
    """

    samples: tuple[GpuSample, ...] = ()
    xids: tuple[Xid, ...] = ()
    lost: tuple[GpuFacts, ...] = ()
    notes: tuple[str, ...] = ()
