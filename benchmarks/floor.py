"""The least that a sampler in Python can cost: requests and json, once a second, nothing kept.

python -m benchmarks.floor ADDRESS
"""

import json
import sys
import time

import requests


def main() -> None:
    """Ask for the stats each second until killed."""
    session = requests.Session()
    next_tick = time.monotonic()
    while True:
        json.loads(session.get(sys.argv[1] + "/task/stats", timeout=0.9).content)
        next_tick += 1
        time.sleep(max(next_tick - time.monotonic(), 0))


if __name__ == "__main__":
    main()
