"""Where webhooks may go, how they are signed, when they are sent again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.webhook import LONGEST_S, TRIES, Delivery, is_public, retry_at, signed, why_not

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INSIDE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
    *("2002:7f00:1::", "64:ff9b::a00:1"),
]


@pytest.mark.parametrize("address", INSIDE)
def test_nothing_inside_is_public_however_it_is_written(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_what_is_outside_is(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_a_network_that_is_allowed_is_and_its_neighbour_is_not() -> None:
    also = (ipaddress.ip_network("10.1.0.0/16"),)
    assert is_public(ipaddress.ip_address("10.1.2.3"), also=also)
    assert is_public(ipaddress.ip_address("::ffff:10.1.2.3"), also=also)
    assert not is_public(ipaddress.ip_address("10.2.0.1"), also=also)


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://example.com/", "example.com", "http://", "http://127.0.0.1/", "http://[::1]:80/", "https://a b/"),
        *("https://user:password@example.com/", "https://example.com/#x", "http://example.com:99999/", "http://e:0/"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused_before_it_is_stored(url: str) -> None:
    assert why_not(url) is not None
    assert why_not("https://example.com:8443/hook?token=1") is None


def test_a_message_is_signed_over_its_id_its_time_and_its_body() -> None:
    key = b"k" * 32
    delivery = Delivery(id=7, webhook_id="w", body='{"a": 1}', tries=1)
    headers = signed(delivery, "whsec_" + base64.b64encode(key).decode(), now=NOW)
    said = f"w.7.{int(NOW.timestamp())}." + delivery.body
    assert (
        headers["webhook-signature"]
        == "v1," + base64.b64encode(hmac.new(key, said.encode(), hashlib.sha256).digest()).decode()
    )
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("w.7", str(int(NOW.timestamp())))


def test_it_is_sent_again_after_longer_and_longer_and_given_up_after_half_a_day() -> None:
    waits, delivery = list[timedelta](), Delivery(id=1, webhook_id="w", body="", tries=1)
    while (again := retry_at(delivery, now=NOW)) is not None:
        waits.append(again - NOW)
        delivery = Delivery(id=1, webhook_id="w", body="", tries=delivery.tries + 1)
    assert len(waits) == TRIES - 1
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (timedelta(seconds=5), timedelta(seconds=LONGEST_S))
    assert timedelta(hours=7) < sum(waits, timedelta()) < timedelta(hours=12)
