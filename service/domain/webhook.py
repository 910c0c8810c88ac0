"""Webhooks: who is told when a job changes its state, how it is signed, when it is told again. Pure.

The form is that of standardwebhooks.com, so that a receiver may verify it with a library.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlsplit

SECRET_PREFIX = "whsec_"
URL_LIMIT = 2000
# 5 s after the first try, then twice as long each time, an hour at most: half a day in all.
TRIES = 18
FIRST_S = 5.0
LONGEST_S = 3600.0

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that is told. `last_error`: why the latest try failed; empty where it did not."""

    id: str
    url: str
    secret: str = field(repr=False)
    created_at: datetime
    delivered: int = 0
    failed: int = 0
    last_error: str = ""
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message to one address. tries: those begun, the present one included."""

    id: int
    webhook_id: str
    body: str
    tries: int


def retry_at(delivery: Delivery, *, now: datetime) -> datetime | None:
    """When it is sent again; None where it was sent often enough."""
    if delivery.tries >= TRIES:
        return None
    return now + timedelta(seconds=min(LONGEST_S, FIRST_S * 2.0 ** (delivery.tries - 1)))


def signed(delivery: Delivery, secret: str, *, now: datetime) -> dict[str, str]:
    """The headers. The id stays the same from try to try: a receiver may see a message twice and can tell."""
    name, seconds = f"{delivery.webhook_id}.{delivery.id}", str(int(now.timestamp()))
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.new(key, f"{name}.{seconds}.{delivery.body}".encode(), hashlib.sha256).digest()
    return {
        "content-type": "application/json",
        "user-agent": "elastane-webhook/1",
        "webhook-id": name,
        "webhook-timestamp": seconds,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def is_public(address: IpAddress, *, also: Sequence[IpNetwork] = ()) -> bool:
    """Whether a webhook may be sent there: nothing of this machine or its networks, however it is written."""
    inner = _inside(address)
    if any(one.version == network.version and one in network for one in (address, inner) for network in also):
        return True
    return inner.is_global and not inner.is_multicast and (inner is address or address.version == 6)


def _inside(address: IpAddress) -> IpAddress:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def why_not(url: str, *, also: Sequence[IpNetwork] = ()) -> str | None:
    """What is wrong with the address of a webhook as far as it tells itself; a name is looked up at each delivery."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "it is not a URL"
    plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= URL_LIMIT
    if not plain or parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "it is no http or https URL"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "it holds a name, a password or a fragment"
    try:
        literal = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return None
    return None if is_public(literal, also=also) else "it is no public address"
