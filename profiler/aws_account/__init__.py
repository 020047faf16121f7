"""What the commands read and change in an AWS account: task definitions, schedules, log groups,
roles and reports.
"""
