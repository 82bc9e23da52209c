"""The commands of ``dacr``: a module has ``add_arguments(parser)`` and ``run(arguments)``."""
