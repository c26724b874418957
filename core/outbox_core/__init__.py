"""What the programs share: connections to Postgres and RabbitMQ, the backlog, probes, metrics, logs, signals.

May import `outbox`. Never moves a row and never calls a handler.
"""
