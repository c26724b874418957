"""The groups of the `outbox` command: arguments read, a plain module called, the result shown."""
