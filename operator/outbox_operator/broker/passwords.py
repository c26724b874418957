"""Passwords as RabbitMQ keeps them: some salt, then the hash of salt and password, in base64. Pure."""

import base64
import binascii
import hashlib
import hmac

SHA256 = "rabbit_password_hashing_sha256"
"""How RabbitMQ hashes unless it is told otherwise."""

_ALGORITHMS = {SHA256: hashlib.sha256, "rabbit_password_hashing_sha512": hashlib.sha512}
_SALT_BYTES = 4


def hashed(password: str, salt: bytes) -> str:
    """What RabbitMQ keeps of `password`, hashed with SHA-256."""
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def matches(password: str, kept: str, hashing: str) -> bool:
    """Whether `kept` comes from `password`, as far as can be told: of another hashing it is taken to."""
    algorithm = _ALGORITHMS.get(hashing)
    if algorithm is None:
        return True
    try:
        decoded = base64.b64decode(kept, validate=True)
    except binascii.Error:
        return False
    salt, digest = decoded[:_SALT_BYTES], decoded[_SALT_BYTES:]
    return hmac.compare_digest(digest, algorithm(salt + password.encode()).digest())
