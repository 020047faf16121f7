"""Xid events: errors that the driver reports of its own accord (79 is "fallen off the bus").

They are registered for whole GPUs. Of one that is cut into MIG instances the event may say which
instance it concerns.
"""

from collections.abc import Iterable
from typing import Any

from profiler.sources.nvml.device import Device, Failure, call_nvml
from profiler.sources.nvml.library import Nvml
from profiler.sources.nvml.readings import Xid

# The shortest wait there is; with nothing to tell, the driver answers "timeout" after it.
_WAIT_MS = 1
# More in one second would be one fault repeated.
_MAX_EVENTS_PER_READ = 64
_NO_INSTANCE = 0xFFFFFFFF


class XidEvents:
    """Events since the registration, which has to be made anew after each start of NVML."""

    def __init__(self, nvml: Nvml, devices: Iterable[Device]) -> None:
        self._nvml = nvml
        events = call_nvml(nvml, "nvmlEventSetCreate")
        self._events = None if isinstance(events, Failure) else events
        self._is_registered: dict[str, bool] = {}
        for device in devices:
            if device.facts.physical_uuid not in self._is_registered:
                self.register(device)
        if not any(self._is_registered.values()):
            self.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """Of which GPUs there are no events: what is told of none did not happen, or nobody would know."""
        silent = ", ".join(
            physical_uuid for physical_uuid, is_registered in self._is_registered.items() if not is_registered
        )
        return (f"The driver does not report the errors (Xid) of {silent}: xids stay empty there.",) if silent else ()

    def register(self, device: Device) -> None:
        """Hear of this device, too; of an instance by its GPU."""
        answer: Any | Failure | None = None
        if self._events is not None:
            kind = self._nvml.nvmlEventTypeXidCriticalError
            answer = call_nvml(self._nvml, "nvmlDeviceRegisterEvents", device.physical_handle, kind, self._events)
        self._is_registered[device.facts.physical_uuid] = self._events is not None and not isinstance(answer, Failure)

    def drain(self) -> tuple[Xid, ...]:
        """What happened since the last call."""
        found: list[Xid] = []
        for _ in range(0 if self._events is None else _MAX_EVENTS_PER_READ):
            event = call_nvml(self._nvml, "nvmlEventSetWait_v2", self._events, _WAIT_MS)
            if isinstance(event, Failure):
                break
            if event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
                found.append(self._xid(event))
        return tuple(found)

    def _xid(self, event: Any) -> Xid:  # noqa: ANN401  the binding's structure
        uuid = call_nvml(self._nvml, "nvmlDeviceGetUUID", event.device)
        instance = getattr(event, "gpuInstanceId", _NO_INSTANCE)  # no binding before MIG has it
        return Xid(
            None if isinstance(uuid, Failure) else uuid,
            int(event.eventData),
            None if instance == _NO_INSTANCE else int(instance),
        )

    def close(self) -> None:
        """Give the event set back."""
        if self._events is not None:
            call_nvml(self._nvml, "nvmlEventSetFree", self._events)
            self._events = None
