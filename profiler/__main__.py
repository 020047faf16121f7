"""``python -m profiler`` runs the command ``task-profiler``."""

from profiler.cli import main

if __name__ == "__main__":
    main()
