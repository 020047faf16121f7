"""GPUs and Neuron cores."""

from typing import Final

from grafana.model import Panel, Query, Row
from grafana.promql import TASK_NAME, metric, rate, share

_GPU_NAME = "{{task_family}} {{uuid}}"
GPU: Final = Row(
    title="GPUs",
    panels=(
        Panel(
            title="GPU utilization",
            description="Share of the time in which a kernel ran: a GPU can be at 100 % with most of it idle.",
            unit="percentunit",
            queries=(Query(expr=metric("gpu_utilization_ratio"), legend=_GPU_NAME),),
            largest=1,
        ),
        Panel(
            title="GPU memory",
            description="A share of what the GPU has.",
            unit="percentunit",
            queries=(Query(expr=share("gpu_memory_used_bytes", "gpu_memory_size_bytes"), legend=_GPU_NAME),),
            largest=1,
        ),
        Panel(
            title="GPU power",
            description="Drawn at the moment of the reading.",
            unit="watt",
            queries=(Query(expr=metric("gpu_power_watts"), legend=_GPU_NAME),),
        ),
        Panel(
            title="GPU energy",
            description="Mean power by the energy counter, which misses no peak.",
            unit="watt",
            queries=(Query(expr=rate("gpu_energy_joules_total"), legend=_GPU_NAME),),
        ),
        Panel(
            title="GPU temperature",
            description="Of the chip.",
            unit="celsius",
            queries=(Query(expr=metric("gpu_temperature_celsius"), legend=_GPU_NAME),),
        ),
        Panel(
            title="GPU clock",
            description="Of the multiprocessors.",
            unit="hertz",
            queries=(Query(expr=metric("gpu_sm_clock_hertz"), legend=_GPU_NAME),),
        ),
        Panel(
            title="GPU throttled",
            description="Share of the time in which the driver gave this reason for a lower clock.",
            unit="percentunit",
            # A scrape and a reading are not at the same moment: a rate can come to a little more than 1.
            queries=(
                Query(
                    expr=f"clamp_max({rate('gpu_throttled_seconds_total')}, 1) > 0",
                    legend=f"{_GPU_NAME} {{{{reason}}}}",
                ),
            ),
            largest=1,
            width=24,
        ),
    ),
)

_CORE_NAME = "{{task_family}} core {{neuron_core}}"
NEURON: Final = Row(
    title="Neuron",
    panels=(
        Panel(
            title="NeuronCore utilization",
            description="While a process uses the devices; a core that is never used by it shows 0.",
            unit="percentunit",
            queries=(Query(expr=metric("neuron_core_utilization_ratio"), legend=_CORE_NAME),),
            largest=1,
        ),
        Panel(
            title="NeuronCore memory",
            description="Device memory in use by each core.",
            unit="bytes",
            queries=(Query(expr=metric("neuron_core_memory_used_bytes"), legend=_CORE_NAME),),
        ),
        Panel(
            title="Device memory by category",
            description="On all devices of the task.",
            unit="bytes",
            stacked=True,
            queries=(Query(expr=metric("neuron_memory_used_bytes"), legend="{{task_family}} {{category}}"),),
        ),
        Panel(
            title="Device memory of what there is",
            description="A share of all devices' memory.",
            unit="percentunit",
            queries=(
                Query(
                    expr=share("neuron_device_memory_used_bytes", "neuron_device_memory_size_bytes"),
                    legend=TASK_NAME,
                ),
            ),
            largest=1,
        ),
        Panel(
            title="Executions",
            description="A second, by outcome.",
            unit="ops",
            queries=(Query(expr=rate("neuron_executions_total"), legend="{{task_family}} {{outcome}}"),),
        ),
        Panel(
            title="Execution latency",
            description="Percentiles of the last period, the slowest process's.",
            unit="s",
            queries=(Query(expr=metric("neuron_execution_latency_seconds"), legend="{{task_family}} {{percentile}}"),),
        ),
        Panel(
            title="Memory errors",
            description="Not corrected, in the time shown.",
            kind="stat",
            unit="none",
            queries=(
                Query(expr=f"increase({metric('neuron_ecc_uncorrected_errors_total')}[$__range])", legend=TASK_NAME),
            ),
            width=24,
            height=4,
        ),
    ),
)
