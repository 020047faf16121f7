"""Call stacks of Python processes, by py-spy in its mode ``--nonblocking``: it only reads memory
and stops nothing.
"""
