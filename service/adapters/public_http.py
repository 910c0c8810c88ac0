"""HTTP to public addresses alone, checked where the connection is made: a name that points inside leads nowhere.

httpcore, which httpx stands on, takes the making of connections as a part of its own; no redirect is followed, no proxy
of the environment is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import httpcore

from service.domain.webhook import IpNetwork, is_public

TIMEOUT_S = 10.0


class PublicOnly(httpcore.AsyncNetworkBackend):
    """Connects to what a name means now if it is public, and looks at the other end once more."""

    def __init__(self, also: Sequence[IpNetwork]) -> None:
        self._also = also
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109, the signature is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} is not known ({error.strerror or error})") from error
        public = [address for address in dict.fromkeys(str(each[4][0]) for each in found) if self._allows(address)]
        failure: Exception = httpcore.ConnectError(f"{host} is no public address")
        for address in public:
            try:
                stream = await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
                continue
            peer = stream.get_extra_info("server_addr")
            if peer is not None and self._allows(str(peer[0])):
                return stream
            await stream.aclose()
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _allows(self, address: str) -> bool:
        return is_public(ipaddress.ip_address(address.partition("%")[0]), also=self._also)


class PublicHttp:
    """The port `Post`."""

    def __init__(self, also: Sequence[IpNetwork] = ()) -> None:
        self._pool = httpcore.AsyncConnectionPool(network_backend=PublicOnly(also), keepalive_expiry=5.0)

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> str | None:
        limits = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)
        try:
            # The answer's body is never read: it may be endless.
            async with (
                asyncio.timeout(2 * TIMEOUT_S),
                self._pool.stream(
                    "POST", url, headers=list(headers.items()), content=body, extensions={"timeout": limits}
                ) as answer,
            ):
                return None if 200 <= answer.status < 300 else f"it answered {answer.status}"
        except (OSError, TimeoutError, httpcore.TimeoutException) as error:
            return f"no answer within {TIMEOUT_S:.0f} s" if not str(error) else str(error)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
            return str(error) or type(error).__name__

    async def close(self) -> None:
        await self._pool.aclose()
