"""The hardware and software of the machine that runs a benchmark, without its name."""

import os
import platform
import sysconfig
from pathlib import Path

from msgspec import Struct


class Machine(Struct, frozen=True, kw_only=True):
    """The machine; ``load`` is the mean number of runnable processes over the last minute."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    load: float

    def sentence(self) -> str:
        """A description for the results page."""
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB, Linux {self.kernel}, "
            f"Python {self.python}; load {self.load:.1f} at the start"
        )


def describe_machine() -> Machine:
    """Describe this machine."""
    return Machine(
        cpu=cpu_model(Path("/proc/cpuinfo").read_text()),
        cores=os.cpu_count() or 1,
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        kernel=".".join(platform.release().split("-")[0].split(".")[:2]),
        python=python_build(platform.python_version(), sysconfig.get_config_var("CONFIG_ARGS")),
        load=round(os.getloadavg()[0], 2),
    )


def python_build(version: str, options: str | None) -> str:
    """Python's version, and whether its build used a profile, as the images' does and pyenv's does
    not; ``options`` are those of its build.
    """
    is_profiled = "--enable-optimizations" in (options or "")
    return f"{version}, built with a profile" if is_profiled else version


def cpu_model(cpuinfo: str) -> str:
    """The processor model. On Arm, /proc/cpuinfo has no model name, so this is the part number."""
    fields = dict(_cpuinfo_field(line) for line in cpuinfo.splitlines() if ":" in line)
    return fields.get("model name") or f"CPU part {fields.get('CPU part', 'unknown')}"


def _cpuinfo_field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
