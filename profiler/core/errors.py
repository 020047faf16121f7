"""The errors that a person may see, each a sentence that says what to do.

TaskProfilerError            exit code 1: something could not be done
└── UsageError               exit code 2: the call itself has to change
"""


class TaskProfilerError(Exception):
    """Something could not be done; the message says what happened and what to do."""

    exit_code = 1


class UsageError(TaskProfilerError):
    """The command or its settings cannot work as given."""

    exit_code = 2
