"""Run by the interpreter of an AWS CLI: which of these command lines it would send to AWS.

Each line of standard input is a JSON object with a folder and a list of argument lists; its answer
is a line with a JSON list of texts: empty if all of a command was understood and a request was
about to leave, else what the CLI said. Nothing leaves this machine.
"""

import contextlib
import io
import json
import os
import sys
from importlib import import_module
from typing import Any

INTERCEPTED = "nothing is wrong: this is where the request would leave"


class RequestInterceptedError(Exception):
    """Instead of the request."""


def stop(**_: object) -> None:
    raise RequestInterceptedError(INTERCEPTED)


def said_of(words: list[str], loader: Any) -> str:
    driver = import_module(
        "awscli.clidriver"
    ).create_clidriver()  # not among this project's own libraries
    driver.session.register_component("data_loader", loader)
    driver.session.register("before-send", stop)
    output = io.StringIO()
    with (
        contextlib.redirect_stderr(output),
        contextlib.redirect_stdout(output),
        contextlib.suppress(SystemExit),
    ):
        driver.main(words)
    return "" if INTERCEPTED in output.getvalue() else output.getvalue() or "nothing was sent"


def main() -> None:
    # The description of an API is megabytes of JSON: all commands share it.
    loader = (
        import_module("awscli.clidriver").create_clidriver().session.get_component("data_loader")
    )
    for line in sys.stdin:
        asked = json.loads(line)
        os.chdir(asked["folder"])
        os.environ["HOME"] = asked["folder"]
        sys.stdout.write(json.dumps([said_of(words, loader) for words in asked["commands"]]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
