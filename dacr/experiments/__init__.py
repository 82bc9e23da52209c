"""Experiments as DVC and git know them: reading, comparing, verifying, sweeps, tables."""
