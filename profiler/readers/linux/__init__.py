"""Processes and the machine, read from ``/proc`` and system calls."""
