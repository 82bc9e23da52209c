"""Mutation testing of the mathematical core: `make mutants`.

Each mutant is the code with one small mistake. A test has to fail on it, or it stands in
``equivalent.yaml`` with the reason why it computes the same.
"""
