"""The Kubernetes API as the operator uses it: thin.

Nothing here decides what should exist. `kinds`, `errors`, `fence` and `store` are pure; `connection` is the
only module that opens one, `client` says what can be asked, and the rest watch, elect and tell.
"""
