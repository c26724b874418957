"""`outbox demo`: half a minute of the shop example on `outbox dev`, and an account of it that must add up."""
