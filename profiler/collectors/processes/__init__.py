"""The batch's own processes, where the task shares its process namespace: peaks, kills, the
largest ones.
"""
