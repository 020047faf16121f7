"""The monitor's image: its repository in Amazon ECR, its build context, and the local Docker,
which builds it.
"""

import json
import re
import shutil
import subprocess
import sys
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, answer_unless, aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import error_code
from profiler.core.commands_to_copy import aws_command_line
from profiler.core.ecs_terms import MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError
from profiler.core.files import package_data_folder
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.version import __version__
from profiler.task_definitions.permissions import is_about_action, statements_of, values_of_field

PLATFORMS = ("linux/amd64", "linux/arm64")
_BUILDER = "task-profiler"
_LOOK_SECONDS = 0.2  # between two looks whether a signal came
_END_SECONDS = 10  # in which Docker gives a build back
_CONFIG = "config.json"
_CONTAINERD_STORE = (
    "io.containerd.snapshotter"  # Docker's store that holds images of several platforms
)
DOCKERFILE = Path("taskdef", "Dockerfile")
_PACKAGE = Path(__file__).resolve().parents[2]
_START = "task_profiler_start.py"  # outside of the package
_METADATA = ("METADATA", "WHEEL", "entry_points.txt")
_LEFT_OUT = "report_page/assets/plotly-basic.min.js"  # as in a clone's .dockerignore


class ImageRepository:
    """One repository, which may not exist yet."""

    def __init__(self, ecr: AwsClient, name: str) -> None:
        self.region: str = ecr.meta.region_name
        self.name = name
        self._ecr = ecr

    def read_uri(self) -> str | None:
        """The repository's URI; None if it does not exist."""
        answer = self._read_or_none(
            "describe_repositories", "RepositoryNotFoundException", repositoryNames=[self.name]
        )
        return None if answer is None else str(answer["repositories"][0]["repositoryUri"])

    def create_repository(self) -> str:
        """Create the repository, with immutable tags, and return its URI."""
        with aws_errors(f"The repository {self.name} cannot be created", "ecr:CreateRepository"):
            made = self._ecr.create_repository(
                repositoryName=self.name, imageTagMutability="IMMUTABLE"
            )
        return str(made["repository"]["repositoryUri"])

    def has_tag(self, tag: str) -> bool:
        """Whether an image with this tag is in the repository, which exists."""
        ids = [{"imageTag": tag}]
        return (
            self._read_or_none("describe_images", "ImageNotFoundException", imageIds=ids)
            is not None
        )

    def read_credentials(self) -> tuple[str, str, str]:
        """The registry, the user, and the password, which is valid for 12 hours."""
        with aws_errors("Docker cannot sign in to Amazon ECR", "ecr:GetAuthorizationToken"):
            (given,) = self._ecr.get_authorization_token()["authorizationData"]
        user, _, password = b64decode(given["authorizationToken"]).decode().partition(":")
        return given["proxyEndpoint"].removeprefix("https://"), user, password

    def repository_warnings(self, tag: str) -> Iterator[str]:
        """Sentences about settings that would later remove or replace the image, or keep tasks
        from pulling it.
        """
        try:
            yield from self._unguarded_warnings(tag)
        except TaskProfilerError as error:
            yield f"It is unknown whether a rule of {self.name} expires the image. {error}"

    def _unguarded_warnings(self, tag: str) -> Iterator[str]:
        described = self._read_or_none(
            "describe_repositories", "RepositoryNotFoundException", repositoryNames=[self.name]
        )
        if described is not None:
            (repository,) = described["repositories"]
            if repository.get("imageTagMutability") == "MUTABLE":
                name = ("--repository-name", self.name, "--image-tag-mutability", "IMMUTABLE")
                command = aws_command_line("ecr", "put-image-tag-mutability", *name)
                yield (
                    f"The tags of {self.name} are mutable, so a push can replace the image under "
                    f"running schedules: {command} makes them immutable."
                )
        lifecycle = self._read_or_none("get_lifecycle_policy", "LifecyclePolicyNotFoundException")
        for rule in mappings_in_list(
            _policy_document(lifecycle, "lifecyclePolicyText").get("rules")
        ):
            if _does_rule_select_tag(mapping_or_empty(rule.get("selection")), tag):
                title = " ".join(
                    filter(
                        None,
                        (str(rule.get("rulePriority", "")), text_or_none(rule.get("description"))),
                    )
                )
                yield (
                    f"The lifecycle rule {title} of {self.name} also expires the image {tag}, and "
                    "then no task with the monitor's container starts: exclude the tag from the "
                    "rule."
                )
        policy = self._read_or_none("get_repository_policy", "RepositoryPolicyNotFoundException")
        for statement in statements_of(_policy_document(policy, "policyText")):
            yield from self._policy_warnings(statement)

    def _policy_warnings(self, statement: Mapping[str, object]) -> Iterator[str]:
        name = text_or_none(statement.get("Sid")) or "without a Sid"
        title = f"The statement {name} in the policy of {self.name}"
        pulls = is_about_action(statement, "ecr:BatchGetImage") or is_about_action(
            statement, "ecr:GetDownloadUrlForLayer"
        )
        if statement.get("Effect") == "Deny" and pulls:
            yield (
                f"{title} denies the pull to some principals: tasks with such an execution role "
                "do not start."
            )
        if statement.get("Effect") == "Allow" and is_about_action(
            statement, "ecr:BatchDeleteImage"
        ):
            yield f"{title} allows others to delete the image."

    def _read_or_none(
        self, operation: str, missing: str, **arguments: object
    ) -> Mapping[str, Any] | None:
        """Call an operation that reads; None if the answer is the error ``missing``."""
        if operation != "describe_repositories":
            arguments["repositoryName"] = self.name
        right = f"ecr:{operation.title().replace('_', '')}"
        with aws_errors(f"The repository {self.name} cannot be read", right):
            answer: Mapping[str, Any] | None = answer_unless(
                lambda error: error_code(error) == missing,
                getattr(self._ecr, operation),
                **arguments,
            )
        return answer


def check_default_image(
    open_client: OpenClient, remedy: str, note: Callable[[str], object], *, must_exist: bool
) -> None:
    """Look for the default image.

    ``note`` gets a sentence. Raises TaskProfilerError if a missing one must exist.
    """
    image = f"{MONITOR_REPOSITORY}:{__version__}"
    try:
        repository = ImageRepository(open_client("ecr"), MONITOR_REPOSITORY)
        if repository.read_uri() is not None and repository.has_tag(__version__):
            return
    except TaskProfilerError as error:
        note(f"It is unknown whether the monitor's image {image} is in ECR. {error}")
        return
    advice = f"ECR has no image {image}, without which the tasks do not start: {remedy}."
    if must_exist:
        raise TaskProfilerError(advice)
    note(advice)


def _policy_document(answer: Mapping[str, Any] | None, field: str) -> Mapping[str, object]:
    return {} if answer is None else mapping_or_empty(json.loads(answer[field]))


def _does_rule_select_tag(selection: Mapping[str, object], tag: str) -> bool:
    """Whether a lifecycle rule selects an image with this tag alone: by all prefixes or
    patterns, or as any image.
    """
    if selection.get("tagStatus") == "any":
        return True
    prefixes = [str(prefix) for prefix in values_of_field(selection.get("tagPrefixList")) if prefix]
    patterns = [
        str(pattern) for pattern in values_of_field(selection.get("tagPatternList")) if pattern
    ]
    if selection.get("tagStatus") != "tagged" or not (prefixes or patterns):
        return False
    return all(map(tag.startswith, prefixes)) and all(
        fnmatchcase(tag, pattern) for pattern in patterns
    )


class ImageBuild(Struct, frozen=True, kw_only=True):
    """How the image is built: for ``platforms`` by buildx, perhaps with another builder, else by
    ``docker build``.
    """

    platforms: tuple[str, ...] = ()
    needs_builder: bool = False
    options: tuple[str, ...] = ()

    def docker_commands(self, image: str, context: str) -> Iterator[tuple[str, ...]]:
        """The words after ``docker`` of the commands that build and push, after the sign-in."""
        named = (
            "--file",
            f"{context}/{DOCKERFILE}",
            "--tag",
            image,
            "--build-arg",
            f"VERSION={__version__}",
        )
        if not self.platforms:
            yield ("build", *named, *self.options, context)
            yield ("push", image)
            return
        if self.needs_builder:
            yield ("buildx", "create", "--name", _BUILDER, "--driver", "docker-container")
        builder = ("--builder", _BUILDER) if self.needs_builder else ()
        platforms = ("--platform", ",".join(self.platforms))
        yield ("buildx", "build", *builder, *platforms, *named, *self.options, "--push", context)


class DockerProgram:
    """The command ``docker`` of this machine.

    Its processes get the variables of ``environment``.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._program = shutil.which("docker", path=environment.get("PATH"))

    def check_docker(self) -> None:
        """Raise TaskProfilerError if Docker is missing or its daemon does not answer."""
        if self._program is None:
            raise TaskProfilerError(
                "Docker is not installed: install it (https://docs.docker.com/engine/install/), "
                "or run this command where Docker is."
            )
        done = self._ask_docker("version", "--format", "{{.Server.Version}}")
        if done.returncode:
            raise TaskProfilerError(
                f"The Docker daemon does not answer ({_failure_text(done)}): start it, or let this "
                "user use it (https://docs.docker.com/engine/install/linux-postinstall/)."
            )

    def plan_build(self, platforms: Sequence[str], options: tuple[str, ...]) -> ImageBuild:
        """Plan the build; without ``platforms``, for both where buildx is installed.

        Raises TaskProfilerError.
        """
        if self._ask_docker("buildx", "version").returncode:
            if platforms:
                raise TaskProfilerError(
                    "--platform needs Docker's plugin buildx: install it "
                    "(https://docs.docker.com/build/), or omit the option to build for this "
                    "machine's platform."
                )
            return ImageBuild(options=options)
        wanted = tuple(platforms) or PLATFORMS
        builder = self._ask_docker("buildx", "inspect").stdout
        is_docker = bool(re.search(r"^Driver:\s*docker$", builder, re.MULTILINE))
        possible = set(
            re.findall(
                r"linux/[a-z0-9/]+",
                " ".join(re.findall(r"^Platforms:(.*)$", builder, re.MULTILINE)),
            )
        )
        missing = [platform for platform in wanted if possible and platform not in possible]
        if missing:
            others = ",".join(platform for platform in wanted if platform in possible)
            remedy = "install an emulator (docker run --privileged --rm tonistiigi/binfmt "
            remedy += "--install all)"
            if others:
                remedy += f", or use --platform {others}"
            raise TaskProfilerError(
                f"This Docker cannot build for {' and '.join(missing)}: {remedy}."
            )
        stores_several = (
            _CONTAINERD_STORE
            in self._ask_docker("info", "--format", "{{json .DriverStatus}}").stdout
        )
        needs_builder = is_docker and not stores_several and len(wanted) > 1
        return ImageBuild(platforms=wanted, needs_builder=needs_builder, options=options)

    @contextmanager
    def signed_in(
        self, registry: str, user: str, password: str, check_stop: Callable[[], object]
    ) -> Iterator["DockerProgram"]:
        """Sign in, and yield the Docker that uses a temporary configuration; ``check_stop`` raises
        where a signal asks for the end.

        Raises TaskProfilerError.
        """
        own = self._environment.get("DOCKER_CONFIG") or Path(
            self._environment.get("HOME", "/"), ".docker"
        )
        with TemporaryDirectory(prefix="task-profiler-docker-") as name:
            _copy_configuration(Path(own), Path(name), registry)
            docker = DockerProgram(self._environment | {"DOCKER_CONFIG": name})
            words = ("login", "--username", user, "--password-stdin", registry)
            done = docker._ask_docker(*words, given=password)
            check_stop()  # a terminal's signal ends Docker, too
            if done.returncode:
                raise TaskProfilerError(
                    f"Docker cannot sign in to {registry}: {_failure_text(done)}."
                )
            yield docker

    def build_and_push(
        self, build: ImageBuild, image: str, context: str, check_stop: Callable[[], object]
    ) -> None:
        """Run the commands, with their output on standard error; ``check_stop`` raises where a
        signal asks for the end.

        Raises TaskProfilerError if one fails.
        """
        if build.needs_builder:
            self._ask_docker("buildx", "rm", _BUILDER)  # left over from a run that was killed
        try:
            for words in build.docker_commands(image, context):
                check_stop()
                code = self._run_docker(words, check_stop)
                if code:
                    check_stop()  # a terminal's signal ends Docker, too
                    name = " ".join(words[: 2 if words[0] == "buildx" else 1])
                    raise TaskProfilerError(
                        f"docker {name} failed with exit code {code}: its output above contains "
                        "the reason."
                    )
        finally:
            if build.needs_builder:
                self._ask_docker("buildx", "rm", _BUILDER)

    def _run_docker(self, words: tuple[str, ...], check_stop: Callable[[], object]) -> int:
        """Run a command, with its output on standard error, and return its exit code. What
        ``check_stop`` raises ends it first, without leaving Docker's plugin buildx behind.
        """
        with subprocess.Popen(  # noqa: S603  see _command
            self._docker_command(words), env=self._environment, stdout=sys.stderr
        ) as process:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_SECONDS)
                try:
                    check_stop()
                except KeyboardInterrupt:
                    process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_END_SECONDS)
                    process.kill()
                    raise

    def _ask_docker(self, *words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        words = self._docker_command(words)
        return subprocess.run(  # noqa: S603  see _command
            words, env=self._environment, input=given, capture_output=True, text=True, check=False
        )

    def _docker_command(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """A list, which no shell reads. ``check_docker()`` has found the program."""
        return (self._program or "docker", *words)


def _failure_text(done: "subprocess.CompletedProcess[str]") -> str:
    return (
        " ".join(done.stderr.split()).rstrip(".")
        or f"exit code {done.returncode}, without a reason"
    )


def _copy_configuration(own: Path, copy: Path, registry: str) -> None:
    """Link to everything in Docker's configuration except ``config.json``, of which the copy
    gets the password.

    An empty credential helper makes Docker store the password of this registry in the file.
    """
    with suppress(OSError):
        for path in own.iterdir():
            if path.name != _CONFIG:
                (copy / path.name).symlink_to(path.absolute())
    settings: dict[str, object] = {}
    with suppress(OSError, ValueError):
        settings |= mapping_or_empty(json.loads((own / _CONFIG).read_bytes()))
    auths = {
        name: value
        for name, value in mapping_or_empty(settings.get("auths")).items()
        if registry not in name
    }
    settings |= {
        "auths": auths,
        "credHelpers": {**mapping_or_empty(settings.get("credHelpers")), registry: ""},
    }
    (copy / _CONFIG).write_text(json.dumps(settings))
    (copy / _CONFIG).chmod(0o600)


@contextmanager
def build_context() -> Iterator[Path]:
    """Yield the folder that Docker builds from.

    An installation's is temporary. Raises TaskProfilerError.
    """
    clone = clone_folder()
    if clone is not None:  # its .dockerignore selects the files
        yield clone
        return
    with TemporaryDirectory(prefix="task-profiler-image-") as name:
        folder = Path(name)
        shutil.copytree(
            _image_folder(),
            folder,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        _pack_wheel(folder)
        yield folder


def clone_folder() -> Path | None:
    """The repository's clone that the code is in; None: an installation."""
    source = _image_folder()
    return source.parent if source.name == DOCKERFILE.parent.name else None


def _image_folder() -> Path:
    return package_data_folder("image", what="The image's Dockerfile is")


def _pack_wheel(folder: Path) -> None:
    """Pack the installed package as a wheel again, so that the image runs the code of this
    installation.
    """
    # E-mail headers, which no other command needs.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        installed = distribution("task-profiler")
    except PackageNotFoundError as error:
        raise TaskProfilerError(
            "The installed package has no metadata: install the package again by pip."
        ) from error
    name = f"task_profiler-{__version__}"
    left_out = _PACKAGE / _LEFT_OUT
    paths = [path for path in sorted(_PACKAGE.rglob("*")) if path.is_file() and path != left_out]
    files = {}
    for path in (*paths, _PACKAGE.with_name(_START)):
        if "__pycache__" not in path.parts:
            files[path.relative_to(_PACKAGE.parent).as_posix()] = path.read_bytes()
    for metadata_file in _METADATA:
        content = installed.read_text(metadata_file) or ""
        files[f"{name}.dist-info/{metadata_file}"] = content.encode()
    record = f"{name}.dist-info/RECORD"
    rows = []
    for file, data in files.items():
        digest = urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{file},sha256={digest},{len(data)}\n")
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    with ZipFile(folder / f"{name}-py3-none-any.whl", "w", ZIP_DEFLATED) as wheel:
        for file, data in files.items():
            wheel.writestr(file, data)
