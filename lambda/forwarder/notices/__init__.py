"""Notices of ended tasks, and the channels they go to."""
