"""Opens the GPUs that NVML shows, and the parts of those that MIG divides."""

from collections.abc import Iterator
from itertools import chain, count
from typing import Any

from profiler.collectors.nvidia.nvml_calls import Failure, Nvml, call_nvml
from profiler.collectors.nvidia.read_one_gpu import Device
from profiler.collectors.nvidia.visible_gpus import GpuFacts, MigPart
from profiler.core.clock import Clock
from profiler.core.optional_math import product

# PCIe by generation: bytes a second of a lane, one way, after its line code.
_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


def open_devices(nvml: Nvml, index: int, more: int, clock: Clock) -> list[Device] | Failure:
    """The visible GPU with this index, or its parts where MIG divides it and they are visible, of
    which the second has the number ``more``; the failure if it cannot be opened.
    """
    handle = call_nvml(nvml, "nvmlDeviceGetHandleByIndex", index)
    if isinstance(handle, Failure):
        uuid = handle
    else:
        uuid = call_nvml(nvml, "nvmlDeviceGetUUID", handle)
    if isinstance(uuid, Failure):
        return uuid
    is_divided = _is_divided(nvml, handle)
    if is_divided:
        whole = GpuFacts(uuid=uuid, index=index)
        parts = [
            Device(nvml, *part, clock) for part in _visible_mig_parts(nvml, handle, whole, more)
        ]
        if parts:
            return parts
    facts = GpuFacts(
        uuid=uuid,
        index=index,
        name=_name(nvml, handle),
        link_bytes_per_second=_link_speed(nvml, handle),
        is_divided=is_divided,
    )
    return [Device(nvml, handle, facts, clock)]


def _is_divided(nvml: Nvml, handle: object) -> bool:
    mode = call_nvml(nvml, "nvmlDeviceGetMigMode", handle)
    if isinstance(mode, Failure):  # GPUs before Ampere
        return False
    current, _ = mode
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


# A handle is the driver's.
def _visible_mig_parts(
    nvml: Nvml, handle: object, whole: GpuFacts, more: int
) -> Iterator[tuple[Any, GpuFacts]]:
    """The parts that this container sees, which may be any of the possible ones."""
    indices = chain((whole.index,), count(more))
    most = call_nvml(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle)
    for place in range(0 if isinstance(most, Failure) else most):
        part = call_nvml(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if isinstance(part, Failure):
            continue
        uuid = call_nvml(nvml, "nvmlDeviceGetUUID", part)
        if isinstance(uuid, Failure):
            continue
        instance = call_nvml(nvml, "nvmlDeviceGetGpuInstanceId", part)
        mig = MigPart(
            gpu_uuid=whole.uuid,
            gpu_index=whole.index,
            place=place,
            instance=None if isinstance(instance, Failure) else instance,
        )
        yield part, GpuFacts(uuid=uuid, index=next(indices), name=_name(nvml, part), part=mig)


def _name(nvml: Nvml, handle: object) -> str | None:
    name = call_nvml(nvml, "nvmlDeviceGetName", handle)
    return None if isinstance(name, Failure) else name


def _link_speed(nvml: Nvml, handle: object) -> float | None:
    generation = call_nvml(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle)
    width = call_nvml(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle)
    if isinstance(generation, Failure) or isinstance(width, Failure):
        return None
    lane_bytes = _LANE_BYTES.get(generation)
    return product(lane_bytes, width)
