"""The reference of the custom resources, made from the schemas that the CRDs are made from.

Pure but for `__main__`, which writes the page.
"""
