"""The CustomResourceDefinitions, made from the types in `outbox_operator.resources`.

Pure but for `__main__`, which writes the files.
"""

from outbox_operator.crds.definition import DEFINITIONS, Definition

__all__ = ["DEFINITIONS", "Definition"]
