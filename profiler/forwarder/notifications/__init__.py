"""Notices of stopped tasks, and the channels that they are posted to."""
