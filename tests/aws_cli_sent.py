"""Run by the interpreter of an AWS CLI: which of these command lines it would send to AWS.

Reads a JSON list of argument lists, prints a JSON list of what each came to: an empty text if all of
it was understood and a request was about to leave, else what the CLI said. Nothing leaves this machine.
"""

import contextlib
import io
import json
import sys
from importlib import import_module

INTERCEPTED = "nothing is wrong: this is where the request would leave"


class RequestInterceptedError(Exception):
    """Instead of the request."""


def stop(**_: object) -> None:
    raise RequestInterceptedError(INTERCEPTED)


def main() -> None:
    said = []
    for words in json.load(sys.stdin):
        driver = import_module("awscli.clidriver").create_clidriver()  # not among this project's own libraries
        driver.session.register("before-send", stop)
        output = io.StringIO()
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            driver.main(words)
        said.append("" if INTERCEPTED in output.getvalue() else output.getvalue() or "nothing was sent")
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
