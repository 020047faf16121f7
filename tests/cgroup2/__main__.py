"""`python3 -m tests.cgroup2 NAME…` in the virtual machine performs scenarios and prints one JSON line for each."""

import sys

from tests.cgroup2 import container_scenarios, scenarios

if __name__ == "__main__":
    container_scenarios.register()
    scenarios.main(sys.argv[1:])
