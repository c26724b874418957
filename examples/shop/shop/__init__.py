"""A small shop that tells of its orders through an outbox."""
