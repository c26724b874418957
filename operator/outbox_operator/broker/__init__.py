"""RabbitMQ as the operator sees it, through the management API.

Values are in `access`, `snapshot` and `actions`; `topology_plan`, `removal_plan` and `user_plan` tell which
actions follow from a snapshot; `calls`, `answers` and `listings` know what the management API is asked and
says. All of these are pure. `connection` is the only module that calls, `management` looks and acts through
it, and `vhosts` shares what was seen and done among all resources of a virtual host.
"""
