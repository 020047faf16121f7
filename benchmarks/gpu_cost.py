"""The CPU time of reading the GPUs in real time. It needs nothing but the profiler."""

import time

from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.nvml_calls import load_binding
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import GpuScope
from profiler.core.clock import SystemClock
from profiler.core.log import Log
from tools.waiting import wait_until

# In its first minute, the collector reads the processes more often.
_WARM_UP_SECONDS = 60
_SECOND_NS = 1_000_000_000


def cpu_share(seconds: float) -> float:
    """The CPU time of the collector's thread, as a share of a core, after its first minute."""
    clock = SystemClock()
    source = NvmlSource(load_binding, clock)
    watch = GpuCollector(source, GpuScope(()), clock, Log(), _SECOND_NS, is_required=True)
    watch.start()
    wait_until(lambda: watch.has_data, "the first reading")
    time.sleep(_WARM_UP_SECONDS)
    began, cpu_began = time.monotonic(), time.process_time()
    time.sleep(seconds)
    share = (time.process_time() - cpu_began) / (time.monotonic() - began)
    watch.stop(10)
    return share
