"""What an API server and kubectl say of a manifest that they do not take, without either. Pure.

The schema is the one that a cluster gets, the rules are those of the models; here are only the words. Left
out is what the API server adds: that it did not look at the rest, and a second complaint about replicas.
"""

from outbox_cli.dev.admission.refusals import MODELS, refusals, without_nulls

__all__ = ["MODELS", "refusals", "without_nulls"]
