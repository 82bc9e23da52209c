"""Scenarios in the forms of other libraries.

``stream``, ``avalanche_benchmark`` and ``continuum_scenarios`` know nothing of dacr: an export puts
them beside the data, so that these can be used where dacr is not installed.
"""

FORMS = ("csv", "avalanche", "continuum", "torch")
