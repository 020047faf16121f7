"""Compiles the driver libraries with made-up GPUs that stand in for NVIDIA's."""

import shutil
import subprocess
from pathlib import Path

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
