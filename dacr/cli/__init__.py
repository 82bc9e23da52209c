"""The commands of ``dacr``, one module each.

A module has ``HELP`` (one line), ``add_arguments(parser)`` and ``run(arguments)``. It imports what
is heavy inside ``run``, so that ``dacr --help`` answers at once.
"""
