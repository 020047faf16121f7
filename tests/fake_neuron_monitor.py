"""A neuron-monitor that plays scenarios: a real program of the standard library alone.

``install`` puts it into a folder, with ``scenario.json`` beside it: a list of lives, each a list
of steps. Every start plays the next life, the last one for ever:

    {"line": {…}}        print it as one JSON line         {"text": "…"}      print just that
    {"pad_to": N, …}     make a line so many bytes long    {"complain": "…"}  print it on stderr
    {"ignore_sigterm": true}    {"stay": true}    {"exit": N}    {"repeat": {…}}  print it every
    second, for ever {"burn_seconds": N}  use so much CPU time    {"let_go": "…"}   end the command
    that reads this FIFO

A life that is over exits with 0. Each start adds a line to ``starts.jsonl``: the pid, and the
configuration it was given. Like the real one it refuses a configuration with an unknown group,
and unlike it one with a period that the real one would silently misread.
"""

import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_RUNTIME_GROUPS = {
    "neuroncore_counters",
    "memory_used",
    "neuron_runtime_vcpu_usage",
    "execution_stats",
}
_NODE_GROUPS = {"vcpu_usage", "memory_info", "neuron_hw_counters"}


def install(folder: Path, *lives: list[dict[str, Any]]) -> Path:
    """The program's path; it runs under the interpreter of the tests."""
    (folder / "scenario.json").write_text(json.dumps({"lives": lives}))
    program = folder / "neuron-monitor"
    program.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def starts(program: Path) -> list[dict[str, Any]]:
    """What each start so far noted: ``pid``, ``config`` and ``refused``."""
    notes = program.with_name("starts.jsonl")
    return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


def config_error(config: Any) -> str | None:
    """What is wrong with a configuration, None if nothing."""
    periods = [config.get("period")]
    for runtime in config["neuron_runtimes"]:
        if "tag_filter" not in runtime:
            return "a runtime is not said as this version says it"
        unknown = {group["type"] for group in runtime["metrics"]} - _RUNTIME_GROUPS
        if unknown:
            return f"unknown metric groups {sorted(unknown)}"
        periods += [group["period"] for group in runtime["metrics"] if "period" in group]
    for group in config["system_metrics"]:
        if group["type"] not in _NODE_GROUPS:
            return f"unknown metric group {group['type']}"
        periods += [group["period"]] if "period" in group else []
    wrong = [period for period in periods if not re.fullmatch(r"[1-9][0-9]*s", str(period))]
    return f"period {wrong[0]!r}" if wrong else None


def play(step: dict[str, Any]) -> None:
    if "line" in step:
        line = json.dumps(step["line"])
        say(line[:-1] + " " * (step.get("pad_to", 0) - len(line) - 1) + "}\n")
        return
    ((name, value),) = step.items()
    _STEPS[name](value)


def _complain(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _repeat(document: Any) -> NoReturn:
    while True:
        play({"line": document})
        time.sleep(1)


def _burn(seconds: float) -> None:
    while time.process_time() < seconds:
        pass


def stay() -> NoReturn:
    while True:
        signal.pause()


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


_STEPS: dict[str, Callable[[Any], object]] = {
    "text": say,
    "complain": _complain,
    "ignore_sigterm": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "stay": lambda _: stay(),
    "repeat": _repeat,
    "burn_seconds": _burn,
    "let_go": lambda fifo: Path(fifo).write_text(""),  # of a command that reads it
    "exit": sys.exit,
}


def main() -> None:
    folder = Path(sys.argv[0]).parent
    scenario = json.loads((folder / "scenario.json").read_text())
    flag, path = sys.argv[1:]
    config = json.loads(Path(path).read_text()) if flag in ("-c", "--config-file") else None
    refused = config_error(config)
    with (folder / "starts.jsonl").open("a+") as notes:
        notes.seek(0)
        earlier = len(notes.readlines())
        terminal_or_file = os.path.realpath("/proc/self/fd/0")
        note = {"pid": os.getpid(), "config": config, "refused": refused, "stdin": terminal_or_file}
        notes.write(json.dumps(note) + "\n")
    if refused is not None:
        sys.exit(f"invalid configuration: {refused}")
    lives = scenario["lives"]
    for step in lives[min(earlier, len(lives) - 1)]:
        play(step)


if __name__ == "__main__":
    main()
