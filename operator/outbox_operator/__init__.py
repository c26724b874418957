"""From custom resources to broker objects and Deployments.

May import `outbox`, and of `outbox_core` the probes, logs, signals and what concerns databases: whether a
table will do can only be seen by connecting, and the words for what is wrong with a database exist once.
Never speaks AMQP, and never moves a message.
"""
