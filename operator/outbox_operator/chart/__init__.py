"""What of the Helm chart follows from the operator's code: values, roles, definitions, dashboards.

Pure but for `__main__`, which writes the files. The operator does not need it to run.
"""
