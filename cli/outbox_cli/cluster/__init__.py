"""The resources of a cluster, as the way to databases and brokers. They are read, and never written."""
