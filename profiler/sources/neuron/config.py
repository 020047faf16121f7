"""What neuron-monitor is asked for: the metric groups that are used, and no others.

Left out are the node's CPU and memory, which are others' and 128 rows long, and the runtimes'
CPU, which fails in every report where neuron-monitor cannot see their processes. A group whose
name it does not know makes neuron-monitor exit, and the names have changed twice.
"""

import msgspec

_HARDWARE_PERIOD_SECONDS = 5
_CORES = {"type": "neuroncore_counters"}
_MEMORY = {"type": "memory_used"}
_EXECUTIONS = {"type": "execution_stats"}
_INFERENCES = {"type": "inference_stats"}
_EVERY_PROCESS = {"tag_filter": ".*"}
_RUNTIME_DAEMON = {"address": "unix:/run/neuron.sock"}


def neuron_period_seconds(interval_seconds: float) -> int:
    """The period for a sampling interval.

    neuron-monitor takes whole seconds only: it reads "1.0s" and "0.5s" as its default of 5 s, and
    prints nothing at all for "500ms".
    """
    return max(1, int(interval_seconds))


def configurations(period_seconds: int) -> tuple[bytes, ...]:
    """The same request as JSON for neuron-monitor of three ages, to be tried in this order.

    Since October 2022 the executions are ``execution_stats``; for a year before they were
    ``inference_stats``; before that (runtime 1.x) a daemon was watched by its address, and the
    hardware's counters were asked of it.
    """
    period = f"{period_seconds}s"
    hardware = {"period": f"{max(period_seconds, _HARDWARE_PERIOD_SECONDS)}s"}
    node = [{"type": "neuron_hw_counters", **hardware}]
    daemon = [_CORES, _MEMORY, _INFERENCES, {"type": "hw_counters", **hardware}]
    runtimes: tuple[tuple[dict[str, object], list[dict[str, str]]], ...] = (
        ({**_EVERY_PROCESS, "metrics": [_CORES, _MEMORY, _EXECUTIONS]}, node),
        ({**_EVERY_PROCESS, "metrics": [_CORES, _MEMORY, _INFERENCES]}, node),
        ({**_RUNTIME_DAEMON, "metrics": daemon}, []),
    )
    return tuple(
        msgspec.json.encode({"period": period, "neuron_runtimes": [runtime], "system_metrics": system})
        for runtime, system in runtimes
    )
