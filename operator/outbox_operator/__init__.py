"""From custom resources to broker objects and Deployments.

May import `outbox`, and of `outbox_core` only probes, logs and signals. Never moves a message.
"""
