"""Where past runs are read from: files, a cluster, CloudWatch Logs."""
