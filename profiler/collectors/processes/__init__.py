"""The batch's own processes, where the task shares its process IDs: peaks, kills, the largest ones."""
