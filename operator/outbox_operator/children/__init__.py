"""The Kubernetes objects of a resource: which there should be, what is in them, and what their state means.

Pure: a manifest is a value, and nothing here talks to the API server. May import the resources, the findings
and, of the core, only what masks passwords.
"""
