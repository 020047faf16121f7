"""`python3 -m tests.cgroup2 NAME…` in the virtual machine performs scenarios and prints one JSON line for each."""

import json
import sys
import time
import traceback
from typing import Any

from tests.cgroup2 import container_scenarios, scenarios

if __name__ == "__main__":
    known = {**scenarios.SCENARIOS, **container_scenarios.SCENARIOS}
    for name in sys.argv[1:]:
        started = time.monotonic()
        try:
            answer: dict[str, Any] = {"results": known[name]()}
        except Exception:  # noqa: BLE001  one error must not stop the other scenarios
            answer = {"error": traceback.format_exc()}
        seconds = round(time.monotonic() - started, 1)
        print(json.dumps({"scenario": name, "seconds": seconds, **answer}), flush=True)  # noqa: T201  the results
