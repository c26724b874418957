"""Listeners in the code as OutboxListener manifests, and where the two differ. Pure."""
