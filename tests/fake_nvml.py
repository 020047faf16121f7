"""The real binding on the library of ``integration/nvidia/fake_nvml.c``, with an error script
for every call.
"""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pynvml

from tests.prerequisites import skip_or_fail

FOLDER = Path(__file__).parent / "integration" / "nvidia"
_SOURCES = {"libnvidia-ml.so.1": "fake_nvml.c", "libcuda.so.1": "fake_cuda.c"}


def compile_driver(folder: Path) -> Path:
    """Return the folder, which a process finds the libraries in when it is its LD_LIBRARY_PATH."""
    compiler = shutil.which("cc")
    if compiler is None:
        skip_or_fail("there is no C compiler: on Debian, apt-get install gcc libc6-dev")
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    for library, source in _SOURCES.items():
        subprocess.run([compiler, *options, "-o", folder / library, FOLDER / source], check=True)
    return folder


MIB = 1024 * 1024
GPM_NUMBERS = {
    "sm_active": 2,
    "sm_occupancy": 3,
    "tensor_active": 5,
    "dram_active": 10,
    "pcie_tx": 20,
    "pcie_rx": 21,
    "nvlink_rx": 60,
    "nvlink_tx": 61,
}


class _Metric(ctypes.Structure):
    _fields_: ClassVar = [
        ("number", ctypes.c_uint),
        ("result", ctypes.c_int),
        ("value", ctypes.c_double),
        ("names", ctypes.c_char_p * 3),
    ]


class FakeGpu(ctypes.Structure):
    """One GPU, in the memory that the library reads.

    Without other numbers it is idle and older than GPM.
    """

    _fields_: ClassVar = [
        ("uuid_bytes", ctypes.c_char * 64),
        ("name_bytes", ctypes.c_char * 64),
        ("used_bytes", ctypes.c_ulonglong),
        ("reserved_bytes", ctypes.c_ulonglong),
        ("total_bytes", ctypes.c_ulonglong),
        ("reasons", ctypes.c_ulonglong),
        ("energy_millijoules", ctypes.c_ulonglong),
        ("energy_step_millijoules", ctypes.c_ulonglong),
        ("ecc_uncorrected", ctypes.c_longlong),
        ("utilization_percent", ctypes.c_uint),
        ("power_milliwatts", ctypes.c_uint),
        ("clock_mhz", ctypes.c_uint),
        ("celsius", ctypes.c_uint),
        ("xid_numbers", ctypes.c_uint * 4),
        ("has_gpm", ctypes.c_uint),
        ("is_registered", ctypes.c_uint),
        ("metrics", _Metric * len(GPM_NUMBERS)),
    ]

    def __init__(self, uuid: str = "GPU-0", **numbers: int) -> None:
        usual = {
            "reserved_bytes": 600 * MIB,
            "total_bytes": 24_000 * MIB,
            "power_milliwatts": 60_000,
        }
        usual |= {"clock_mhz": 210, "celsius": 30, "reasons": 1, "energy_millijoules": 5_000_000}
        super().__init__(uuid.encode(), b"NVIDIA A10G", **(usual | numbers))
        for metric, number in zip(self.metrics, GPM_NUMBERS.values(), strict=True):
            metric.number = number

    def gpm(self, *, result: int = 0, **values: float) -> None:
        """Set metrics by name, in percent or MiB/s; ``result`` is the error number of these
        metrics.
        """
        self.has_gpm = 1
        for metric in self.metrics:
            for name, value in values.items():
                if GPM_NUMBERS[name] == metric.number:
                    metric.result, metric.value = result, value

    def fall_with(self, *xids: int) -> None:
        """Report these errors (Xid), each once."""
        self.xid_numbers = (ctypes.c_uint * 4)(*xids)


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(compile_driver(Path(folder)) / "libnvidia-ml.so.1"))


class _Calls:
    """How often each function was called."""

    def __getitem__(self, function: str) -> int:
        return int(_library().calls_of(function.encode()))


class FakeNvml:
    """A driver with these GPUs. There is one at a time: a new one replaces the one before.

    ``fail(function, value, …)`` scripts errors; ``calls`` counts what was asked.
    """

    def __init__(self, *gpus: FakeGpu) -> None:
        self._gpus: dict[int, FakeGpu] = {}
        self.calls = _Calls()
        self.binding: Any = pynvml
        pynvml.nvmlLib = _library()
        pynvml._nvmlGetFunctionPointer_cache.clear()
        _library().reset()
        self.show(*gpus)

    def show(self, *gpus: FakeGpu) -> None:
        self._gpus |= {
            id(gpu): gpu for gpu in gpus
        }  # the library keeps pointers to all that were ever visible
        _library().play(
            (ctypes.POINTER(FakeGpu) * len(gpus))(*map(ctypes.pointer, gpus)), len(gpus)
        )

    def fail(
        self, function: str, *values: int | None, uuid: str | None = None, always: bool = False
    ) -> None:
        """The next calls of ``function`` (of one GPU, or of all) fail with ``values``; None lets
        one through.
        """
        gpu = next(
            (ctypes.pointer(gpu) for gpu in self._gpus.values() if gpu.uuid_bytes.decode() == uuid),
            None,
        )
        for value in values:
            (_library().fail_always if always else _library().fail_next)(
                function.encode(), gpu, value or 0
            )

    def clear_failures(self) -> None:
        _library().clear_failures()

    @property
    def starts(self) -> int:
        return _number("starts")

    @property
    def is_open(self) -> bool:
        return bool(_number("is_open"))

    @property
    def live_samples(self) -> int:
        """The GPM samples that are allocated."""
        return _number("live_samples")


def _number(name: str) -> int:
    return ctypes.c_int.in_dll(_library(), name).value
