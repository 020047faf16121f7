"""`task-profiler` whose `run` may use twenty times its usual share of the CPU.

On an emulated processor a reading takes seconds of CPU time. The usual share then allows the next
reading minutes later, on a busy host half an hour: the commands that wait for two readings made the
tests take hours.
"""

from profiler.cli import main
from profiler.local_run import sampling_pace

_FACTOR = 20
_SHARES = ("_CPU_PERCENT", "_QUICK_PERCENT", "_TICK_PERCENT", "_FINE_TICK_PERCENT")

if __name__ == "__main__":
    for name in _SHARES:
        setattr(sampling_pace, name, _FACTOR * getattr(sampling_pace, name))
    main()
