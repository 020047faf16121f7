"""The panels of GPUs and NeuronCores."""

from typing import Final

from grafana.grafana_model import Panel, Query, Row
from grafana.promql import TASK_NAME, metric, rate, share

_GPU_NAME = "{{task_family}} {{uuid}}"
GPU: Final = Row(
    title="GPUs",
    is_collapsed=True,
    panels=(
        Panel(
            title="GPU utilization",
            description="Share of time in which a kernel ran. At 100 %, most of a GPU's units can still be idle.",
            unit="percentunit",
            queries=(Query(expr=metric("gpu_utilization_ratio"), legend=_GPU_NAME),),
            axis_max=1,
        ),
        Panel(
            title="GPU memory",
            description="Memory in use as a share of the GPU's memory.",
            unit="percentunit",
            queries=(Query(expr=share("gpu_memory_used_bytes", "gpu_memory_size_bytes"), legend=_GPU_NAME),),
            axis_max=1,
        ),
        Panel(
            title="GPU power",
            description="Power draw at the time of the reading.",
            unit="watt",
            queries=(Query(expr=metric("gpu_power_watts"), legend=_GPU_NAME),),
        ),
        Panel(
            title="GPU energy",
            description="Mean power from the energy counter, which includes all peaks.",
            unit="watt",
            queries=(Query(expr=rate("gpu_energy_joules_total"), legend=_GPU_NAME),),
        ),
        Panel(
            title="GPU temperature",
            description="Temperature of the GPU chip.",
            unit="celsius",
            queries=(Query(expr=metric("gpu_temperature_celsius"), legend=_GPU_NAME),),
        ),
        Panel(
            title="GPU clock",
            description="Clock of the streaming multiprocessors (SM).",
            unit="hertz",
            queries=(Query(expr=metric("gpu_sm_clock_hertz"), legend=_GPU_NAME),),
        ),
        Panel(
            title="GPU throttled",
            description="Share of time in which the driver reported this reason for a reduced clock.",
            unit="percentunit",
            # Scrapes and readings happen at different times, so a rate can slightly exceed 1.
            queries=(
                Query(
                    expr=f"clamp_max({rate('gpu_throttled_seconds_total')}, 1) > 0",
                    legend=f"{_GPU_NAME} {{{{reason}}}}",
                ),
            ),
            axis_max=1,
            width=24,
        ),
    ),
)

_CORE_NAME = "{{task_family}} core {{neuron_core}}"
NEURON: Final = Row(
    title="Neuron",
    is_collapsed=True,
    panels=(
        Panel(
            title="NeuronCore utilization",
            description="Measured while a process uses the devices. An unused core has 0.",
            unit="percentunit",
            queries=(Query(expr=metric("neuron_core_utilization_ratio"), legend=_CORE_NAME),),
            axis_max=1,
        ),
        Panel(
            title="NeuronCore memory",
            description="Device memory in use per core.",
            unit="bytes",
            queries=(Query(expr=metric("neuron_core_memory_used_bytes"), legend=_CORE_NAME),),
        ),
        Panel(
            title="Device memory by category",
            description="Device memory in use on all devices of the task.",
            unit="bytes",
            is_stacked=True,
            queries=(Query(expr=metric("neuron_memory_used_bytes"), legend="{{task_family}} {{category}}"),),
        ),
        Panel(
            title="Device memory utilization",
            description="Device memory in use as a share of the memory of all devices.",
            unit="percentunit",
            queries=(
                Query(
                    expr=share("neuron_device_memory_used_bytes", "neuron_device_memory_size_bytes"),
                    legend=TASK_NAME,
                ),
            ),
            axis_max=1,
        ),
        Panel(
            title="Executions",
            description="Executions per second by outcome.",
            unit="ops",
            queries=(Query(expr=rate("neuron_executions_total"), legend="{{task_family}} {{outcome}}"),),
        ),
        Panel(
            title="Execution latency",
            description="Latency percentiles of the last period, from the slowest process.",
            unit="s",
            queries=(Query(expr=metric("neuron_execution_latency_seconds"), legend="{{task_family}} {{percentile}}"),),
        ),
        Panel(
            title="Memory errors",
            description="Uncorrected ECC errors in the selected time range.",
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
