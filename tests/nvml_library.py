"""Compiles the driver library with made-up GPUs that stands in for NVIDIA's."""

import shutil
import subprocess
from pathlib import Path

from tests.missing import skip_or_fail

SOURCE = Path(__file__).parent / "integration" / "nvml" / "fake_nvml.c"


def compile_driver(folder: Path) -> Path:
    """Return the folder, which a process finds the library in when it is its LD_LIBRARY_PATH."""
    compiler = shutil.which("cc")
    if compiler is None:
        skip_or_fail("there is no C compiler: on Debian, apt-get install gcc libc6-dev")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE], check=True)
    return folder
