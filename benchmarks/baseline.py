"""A minimal sampler, the baseline for the monitor's cost: requests and json once a second,
without aggregation.

python -m benchmarks.baseline ADDRESS
"""

import json
import sys
import time

import requests


def main() -> None:
    """Read the stats each second until killed."""
    session = requests.Session()
    next_tick = time.monotonic()
    while True:
        json.loads(session.get(sys.argv[1] + "/task/stats", timeout=0.9).content)
        next_tick += 1
        time.sleep(max(next_tick - time.monotonic(), 0))


if __name__ == "__main__":
    main()
