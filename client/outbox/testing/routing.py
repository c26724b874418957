"""Which binding keys let a routing key through, by the rules of a topic exchange."""


def matches(binding_key: str, routing_key: str) -> bool:
    """Whether a queue bound with `binding_key` gets `routing_key`: `*` is one word, `#` any number."""
    words = _words(routing_key)
    # How many words the pattern may have used up so far; `#` leaves more than one possibility.
    used = {0}
    for part in _words(binding_key):
        if part == "#":
            used = set(range(min(used), len(words) + 1))
        else:
            used = {n + 1 for n in used if n < len(words) and part in ("*", words[n])}
        if not used:
            return False
    return len(words) in used


def _words(key: str) -> list[str]:
    # To RabbitMQ an empty key has no words, while two dots in a row have an empty word between them.
    return key.split(".") if key else []
