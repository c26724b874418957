"""How relays and listeners are doing, and what looks wrong: looked at, then judged by pure functions."""
