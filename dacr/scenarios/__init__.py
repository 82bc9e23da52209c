"""The benchmarks as a library: any scenario as torch data sets, without git and without DVC.

``dacr.scenario`` is in ``opening``. What is light (names, schedules) loads no torch.
"""
