"""The sidecar: sample until the batch ends or the task is stopped, then report."""
