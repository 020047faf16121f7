"""What everything else uses: clock, timestamps, signals, log, errors, files, threads. Imports nothing of ours."""
