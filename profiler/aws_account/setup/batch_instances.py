"""The user data of a launch template whose instances, which AWS Batch starts, run the instance
monitor, and the rights that their role needs.

The monitor is a container of Docker's, which a service of systemd starts: AWS Batch does not scale
an instance in while a service of ECS has a task on it. Nothing here waits for the monitor, and
nothing that fails keeps the instance from running jobs.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from profiler.aws_account.ecr_images import EcrImage, ecr_image
from profiler.core.errors import UsageError
from profiler.settings import SCOPE_VARIABLE

CONTAINER = "task-profiler-monitor"
# Of an instance's user data, to which AWS Batch adds its own part.
_MAX_BYTES = 14_336
_BOUNDARY = "==TASK-PROFILER=="
_START = f"/usr/local/libexec/{CONTAINER}"
_UNIT = f"/etc/systemd/system/{CONTAINER}.service"
_END_OF_START = "END_OF_START"
_END_OF_UNIT = "END_OF_UNIT"
_PRINTABLE = re.compile(r"[ -~]*", re.ASCII)
_SCOPE = {SCOPE_VARIABLE: "instance"}
_GPU_VARIABLES = ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility")
_STOP_SECONDS = 120
_OPTIONS = (
    f"--name={CONTAINER}",
    "--rm",
    "--network=host",
    "--user=0",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--memory=192m",
    "--memory-reservation=48m",
    "--cpu-shares=64",
    "--oom-score-adj=1000",
    f"--stop-timeout={_STOP_SECONDS}",
    "--log-driver=json-file",
    "--log-opt=max-size=1m",
    "--log-opt=max-file=2",
    "--volume=/var/run:/var/run:ro",
    "--volume=/sys/fs/cgroup:/sys/fs/cgroup:ro",
    "--volume=/var/lib/task-profiler:/var/lib/task-profiler",
)


class InstanceUserData(Struct, frozen=True, kw_only=True):
    """What the instances start: the image, and the monitor's settings."""

    image: str
    region: str
    settings: Mapping[str, str] = {}

    @property
    def ecr_image(self) -> EcrImage | None:
        """The image in a registry of Amazon ECR, to which Docker signs in; None for another."""
        return ecr_image(self.image)

    def user_data_document(self) -> str:
        """The user data, a MIME multipart document. Raises UsageError if it cannot be one."""
        for word in (self.image, self.region, *self.settings.values()):
            if not _PRINTABLE.fullmatch(word):
                raise UsageError(
                    f"{word!r} has characters that user data cannot have: use letters, digits and "
                    "signs of ASCII on one line."
                )
        document = "\n".join(
            (
                f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
                "MIME-Version: 1.0",
                "",
                f"--{_BOUNDARY}",
                'Content-Type: text/x-shellscript; charset="us-ascii"',
                "MIME-Version: 1.0",
                "Content-Transfer-Encoding: 7bit",
                f'Content-Disposition: attachment; filename="{CONTAINER}.sh"',
                "",
                *self._script_lines(),
                f"--{_BOUNDARY}--",
                "",
            )
        )
        if len(document) > _MAX_BYTES:
            raise UsageError(
                f"The user data would have {len(document):,} characters, and EC2 allows 16,384 "
                "with AWS Batch's own: leave settings out."
            )
        return document

    def _script_lines(self) -> Iterator[str]:
        """The lines that run once, at the instance's first start."""
        yield "#!/bin/bash"
        yield "# Task Profiler: one monitor for all jobs of this instance (docs/aws-batch.md)."
        yield "mkdir -p /usr/local/libexec /var/lib/task-profiler"
        yield f"cat >{_START} <<'{_END_OF_START}'"
        yield from self._start_lines()
        yield _END_OF_START
        yield f"chmod 755 {_START}"
        yield f"cat >{_UNIT} <<'{_END_OF_UNIT}'"
        yield from _systemd_unit_lines()
        yield _END_OF_UNIT
        yield "systemctl daemon-reload"
        # Without waiting: the ECS agent starts after this script.
        yield f"systemctl enable --now --no-block {CONTAINER}.service"

    def _start_lines(self) -> Iterator[str]:
        """The lines that start the monitor, each time again if it ends."""
        yield "#!/bin/bash"
        yield f"export DOCKER_CONFIG=/run/{CONTAINER}"
        yield 'mkdir -p "$DOCKER_CONFIG"'
        if self.ecr_image is not None:
            registry = self.image.partition("/")[0]
            yield "command -v docker-credential-ecr-login >/dev/null ||"
            yield "  yum install -q -y amazon-ecr-credential-helper"
            config = f'{{"credHelpers": {{"{registry}": "ecr-login"}}}}'
            yield f'echo {shlex.quote(config)} >"$DOCKER_CONFIG/config.json"'
        yield f"docker rm --force {CONTAINER} >/dev/null 2>&1"
        yield "gpus=()"
        yield "if command -v nvidia-container-cli >/dev/null && [ -e /proc/driver/nvidia/version ]"
        yield "then"
        yield f"  gpus=(--gpus=all {' '.join(f'--env={name}' for name in _GPU_VARIABLES)})"
        yield "fi"
        yield 'exec docker run "${gpus[@]}" \\'
        for word in self._docker_run_words():
            yield f"  {shlex.quote(word)} \\"
        yield "  monitor"

    def _docker_run_words(self) -> Sequence[str]:
        variables = {**_SCOPE, "AWS_REGION": self.region, **self.settings}
        named = [f"--env={name}={value}" for name, value in variables.items()]
        return [*_OPTIONS, *named, "--", self.image]


def _systemd_unit_lines() -> Iterator[str]:
    """The service: it starts the monitor again whenever it ends."""
    yield "[Unit]"
    yield "Description=Task Profiler, the monitor of this instance"
    yield "Wants=docker.service"
    yield "After=docker.service"
    yield "StartLimitIntervalSec=0"
    yield ""
    yield "[Service]"
    yield f"ExecStart={_START}"
    yield "Restart=always"
    yield "RestartSec=30"
    yield f"TimeoutStopSec={_STOP_SECONDS + 10}"
    yield ""
    yield "[Install]"
    yield "WantedBy=multi-user.target"


def role_policy(
    image: str, groups: Sequence[str], *, region: str, partition: str
) -> Mapping[str, object]:
    """The policy of the instances' role: the log groups of the jobs, and the monitor's image."""
    registry = ecr_image(image)
    account = "*" if registry is None else registry.account
    logs = f"arn:{partition}:logs:{region}:{account}:log-group:"
    statements = [
        {
            "Sid": "PutReportsIntoTheStreamsOfJobs",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:GetLogEvents", "logs:PutLogEvents"],
            "Resource": [f"{logs}{group}:*" for group in groups],
        }
    ]
    if registry is not None:
        repository = f"repository/{registry.repository}"
        place = f"arn:{partition}:ecr:{registry.region}:{registry.account}:{repository}"
        statements += [
            {
                "Sid": "PullTheMonitor",
                "Effect": "Allow",
                "Action": ["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
                "Resource": [place],
            },
            {
                "Sid": "SignInToTheRegistry",
                "Effect": "Allow",
                "Action": ["ecr:GetAuthorizationToken"],
                "Resource": ["*"],
            },
        ]
    return {"Version": "2012-10-17", "Statement": statements}
