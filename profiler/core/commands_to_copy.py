"""Command lines of this program, and of AWS's, for people to copy: they run from any shell with
credentials, so they name the source of the runs and the Region.
"""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

from profiler.core.ecs_terms import compute_environment_of
from profiler.core.index_names import DEFAULT_PREFIX
from profiler.core.optional_math import first_known, known, known_members
from profiler.core.text import on_one_line

_NAME = "task-profiler"
# The options for AWS that this command was given. The commands that it prints have them, too:
# without --profile, they would change another account.
_repeated: dict[str, str] = {}


class NameArgument(str):
    """A name in the place of an argument, such as a family's. AWS lets it begin with a hyphen, and
    a family ``--register`` would be the option of this name: such an argument comes behind ``--``.
    """

    __slots__ = ()

    @property
    def looks_like_option(self) -> bool:
        return self.startswith("-")


@contextmanager
def repeated_option(name: str, value: str) -> Iterator[None]:
    """Repeat an option for AWS, such as ``--profile``, in the commands that the block prints."""
    _repeated[name] = value
    try:
        yield
    finally:
        _repeated.pop(name, None)


def _aws_options(region: str | None) -> Mapping[str, str | None]:
    """The options that select the Region and the account."""
    return {**_repeated, **known_members({"--region": region})}


def option_words(options: Mapping[str, str | None]) -> tuple[str, ...]:
    """The words of the options that have a value: each name and its value."""
    return tuple(chain.from_iterable(known_members(options).items()))


def aws_command_line(*words: str, region: str | None = None) -> str:
    """A command of AWS's command line with these words, quoted for a shell, on one line."""
    where = option_words(_aws_options(region))
    return shlex.join(on_one_line(word) for word in ("aws", *words, *where))


def container_insights_command(cluster: str, region: str | None = None) -> str:
    """The command that turns Container Insights on for a cluster, also for one of AWS Batch's."""
    environment = compute_environment_of(cluster)
    if environment is None:
        words = ("ecs", "update-cluster-settings", "--cluster", cluster)
        setting = "name=containerInsights,value=enabled"
        return aws_command_line(*words, "--settings", setting, region=region)
    words = ("batch", "update-compute-environment", "--compute-environment", environment)
    return aws_command_line(*words, "--ecs-settings", "containerInsights=ENABLED", region=region)


def template_command(address: str, prefix: str) -> str:
    """The command that installs the index templates of a prefix into a search cluster."""
    words = ("kibana", "import", "--elasticsearch", address)
    return command_line(*words, *(() if prefix == DEFAULT_PREFIX else ("--prefix", prefix)))


def command_line(
    *words: str,
    log_group: str | None = None,
    source: str | None = None,
    region: str | None = None,
    for_others: bool = False,
) -> str:
    """The command with these words, quoted for a shell, on one line: names of AWS's in the place of
    arguments are ``NameArgument``. ``for_others``: for people who may have other profiles than this
    command's.

    ``log_group``: where its runs are read; else ``source``, a SOURCE of ``--from``. None: the
    command has a source of its own, or reads no runs. A log group is preferred to the address of a
    search cluster, because the reader can know the cluster by another name and needs a sign-in
    for it; the AWS credentials that show the group are the same as the command's.
    """
    read = first_known(known("logs:{}".format, log_group), source)
    of_aws = {"--region": region} if for_others else _aws_options(region)
    where = option_words({"--from": read, **of_aws})
    last = [word for word in words if isinstance(word, NameArgument) and word.looks_like_option]
    first = [
        word for word in words if not (isinstance(word, NameArgument) and word.looks_like_option)
    ]
    end = ("--", *last) if last else ()
    return shlex.join(on_one_line(word) for word in (_NAME, *first, *where, *end))
