"""From the broker to the handler: call, retry, dead-letter.

May import `outbox` and `outbox_core`. Never reads the outbox table.
"""
