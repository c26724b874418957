"""The headers that a message carries on the wire beside the application's own."""

TRACKING_IDS = "x-outbox-tracking-ids"
"""The ids of the emits that led to this message, its own last: JSON text."""
ROUTING_KEY = "x-outbox-routing-key"
"""The routing key it was emitted with, which a delay tier and a dead-letter exchange replace."""
ATTEMPT = "x-outbox-attempt"
"""Which attempt at handling it this is, from 1. The broker's own count has to do with redelivery only."""
