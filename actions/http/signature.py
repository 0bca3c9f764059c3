"""How a receiver knows that a request is the node's: DDMQ's token (R27, W63), and a signature over the whole. Pure.

The signature is HMAC-SHA256, keyed by the secret in UTF-8, over six lines joined by a line feed each:

    v1
    time            seconds since the Unix epoch, decimal
    key id
    topic
    query           of the request's URL as sent, without the question mark; empty where there is none
    body            as sent; empty with GET

It is in hex behind `v1=` in `Pyddmq-Signature`; `Pyddmq-Time`, `Pyddmq-Key-Id` and `Pyddmq-Topic` have the rest.
No part but the last can hold a line feed, so no two requests have the same text. docs/actions-push.md has a receiver's
side in three languages.
"""

from __future__ import annotations

import hmac

SIGNATURE, TIME, KEY_ID, TOPIC = "Pyddmq-Signature", "Pyddmq-Time", "Pyddmq-Key-Id", "Pyddmq-Topic"


def sign(secret: bytes, *, time_s: int, key_id: str, topic: str, query: str, body: bytes) -> str:
    """Return the value of `Pyddmq-Signature`."""
    head = f"v1\n{time_s}\n{key_id}\n{topic}\n{query}\n".encode()
    return "v1=" + hmac.digest(secret, head + body, "sha256").hex()
