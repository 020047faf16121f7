"""A neuron-monitor that plays scenarios: a real program of the standard library alone.

``install`` puts it into a folder, with ``scenario.json`` beside it: a list of lives, each a list
of steps. Every start plays the next life, the last one for ever:

    {"line": {…}}        print it as one JSON line         {"text": "…"}      print just that
    {"pad_to": N, …}     make a line so many bytes long    {"complain": "…"}  print it on stderr
    {"ignore_sigterm": true}    {"stay": true}    {"exit": N}    {"repeat": {…}}  print it every second, for ever
    {"leave_child": true}       leave a process behind that holds the output open; its number is in ``child.pid``

A life that is over exits with 0. Each start adds a line to ``starts.jsonl``: the pid, and the
configuration it was given. Like the real one it refuses a configuration with an unknown group,
and unlike it one with a period that the real one would silently misread. ``"age"`` beside the lives
says which names it knows: 0 today's, 1 those of 2022, 2 those of runtime 1.x.
"""

import json
import os
import re
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

_RUNTIME_GROUPS = (
    {"neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats"},
    {"neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "inference_stats"},
    {"neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "inference_stats", "hw_counters"},
)
_NODE_GROUPS = {"vcpu_usage", "memory_info", "neuron_hw_counters"}


def install(folder: Path, *lives: list[dict[str, Any]], age: int = 0) -> Path:
    """The program's path; it runs under the interpreter of the tests."""
    (folder / "scenario.json").write_text(json.dumps({"age": age, "lives": lives}))
    program = folder / "neuron-monitor"
    program.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def starts(program: Path) -> list[dict[str, Any]]:
    """What each start so far noted: ``pid``, ``config`` and ``refused``."""
    notes = program.with_name("starts.jsonl")
    return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


def config_error(config: Any, age: int) -> str | None:
    """What is wrong with a configuration, None if nothing."""
    periods = [config.get("period")]
    for runtime in config["neuron_runtimes"]:
        if ("address" if age == 2 else "tag_filter") not in runtime:
            return "a runtime is not said as this version says it"
        unknown = {group["type"] for group in runtime["metrics"]} - _RUNTIME_GROUPS[age]
        if unknown:
            return f"unknown metric groups {sorted(unknown)}"
        periods += [group["period"] for group in runtime["metrics"] if "period" in group]
    for group in config["system_metrics"]:
        if group["type"] not in _NODE_GROUPS - ({"neuron_hw_counters"} if age == 2 else set()):
            return f"unknown metric group {group['type']}"
        periods += [group["period"]] if "period" in group else []
    wrong = [period for period in periods if not re.fullmatch(r"[1-9][0-9]*s", str(period))]
    return f"period {wrong[0]!r}" if wrong else None


def play(step: dict[str, Any]) -> None:
    """One step of a life."""
    if "line" in step:
        line = json.dumps(step["line"])
        say(line[:-1] + " " * (step.get("pad_to", 0) - len(line) - 1) + "}\n")
    elif "text" in step:
        say(step["text"])
    elif "complain" in step:
        sys.stderr.write(step["complain"])
        sys.stderr.flush()
    elif "ignore_sigterm" in step:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif "stay" in step:
        stay()
    elif "repeat" in step:
        while True:
            play({"line": step["repeat"]})
            time.sleep(1)
    elif "leave_child" in step:
        child = os.fork() or stay()
        Path(sys.argv[0]).with_name("child.pid").write_text(str(child))
    elif "exit" in step:
        sys.exit(step["exit"])
    else:
        raise AssertionError(f"no such step: {step}")


def stay() -> NoReturn:
    """Do nothing until a signal ends it."""
    while True:
        signal.pause()


def say(text: str) -> None:
    """Print it now."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> None:
    """Play the next life."""
    folder = Path(sys.argv[0]).parent
    scenario = json.loads((folder / "scenario.json").read_text())
    flag, path = sys.argv[1:]
    config = json.loads(Path(path).read_text()) if flag in ("-c", "--config-file") else None
    refused = config_error(config, scenario["age"])
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
