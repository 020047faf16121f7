"""The batch's own processes, where the task shares its process ids: peaks, kills, the largest ones."""
