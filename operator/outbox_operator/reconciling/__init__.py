"""Looking at a resource again and again until the world is as it says: observe, plan, carry out, tell.

Every event, every retry and every check for drift leads to the same `reconcile`; none cares what changed.
"""
