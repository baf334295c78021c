"""The doors that carry a name of our own: the command, the pytest plugin, and how the four packages show themselves.

``audit``, ``mechanisms``, ``distinguishers`` and ``guarantees`` are common words. Whatever runs merely because the
wheel is installed starts here and imports none of them until it is used.
"""
