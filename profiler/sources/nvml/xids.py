"""Xid events: errors that the driver reports of its own accord (79 is "fallen off the bus")."""

from collections.abc import Iterable
from typing import Any

from profiler.sources.nvml.device import Device, Failure, ask
from profiler.sources.nvml.library import Nvml
from profiler.sources.nvml.readings import Xid

# The shortest wait there is; with nothing to tell, the driver answers "timeout" after it.
_WAIT_MS = 1
# More in one second would be one fault repeated.
_MOST_AT_ONCE = 64


class XidEvents:
    """Events since the registration, which has to be made anew after each start of NVML."""

    def __init__(self, nvml: Nvml, events: Any) -> None:  # noqa: ANN401  a pointer of the driver's
        self._nvml = nvml
        self._events = events

    @classmethod
    def registered(cls, nvml: Nvml, devices: Iterable[Device]) -> "XidEvents | None":
        """Events of all devices that have any; None if the driver has none to offer."""
        events = ask(nvml, "nvmlEventSetCreate")
        if isinstance(events, Failure):
            return None
        registered = cls(nvml, events)
        watched = [device for device in devices if registered.watch(device)]
        if not watched:
            registered.close()
            return None
        return registered

    def watch(self, device: Device) -> bool:
        """Hear of this device, too; False if it has no events."""
        kind = self._nvml.nvmlEventTypeXidCriticalError
        answer = ask(self._nvml, "nvmlDeviceRegisterEvents", device.handle, kind, self._events)
        return not isinstance(answer, Failure)

    def drain(self) -> tuple[Xid, ...]:
        """What happened since the last call."""
        found = []
        for _ in range(_MOST_AT_ONCE):
            event = ask(self._nvml, "nvmlEventSetWait_v2", self._events, _WAIT_MS)
            if isinstance(event, Failure):
                break
            if event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
                found.append(self._xid(event))
        return tuple(found)

    def _xid(self, event: Any) -> Xid:  # noqa: ANN401  the binding's structure
        uuid = ask(self._nvml, "nvmlDeviceGetUUID", event.device)
        return Xid(None if isinstance(uuid, Failure) else uuid, int(event.eventData))

    def close(self) -> None:
        """Give the event set back."""
        ask(self._nvml, "nvmlEventSetFree", self._events)
