"""dacr: general incremental learning with domain-aware categorical representations.

The packages follow the paper: ``data`` (problem setup) → ``model`` → ``learning`` (adaptation and
memory) → ``methods`` → ``evaluation``.
"""
