"""The paper's tables and figures as sets of experiments: planned, run, collected and shown."""
