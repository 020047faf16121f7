"""The base of all packages: clock, timestamps, signals, log, errors, files, threads.

Imports no other package.
"""
