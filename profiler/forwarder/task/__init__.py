"""A stopped task: its event, its containers, its outcome, and its report in CloudWatch Logs."""
