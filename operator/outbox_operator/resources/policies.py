"""Choices that both kinds of resource offer."""

from typing import Literal, TypeAlias

DeletionPolicy: TypeAlias = Literal["Retain", "DeleteIfEmpty", "Delete"]
