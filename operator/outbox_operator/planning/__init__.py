"""What follows from a resource and from what was seen of the world: actions, pods, findings, a status.

Pure: no module here talks to anybody, and none of the libraries that could is imported.
"""
