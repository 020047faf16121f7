"""The errors that a user may see. Each message is one sentence: what happened and what to do."""

# Shells and Docker report the end by a signal as 128 + its number.
FIRST_SIGNAL_EXIT_CODE = 128


class TaskProfilerError(Exception):
    """Something could not be done."""

    exit_code = 1


class UsageError(TaskProfilerError):
    """The command line or the settings cannot work as given."""

    exit_code = 2
