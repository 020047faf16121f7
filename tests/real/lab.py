"""One machine with AWS's own programs: the ECS agent on a Docker daemon, and the forwarder's zip
in Lambda's emulator.

The agent needs the addresses and ports that it has on an instance. All that was started ends with
the block.
"""

import contextlib
import json
import os
import signal
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
from msgspec import Struct

from profiler.aws_account.setup.forwarder_zip import build_zip
from tests.e2e.engine import CommandFailedError, DockerError, Engine, own_engine, run_command
from tests.e2e.images import default_cache, make_base_image, make_monitor_image
from tests.e2e.kernel import count_block_io, remove_cgroup
from tests.fake_slack import FakeSlack
from tests.lambda_environment import create_idempotency_table, runtime_command, runtime_folder
from tests.private_ca import private_ca
from tests.real.control_plane import REGION, ControlPlane
from tests.real.programs import AGENT, EMULATOR
from tools.moto_server import FakeAws, fake_aws
from tools.search_engines import VERSION_8, running_elasticsearch
from tools.search_server import SearchServer, free_ports
from tools.waiting import LIMIT_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
LOG_GROUP = "/ecs/jobs"
_BRIDGE = "tp-real0"
GATEWAY = "10.213.77.1"  # this machine, as containers see it
_METADATA = "169.254.170.2"
_METADATA_PORT = 51679
_LOCAL_ROUTES = Path("/proc/sys/net/ipv4/conf/all/route_localnet")
_PAUSE_ARCHIVE = Path("/images/amazon-ecs-pause.tar")  # its path is compiled into the agent
_PAUSE_IMAGE = "amazon/amazon-ecs-pause:0.1.0"
# On v2 the agent needs a Docker daemon that leaves control groups to systemd.
_HAS_CGROUP_V2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
_PAUSE = """#include <signal.h>
#include <unistd.h>
int main() { signal(SIGTERM, _exit); signal(SIGCHLD, SIG_IGN); for (;;) pause(); }"""


class Function(Struct, frozen=True):
    """One function of the forwarder in the emulator; ``failed`` is its failure queue, ``log`` the
    file with its lines.
    """

    url: str
    failed: list[tuple[dict[str, Any], Any]]
    log: Path

    def invoke(self, event: dict[str, Any]) -> Any:
        """Invoke it as a subscription or a rule does, again when it fails; return the last
        answer.
        """
        for _ in range(3):  # Lambda repeats a failed asynchronous invocation twice
            answer = requests.post(self.url, json=event, timeout=LIMIT_SECONDS).json()
            if not (answer.get("errorMessage") or answer.get("failed")):
                return answer
        self.failed.append((event, answer))
        return answer


class Agent:
    """The ECS agent's process, and its data, which outlive a restart."""

    def __init__(self, engine: Engine, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "DOCKER_HOST": engine.environment()["DOCKER_HOST"],
            "ECS_BACKEND_HOST": plane.url,
            "ECS_CLUSTER": plane.cluster,
            "ECS_DATADIR": str(folder),
            "ECS_EXTERNAL": "true",
            "ECS_ENABLE_TASK_ENI": "false",
            "ECS_ENABLE_TASK_IAM_ROLE": "true",
            "ECS_ENABLE_TASK_IAM_ROLE_NETWORK_HOST": "true",
            "ECS_AVAILABLE_LOGGING_DRIVERS": '["awslogs","json-file","none"]',
            "ECS_IMAGE_PULL_BEHAVIOR": "prefer-cached",
            "ECS_ENABLE_TASK_CPU_MEM_LIMIT": str(not _HAS_CGROUP_V2).lower(),
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command, place = [str(AGENT), "-blackhole-ec2-metadata", "-loglevel", "info"], self._folder
        with (place / "log").open("ab") as log:
            return subprocess.Popen(
                command, env=self._environment, cwd=place, stdout=log, stderr=subprocess.STDOUT
            )

    def restart(self) -> None:
        """Kill it, as a crash does, and start it again; return when it is connected."""
        self.kill()
        wait_until(
            lambda: not self._plane.is_connected,
            "the end of the agent's connection",
        )
        self._process = self._start()
        self._plane.wait_connected()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Daemon:
    """dockerd's process, which can be stopped and started again.

    Its containers go on meanwhile (live-restore).
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._folder = engine.api.socket_path.parent
        process = Path("/proc") / (self._folder / "pid").read_text().strip()
        self._command = (process / "cmdline").read_text().rstrip("\0").split("\0")
        variables = (process / "environ").read_text().rstrip("\0").split("\0")
        self._environment = dict(one.split("=", 1) for one in variables)
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        os.kill(int((self._folder / "pid").read_text()), signal.SIGTERM)
        if self._process is not None:
            self._process.wait()
        wait_until(lambda: not (self._folder / "pid").exists(), "the end of dockerd")

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._is_answering, "dockerd")

    def _is_answering(self) -> bool:
        with contextlib.suppress(OSError, DockerError):
            self._engine.api.call("GET", "/info")
            return True
        return False

    def end(self) -> None:
        """Stop a daemon that was started here."""
        if self._process is not None and self._process.poll() is None:
            self.stop()


class Lab(Struct, frozen=True):
    engine: Engine
    daemon: Daemon
    plane: ControlPlane
    agent: Agent
    aws: FakeAws
    search: SearchServer
    slack: FakeSlack
    forward_logs: Function
    task_stopped: Function


@contextlib.contextmanager
def running_lab() -> Iterator[Lab]:
    """Start everything; the images are made first, on the daemon whose containers the agent
    starts.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="task-profiler-real-"))
        )
        count_block_io(folder)
        _network(stack)
        keys = {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }  # of the log driver
        engine = stack.enter_context(own_engine((f"--bridge={_BRIDGE}", "--live-restore"), keys))
        daemon = Daemon(engine)
        stack.callback(daemon.end)
        aws = stack.enter_context(fake_aws(GATEWAY))
        aws.create_log_group(LOG_GROUP)
        create_idempotency_table("notices", aws.client("dynamodb"))
        archive = folder / "forwarder.zip"
        with ThreadPoolExecutor() as pool:
            images = pool.submit(_make_images, engine)
            zipped = pool.submit(build_zip, archive)
            search = stack.enter_context(running_elasticsearch(VERSION_8))
            images.result()
            zipped.result()
        _save_pause_image(stack, engine, folder)
        for path in (ROOT / "kibana" / "index-templates").glob("*.json"):
            template = json.loads(path.read_text())
            requests.put(
                f"{search.url}/_index_template/{path.stem}", json=template, timeout=LIMIT_SECONDS
            ).raise_for_status()
        slack = stack.enter_context(FakeSlack())
        forward_logs, task_stopped = _functions(stack, archive, aws, search, slack)
        plane = stack.enter_context(ControlPlane())
        agent = Agent(engine, plane, _made(folder / "agent"))
        stack.callback(_remove_containers, engine, plane)
        stack.callback(agent.kill)
        plane.wait_connected()
        yield Lab(engine, daemon, plane, agent, aws, search, slack, forward_logs, task_stopped)


def _network(stack: contextlib.ExitStack) -> None:
    """The addresses of an instance: a bridge for containers, and the agent's own at its
    well-known port.
    """
    # Without an address of its own, a bridge gets another one whenever a container ends, and others
    # lose their route.
    bridge = ("ip", "link", "add", _BRIDGE, "address", "02:00:0a:d5:4d:01", "type", "bridge")
    _for_now(stack, bridge, ("ip", "link", "del", _BRIDGE))
    run_command("ip", "address", "add", f"{GATEWAY}/24", "dev", _BRIDGE)
    run_command("ip", "link", "set", _BRIDGE, "up")
    address = (f"{_METADATA}/32", "dev", "lo")
    _for_now(stack, ("ip", "address", "add", *address), ("ip", "address", "del", *address))
    before = _LOCAL_ROUTES.read_text()
    stack.callback(_LOCAL_ROUTES.write_text, before)
    _LOCAL_ROUTES.write_text("1")
    asked = ("-p", "tcp", "-d", _METADATA, "--dport", "80")
    for rule in (
        (
            "PREROUTING",
            "-i",
            _BRIDGE,
            *asked,
            "-j",
            "DNAT",
            "--to-destination",
            f"127.0.0.1:{_METADATA_PORT}",
        ),
        ("OUTPUT", *asked, "-j", "REDIRECT", "--to-ports", str(_METADATA_PORT)),
    ):
        _for_now(
            stack,
            ("iptables", "-w", "-t", "nat", "-A", *rule),
            ("iptables", "-w", "-t", "nat", "-D", *rule),
        )


def _for_now(stack: contextlib.ExitStack, command: tuple[str, ...], undo: tuple[str, ...]) -> None:
    with contextlib.suppress(CommandFailedError):
        run_command(*undo)  # what a killed run has left
    run_command(*command)
    stack.callback(run_command, *undo)


def _make_images(engine: Engine) -> None:
    make_base_image(engine, default_cache())
    make_monitor_image(engine, ROOT)


def _save_pause_image(stack: contextlib.ExitStack, engine: Engine, folder: Path) -> None:
    """Make the image of the container whose namespaces a task shares, where the agent looks for
    it.
    """
    program = folder / "pause"
    (folder / "pause.c").write_text(_PAUSE)
    run_command("gcc", "-Os", "-static", str(folder / "pause.c"), "-o", str(program))
    with tarfile.open(folder / "layer.tar", "w") as layer:
        layer.add(program, "pause")
    engine.command(
        "import", "--change", 'ENTRYPOINT ["/pause"]', str(folder / "layer.tar"), _PAUSE_IMAGE
    )
    if not _PAUSE_ARCHIVE.parent.exists():
        _PAUSE_ARCHIVE.parent.mkdir()
        stack.callback(_PAUSE_ARCHIVE.parent.rmdir)
    if not _PAUSE_ARCHIVE.exists():
        stack.callback(_PAUSE_ARCHIVE.unlink)
        engine.command("save", "--output", str(_PAUSE_ARCHIVE), _PAUSE_IMAGE)


def _functions(
    stack: contextlib.ExitStack, archive: Path, aws: FakeAws, search: SearchServer, slack: FakeSlack
) -> list[Function]:
    """The forwarder's functions in emulators, from the zip in the folder of all that is made."""
    folder = archive.parent
    task_root = _made(folder / "task")
    with zipfile.ZipFile(archive) as content:
        content.extractall(task_root)
    runtime = runtime_folder(_made(folder / "runtime"))
    certificate, context = private_ca(_made(folder / "certificates"))
    slack.use_tls(context)
    webhook = slack.webhook_url.replace("http:", "https:")
    environment = {
        "PATH": os.environ["PATH"],
        "SSL_CERT_FILE": str(certificate),
        "ELASTICSEARCH_URL": search.url,
        "SLACK_SUCCESS_WEBHOOK_URL": webhook,
        "SLACK_FAILURE_WEBHOOK_URL": webhook,
        "IDEMPOTENCY_TABLE": "notices",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": "120",
        **aws.environment(),
    }
    functions = []
    for name in ("forward_logs", "task_stopped"):
        port, runtime_port = free_ports(2)
        options = ["--runtime-interface-emulator-address", f"127.0.0.1:{port}"]
        options += ["--runtime-api-address", f"127.0.0.1:{runtime_port}"]
        command = [str(EMULATOR), *options, *runtime_command(task_root, runtime, name)]
        variables = environment | {
            "LAMBDA_TASK_ROOT": str(task_root),
            "AWS_LAMBDA_FUNCTION_NAME": name,
        }
        with (folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env=variables,
                cwd=task_root,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        stack.callback(_end, process)
        url = f"http://127.0.0.1:{port}/2015-03-31/functions/function/invocations"
        functions.append(Function(url, [], folder / f"{name}.log"))
    return functions


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _remove_containers(engine: Engine, plane: ControlPlane) -> None:
    names = engine.command("ps", "--all", "--quiet").split()
    if names:
        engine.command("rm", "--force", "--volumes", *names)
    for task in plane.tasks.values():
        remove_cgroup(f"/ecs/{task.id}")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
