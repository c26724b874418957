"""Measurements that belong to the project's promises, each beside its baseline in the same run.

Machines differ and are noisy, so a goal is a ratio wherever it can be one. Run it with `make bench`.
"""
