"""What the relay and the worker share: connections to Postgres and RabbitMQ, probes, metrics, logs, signals.

May import `outbox`. Never knows what a row or a handler means.
"""
