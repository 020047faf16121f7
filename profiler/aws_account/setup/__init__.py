"""From an installed wheel to an account that reports: the monitor's image, the forwarder's
stack, and the steps.
"""
