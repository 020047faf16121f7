"""What a test asks for: containers, in the words of an ECS task definition."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from tests.e2e.images import BASE_IMAGE, MONITOR_IMAGE

BATCH = "batch"
MONITOR = "task-monitor"

_BATCH_LOAD = Path(__file__).with_name("batch_load.py")


class ContainerSpec(Struct, frozen=True, kw_only=True):
    """One container of the task definition; all `depends_on` are of the condition START."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    essential: bool = True
    depends_on: tuple[str, ...] = ()
    memory_mib: int | None = None
    cpus: float | None = None
    stop_timeout_seconds: int = 30
    user: str = ""
    read_only: bool = False
    drop_capabilities: bool = False
    add_capabilities: tuple[str, ...] = ()
    no_new_privileges: bool = False
    read_only_mounts: tuple[tuple[Path, str], ...] = ()
    log_group: str | None = None
    type: str = "NORMAL"


def batch_container(
    *load: str, depends_on: tuple[str, ...] = (), memory_mib: int = 512, cpus: float | None = None
) -> ContainerSpec:
    """Describe a batch that runs `batch_load.py` with these arguments."""
    return ContainerSpec(
        name=BATCH,
        image=BASE_IMAGE,
        command=("python3", "-B", "/batch_load.py", *load),
        depends_on=depends_on,
        memory_mib=memory_mib,
        cpus=cpus,
        read_only_mounts=((_BATCH_LOAD, "/batch_load.py"),),
    )


def monitor_container(
    environment: Mapping[str, str],
    *,
    essential: bool = False,
    depends_on: tuple[str, ...] = (BATCH,),
    memory_mib: int = 128,
    as_root: bool = False,
    ptrace: bool = False,
) -> ContainerSpec:
    """Describe the product beside the batch, with no more rights than its task definition gives it.

    As root it has the capabilities that Docker gives, as a container without any settings does. With ``ptrace`` it is
    root and has SYS_PTRACE too, as ``--stacks`` sets it.
    """
    return ContainerSpec(
        name=MONITOR,
        image=MONITOR_IMAGE,
        command=("monitor",),
        environment=environment,
        essential=essential,
        depends_on=depends_on,
        memory_mib=memory_mib,
        stop_timeout_seconds=120,
        user="0" if as_root or ptrace else "65532",
        read_only=True,
        drop_capabilities=not (as_root or ptrace),
        add_capabilities=("SYS_PTRACE",) if ptrace else (),
        no_new_privileges=True,
    )
