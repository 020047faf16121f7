"""What a run looks like on a terminal: the end of ``run`` and the page of ``show``, drawn from
the same parts.
"""
