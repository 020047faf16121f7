"""The real binding on the library of ``integration/nvidia/fake_nvml.c``, with an error script
for every call.
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
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
_NOT_AVAILABLE = 2**64 - 1
COMPUTING, DRAWING, OF_MPS = 1, 2, 4
GPM_NUMBERS = {
    "any_kernel": 1,
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


class _Process(ctypes.Structure):
    _fields_: ClassVar = [
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Use(ctypes.Structure):
    _fields_: ClassVar = [
        ("microseconds", ctypes.c_ulonglong),
        ("percent", ctypes.c_uint),
        ("unused", ctypes.c_uint),
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
        ("gpm_seconds", ctypes.c_double),
        ("gpm_weights", ctypes.c_double * len(GPM_NUMBERS)),
        ("has_lists", ctypes.c_uint),
        ("process_count", ctypes.c_uint),
        ("has_samples", ctypes.c_uint),
        ("sample_count", ctypes.c_uint),
        ("link_generation", ctypes.c_uint),
        ("link_width", ctypes.c_uint),
        ("processes", _Process * 8),
        ("samples", _Use * 128),
        ("is_divided", ctypes.c_uint),
        ("instance", ctypes.c_uint),
        ("xid_instance", ctypes.c_uint),
        ("parts", ctypes.c_void_p * 7),
        ("lists", ctypes.c_uint * 8),
        ("has_long_entries", ctypes.c_uint),
        ("is_lost", ctypes.c_uint),
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

    def divide(self, *parts: "FakeGpu | None") -> None:
        """Divide the GPU by MIG; None is a place without a visible part."""
        self.is_divided = 1
        self.kept = parts
        for place, part in enumerate(parts):
            self.parts[place] = None if part is None else ctypes.addressof(part)

    def gpm(self, *, result: int = 0, **values: float) -> None:
        """Set metrics by name, in percent or MiB/s; ``result`` is the error number of these
        metrics.
        """
        self.has_gpm = 1
        for metric in self.metrics:
            for name, value in values.items():
                if GPM_NUMBERS[name] == metric.number:
                    metric.result, metric.value = result, value

    def list_processes(self, *processes: tuple[int, int | None], lists: Sequence[int] = ()) -> None:
        """The processes with a context: their ids and bytes, None if the driver does not say
        them. ``lists`` are COMPUTING, DRAWING and OF_MPS of each, of which several may be added.
        """
        self.has_lists = 1
        self.process_count = len(processes)
        self.lists = (ctypes.c_uint * 8)(*lists)
        for entry, (pid, size) in zip(self.processes, processes, strict=False):
            entry.pid = pid
            entry.used_bytes = _NOT_AVAILABLE if size is None else size

    def keep_samples(self, *samples: tuple[int, int]) -> None:
        """The driver's samples of utilization: microseconds since 1970, and percent."""
        self.has_samples = 1
        self.sample_count = len(samples)
        for entry, (microseconds, percent) in zip(self.samples, samples, strict=False):
            entry.microseconds = microseconds
            entry.percent = percent

    def sum_gpm(self, seconds: float, sums: Mapping[int, tuple[float, float]]) -> None:
        """GPM's metrics by NVML's number, as sums and weights since the start of a tape."""
        self.has_gpm = 1
        self.gpm_seconds = seconds
        for place, number in enumerate(GPM_NUMBERS.values()):
            self.metrics[place].value, self.gpm_weights[place] = sums[number]

    def fall_with(self, *xids: int) -> None:
        """Report these errors (Xid), each once."""
        self.xid_numbers = (ctypes.c_uint * 4)(*xids)


_CALLED = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(compile_driver(Path(folder)) / "libnvidia-ml.so.1"))


class _Calls:
    """How often each function was called."""

    def __getitem__(self, function: str) -> int:
        return int(_library().calls_of(function.encode()))


class _OldLibrary:
    """The library of an older driver, which lacks some functions."""

    def __init__(self, missing: Collection[str]) -> None:
        self._missing = missing

    def __getattr__(self, name: str) -> object:
        if name in self._missing:
            raise AttributeError(name)
        return getattr(_library(), name)


class FakeNvml:
    """A driver with these GPUs. There is one at a time: a new one replaces the one before.

    ``fail(function, value, …)`` scripts errors; ``calls`` counts what was asked. The driver is
    older than the ``missing`` functions.
    """

    def __init__(self, *gpus: FakeGpu, missing: Collection[str] = ()) -> None:
        self._gpus: dict[int, FakeGpu] = {}
        self.calls = _Calls()
        self.binding: Any = pynvml
        pynvml.nvmlLib = _OldLibrary(missing) if missing else _library()
        pynvml._nvmlGetFunctionPointer_cache.clear()
        _library().reset()
        self.show(*gpus)

    def on_call(self, called: Callable[[str], None]) -> None:
        """Call this before each call of the driver, with the function's name."""
        self._called = _CALLED(lambda function: called(function.decode()))  # kept alive
        _library().set_on_call(self._called)

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
