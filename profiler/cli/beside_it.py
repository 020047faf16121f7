"""What a local run finds out about itself beside the command: where, by whom, at which commit."""

import os
import pwd
from pathlib import Path

from profiler.local.labels import build_default_labels
from profiler.sources.working_folder import git_commit


def find_labels() -> dict[str, str]:
    """Host, user and git commit of the working folder, as far as they can be told."""
    try:
        commit = git_commit(Path.cwd())
    except OSError:
        commit = None
    return build_default_labels(host=os.uname().nodename, user=_user(), git_commit=commit)


def _user() -> str:
    """The user's name, or the number of one without a name, as in many containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
