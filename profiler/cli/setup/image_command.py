"""``task-profiler setup image``: builds the monitor's image and pushes it to Amazon ECR."""

import os
import re
import shlex
from collections.abc import Iterator

import click

from profiler.account_setup.image_repository import ImageRepository
from profiler.cli.options import aws_options
from profiler.cli.printing import warn
from profiler.cli.wiring.aws_options import open_clients
from profiler.core.ecs_terms import MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.version import __version__

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)


@click.command("image", epilog="Example: task-profiler setup image --region eu-west-1")
@click.argument("options", metavar="[DOCKER_OPTION]...", nargs=-1)
@click.option("--repository", metavar="NAME", default=MONITOR_REPOSITORY, show_default=True, help="ECR repository.")
@click.option("--tag", metavar="TAG", default=__version__, help="The image's tag (default: this version).")
@click.option(
    "--platform",
    "platforms",
    metavar="PLATFORM",
    multiple=True,
    help="Build for this platform with buildx (default: linux/amd64 and linux/arm64 with buildx, else this machine's). "
    "Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Print the commands, without running them.")
@aws_options
def image_(
    *,
    options: tuple[str, ...],
    repository: str,
    tag: str,
    platforms: tuple[str, ...],
    dry_run: bool,
    region: str | None,
    profile: str | None,
) -> None:
    """Build the monitor's image, push it to Amazon ECR, and print its URI.

    A missing repository is created, with immutable tags. A tag that exists is not pushed again.
    DOCKER_OPTIONs after -- go to docker build, such as --build-arg BASE_IMAGE=python:3.13-slim.
    """
    if not _TAG.fullmatch(tag):
        raise UsageError(f"--tag {tag!r} is no image tag: use letters, digits, '_', '.' and '-'.")
    ecr = ImageRepository(open_clients(region, profile)("ecr"), repository)
    uri = ecr.uri()
    if uri is not None and ecr.has_tag(tag):
        click.echo(f"In ECR already: {repository}:{tag}", err=True)
    elif dry_run:
        for line in _dry_run(ecr, uri, tag, platforms, options, profile):
            click.echo(line)
        return
    else:
        uri = _push(ecr, uri, tag, platforms, options)
    for warning in ecr.warnings(tag):
        warn(warning)
    click.echo(f"{uri}:{tag}")


def _push(ecr: ImageRepository, uri: str | None, tag: str, platforms: tuple[str, ...], options: tuple[str, ...]) -> str:
    """Build and push the image; returns the repository's URI."""
    from profiler.account_setup.image_context import build_context  # as below
    from profiler.account_setup.image_docker import Docker  # subprocess, not needed if the image is there

    docker = Docker(os.environ)
    docker.check()
    build = docker.plan(platforms, options)
    if not build.platforms:
        warn("Docker's plugin buildx is not installed, so the image is for this machine's processor only.")
    login = ecr.login()
    if uri is None:
        uri = ecr.create()
        click.echo(f"Created the ECR repository {ecr.name}", err=True)
    with build_context() as context, docker.signed_in(login) as signed_in:
        signed_in.build_and_push(build, f"{uri}:{tag}", str(context))
    return uri


def _dry_run(
    ecr: ImageRepository,
    uri: str | None,
    tag: str,
    platforms: tuple[str, ...],
    options: tuple[str, ...],
    profile: str | None,
) -> Iterator[str]:
    """The commands as a shell would run them. The build context of an installation does not exist before the build."""
    from profiler.account_setup.image_context import clone_folder  # as above
    from profiler.account_setup.image_docker import PLATFORMS, Docker, ImageBuild  # as above

    docker = Docker(os.environ)
    try:
        docker.check()
    except TaskProfilerError as error:
        warn(f"{error} The commands are those for a Docker with buildx.")
        wanted = platforms or PLATFORMS
        build = ImageBuild(platforms=wanted, needs_builder=len(wanted) > 1, options=options)
    else:
        build = docker.plan(platforms, options)
    aws = ["--region", ecr.region, *(["--profile", profile] if profile else [])]
    registry = ecr.login().registry
    if uri is None:
        words = ["--repository-name", ecr.name, "--image-tag-mutability", "IMMUTABLE"]
        yield shlex.join(["aws", "ecr", "create-repository", *words, *aws])
    password = shlex.join(["aws", "ecr", "get-login-password", *aws])
    yield f"{password} | docker login --username AWS --password-stdin {registry}"
    image = f"{uri or f'{registry}/{ecr.name}'}:{tag}"
    for command in build.commands(image, str(clone_folder() or "CONTEXT")):
        yield shlex.join(["docker", *command])
