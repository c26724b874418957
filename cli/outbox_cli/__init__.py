"""The `outbox` command for people, and the private Postgres and RabbitMQ it runs on.

May import every other package; nothing imports it.
"""
