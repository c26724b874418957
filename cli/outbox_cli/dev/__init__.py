"""`outbox dev`: the two custom resources on this machine, without a cluster.

The law of this package: what a manifest means is said by `outbox_operator` alone. Its models read it, its
plan says what the broker needs and what a container is given, its findings say how things are. Here is only
what a cluster has around that: the API server's validation (`validation`), the kubelet's environments
(`containers`) and processes (`child`), and a screen.
"""
