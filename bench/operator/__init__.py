"""The operator's figures: a real API server and broker, and the operator as a process with its own rights.

The control plane is the one of `tests/operator`: to start a second one here in other words would measure
nothing else.
"""
