"""Call stacks of the batch's Python processes, read by py-spy.

Always in its mode ``--nonblocking``, which only reads the memory of a process: no process is ever stopped.
"""
