"""Asking a server whether it is ready, in the first bytes of its own protocol."""

import base64
import socket
import struct
import urllib.error
import urllib.request
from http.client import HTTPException

_TIMEOUT_SECONDS = 2.0
_OK = 200


def postgres_answers(port: int, user: str) -> bool:
    """Whether Postgres asks for a password: while it starts up or recovers it sends an error instead."""
    parameters = b"user\0" + user.encode() + b"\0database\0postgres\0\0"
    protocol_3 = struct.pack("!i", 196608)
    packet = struct.pack("!i", 8 + len(parameters)) + protocol_3 + parameters
    return _reply(port, packet) == b"R"


def amqp_answers(port: int) -> bool:
    """Whether RabbitMQ opens the conversation with a method frame."""
    return _reply(port, b"AMQP\x00\x00\x09\x01") == b"\x01"


def management_answers(port: int, user: str, password: str) -> bool:
    """Whether the management API lets us in."""
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/whoami", headers={"Authorization": f"Basic {credentials}"}
    )
    # Without an empty ProxyHandler, http_proxy in the environment would be asked about 127.0.0.1.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            return bool(response.status == _OK)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except (OSError, HTTPException):
        return False


def _reply(port: int, greeting: bytes) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS) as connection:
            connection.sendall(greeting)
            return connection.recv(1)
    except OSError:
        return b""
