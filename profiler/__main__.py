"""``python -m profiler`` is ``task-profiler``."""

from profiler.cli import main

if __name__ == "__main__":
    main()
