"""What the night needs of this machine; ``python -m tests.real.programs`` prints what is
missing.
"""

import os
import shutil
import sys
from pathlib import Path

AGENT = Path(os.environ.get("ECS_AGENT", ""))
EMULATOR = Path(os.environ.get("LAMBDA_RIE", ""))


def missing() -> str:
    """What this machine lacks, in words; empty if it has everything."""
    if os.geteuid() != 0:
        return "root"
    for program in ("docker", "dockerd", "debootstrap", "iptables", "ip", "gcc", "java", "mvn"):
        if shutil.which(program) is None:
            return f"the program {program}"
    for name, path in (("ECS_AGENT", AGENT), ("LAMBDA_RIE", EMULATOR)):
        if not path.is_file():
            return f"{name} to be the path of a program, or Go and GitHub to build it"
    return ""


if __name__ == "__main__":
    sys.stdout.write(missing())
