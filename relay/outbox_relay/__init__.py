"""From the table to the broker: claim, publish, settle.

May import `outbox` and `outbox_core`. Never calls a listener.
"""
