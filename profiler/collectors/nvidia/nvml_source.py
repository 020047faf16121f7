"""Reads all visible GPUs through NVML, in one thread, and continues after driver errors,
restarts and lost GPUs.
"""

from collections.abc import Callable, Iterator, Mapping

from profiler.collectors.nvidia.nvml_calls import (
    NO_DRIVER,
    ErrorAction,
    Failure,
    Nvml,
    call_nvml,
)
from profiler.collectors.nvidia.open_gpus import open_devices
from profiler.collectors.nvidia.read_one_gpu import Device, XidEvents
from profiler.collectors.nvidia.reading_pace import RetryPauses
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuFacts, GpuSample
from profiler.core.clock import Clock
from profiler.core.text import listed
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable

_MAX_SILENT_READS = 3
# A GPU that was reset, or a driver that was loaded again, answers within seconds.
_FIRST_LOOK_NS = NS_PER_SECOND


class NvmlSource:
    """Reads every visible GPU."""

    name = "nvml"

    def __init__(self, load: Callable[[], Nvml | Unavailable], clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._nvml: Nvml | None = None
        # Of the open driver, whose shutdown ends the handles of its devices.
        self._devices: list[Device] = []
        self._events: XidEvents | None = None
        self._unreadable: Mapping[int, str] = {}  # the reasons, by the numbers of GPUs
        # By UUID: an index may mean another GPU after a restart.
        self._known_gpus: dict[str, GpuFacts] = {}
        self._lost: set[str] = set()
        # When NVML is initialized, lost GPUs are looked for, and broken events are made again.
        self._openings = RetryPauses()
        self._looks = RetryPauses(first_ns=_FIRST_LOOK_NS)
        self._event_openings = RetryPauses()
        self._reason = Unavailable("NVML was not initialized yet")
        self.permanently_unavailable = False
        self.is_driver_missing = False

    def read_all_gpus(self, *, counters: bool) -> DriverReading | Unavailable:
        """Read all GPUs now; ``counters`` includes energy and ECC errors, which take 4 ms per
        GPU.
        """
        events = self._events or self._try_open()
        if isinstance(events, Unavailable):
            return events
        now_ns = self._clock.monotonic_ns()
        if self._looks.is_due(now_ns):
            self._looks.wait_longer(now_ns)
            self._find_lost(events)
        samples = self._read_devices(now_ns, counters=counters)
        if isinstance(samples, Unavailable):
            return samples
        events = self._working_events(events, now_ns)
        lost = self._newly_lost_gpus()
        notes = dict.fromkeys(_unreadable_gpu_sentences(self._unreadable))
        for device in self._devices:
            notes.update(dict.fromkeys(device.notes))
        notes.update(dict.fromkeys(events.notes))
        return DriverReading(
            samples=samples, xids=events.take_events(), lost=lost, notes=tuple(notes)
        )

    def _working_events(self, events: XidEvents, now_ns: int) -> XidEvents:
        """The events, made again if they are broken: twice a minute at most."""
        if events.is_broken and self._devices and self._event_openings.is_due(now_ns):
            events.close()
            events = self._events = XidEvents(self._nvml, self._devices)
            self._event_openings.wait_longest(now_ns)
        return events

    def _read_devices(self, now_ns: int, *, counters: bool) -> tuple[GpuSample, ...] | Unavailable:
        """Read each device, without those that are lost; close NVML if one asks for that."""
        samples: list[GpuSample] = []
        for device in tuple(self._devices):
            answer = device.read_sample(counters=counters)
            if not isinstance(answer, Failure):
                samples.append(answer)
            elif answer.action is ErrorAction.DEVICE_LOST:
                device.gpm.close()
                self._devices.remove(device)
                self._looks.wait_after_trouble(now_ns, is_longer_each_time=False)
            # NVML is initialized again for a silent device: twice a minute at most.
            elif answer.action is ErrorAction.REINITIALIZE or (
                device.silent_reads >= _MAX_SILENT_READS and self._openings.is_due(now_ns)
            ):
                return self._close_and_try_later(answer.reason, now_ns)
        return tuple(samples)

    def _close_and_try_later(self, reason: str, now_ns: int) -> Unavailable:
        """Close NVML, which is initialized again at once, unless that was so a short time ago."""
        self.close()
        self._reason = Unavailable(reason)
        self._openings.wait_after_trouble(now_ns, is_longer_each_time=True)
        return self._reason

    def _newly_lost_gpus(self) -> tuple[GpuFacts, ...]:
        """The GPUs that are lost since the last reading, or not visible since NVML was initialized
        again.
        """
        before = self._lost
        self._lost = self._lost_uuids()
        newly_lost = self._lost - before
        return tuple(facts for uuid, facts in self._known_gpus.items() if uuid in newly_lost)

    def read_quickly(self, *, with_memory: bool) -> tuple[GpuSample, ...]:
        """The processes of each open GPU, or else its memory, and nothing else."""
        if self._events is None:
            return ()
        return tuple(device.read_quickly(with_memory=with_memory) for device in self._devices)

    def _lost_uuids(self) -> set[str]:
        return self._known_gpus.keys() - {device.facts.uuid for device in self._devices}

    def _find_lost(self, events: XidEvents) -> None:
        """Read the GPUs again that are lost, or could not be opened when NVML was initialized
        again.
        """
        for uuid in self._lost_uuids():
            handle = call_nvml(self._nvml, "nvmlDeviceGetHandleByUUID", uuid)
            if isinstance(handle, Failure):
                continue
            device = Device(self._nvml, handle, self._known_gpus[uuid], self._clock)
            if device.answers():
                events.register(device)
                self._devices = sorted((*self._devices, device), key=lambda each: each.facts.index)

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
            for device in self._devices:
                device.gpm.close()
            call_nvml(self._nvml, "nvmlShutdown")
            self._events = None

    def _try_open(self) -> XidEvents | Unavailable:
        now_ns = self._clock.monotonic_ns()
        if self.permanently_unavailable or not self._openings.is_due(now_ns):
            return self._reason
        events = self._open()
        if not isinstance(events, Failure):
            self._events = events
            self._openings.wait_longest(now_ns)
            return events
        self._openings.wait_longer(now_ns)
        self._reason = Unavailable(events.reason)
        self.is_driver_missing = events.action is ErrorAction.NO_DRIVER
        return self._reason

    def _open(self) -> XidEvents | Failure:
        nvml = self._nvml or self._load()
        if isinstance(nvml, Unavailable):
            self.permanently_unavailable = True
            return Failure(ErrorAction.UNSUPPORTED, nvml.reason)
        self._nvml = nvml
        failure = call_nvml(nvml, "nvmlInit")
        if isinstance(failure, Failure):
            return _named_driver(failure)
        count = call_nvml(nvml, "nvmlDeviceGetCount")
        if isinstance(count, Failure):
            call_nvml(nvml, "nvmlShutdown")
            return count
        devices: list[Device] = []
        unreadable: dict[int, str] = {}
        for index in range(count):
            # Further parts of a GPU have the numbers after those of the GPUs.
            more = count + sum(device.facts.index >= count for device in devices)
            opened = open_devices(nvml, index, more, self._clock)
            if isinstance(opened, Failure):
                unreadable[index] = opened.reason
                continue
            devices.extend(opened)
        if not devices:
            call_nvml(nvml, "nvmlShutdown")
            if unreadable:
                return Failure(ErrorAction.RETRY, next(iter(unreadable.values())))
            return Failure(ErrorAction.NO_DRIVER, "no GPU is visible here")
        self._known_gpus.update((device.facts.uuid, device.facts) for device in devices)
        self._devices = devices
        self._unreadable = unreadable
        return XidEvents(nvml, devices)


def _unreadable_gpu_sentences(reasons: Mapping[int, str]) -> Iterator[str]:
    """A sentence for each reason. A container that may use one of eight GPUs sees all."""
    for reason in dict.fromkeys(reasons.values()):
        numbers = [str(index) for index, other in reasons.items() if other == reason]
        gpus = "GPU" if len(numbers) == 1 else "GPUs"
        are = "is" if len(numbers) == 1 else "are"
        yield f"{gpus} {listed(numbers)} {are} visible and cannot be read: {reason}."


def _named_driver(failure: Failure) -> Failure:
    """Why NVML did not start, in words for a machine without a driver."""
    if failure.action is not ErrorAction.NO_DRIVER:
        return failure
    return Failure(failure.action, f"{NO_DRIVER}: {failure.reason}")
