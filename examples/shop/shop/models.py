"""What the shop's messages say."""

from decimal import Decimal
from typing import Literal

from pydantic import BaseModel


class Order(BaseModel):
    """An order, as it was placed."""

    id: int
    """Its number."""
    email: str
    """Who placed it."""
    total: Decimal
    """What it costs."""
    payment: Literal["card", "invoice"]
    """How it is paid."""
