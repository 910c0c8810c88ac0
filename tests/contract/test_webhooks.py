"""Changes of state reach a receiver over real sockets, on every database; addresses inside are never reached."""

from __future__ import annotations

import ipaddress
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from service.adapters.public_http import PublicHttp
from service.domain.errors import RequestRefused, WebhookNotFound
from service.webhooks import BEGUN_FOR, Deliveries, Webhooks
from tests.fakes.control_plane import ControlPlane

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@dataclass
class Receiver:
    """Answers 200 or what it is told to answer, in order; keeps what it got."""

    answers: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.got.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
            self.send_response(made.answers.pop(0) if made.answers else 200)
            self.send_header("location", made.url)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    made.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield made
    server.shutdown()
    server.server_close()


@dataclass
class Post:
    plane: ControlPlane
    webhooks: Webhooks
    deliveries: Deliveries

    async def turn(self) -> None:
        await self.deliveries.turn()
        await self.deliveries.finish()


@pytest.fixture
async def post(database: Any) -> AsyncIterator[Post]:
    plane = ControlPlane(database=database)
    world: dict[str, Any] = {"database": database, "clock": plane.clock}
    made = Post(
        plane=plane,
        webhooks=Webhooks(**world, tokens=plane.tokens, networks=LOOPBACK),
        deliveries=Deliveries(**world, post=PublicHttp(LOOPBACK)),
    )
    yield made
    await made.deliveries.stop()


async def test_each_change_of_state_is_told_once_and_signed(post: Post, receiver: Receiver) -> None:
    await post.plane.submit()
    made = await post.webhooks.create(receiver.url)
    job, controller = await post.plane.running()
    await controller.beat("running", step=2, workers=1)  # no change of state
    await controller.end("succeeded")
    await post.turn()
    await post.turn()
    told = [(body["data"]["from"], body["data"]["state"]) for _, body in receiver.got if body["data"]["id"] == job.id]
    assert sorted(told, key=str) == sorted(
        [(None, "queued"), ("queued", "starting"), ("starting", "running"), ("running", "succeeded")], key=str
    )
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == len(receiver.got)
    assert all(headers["webhook-signature"].startswith("v1,") for headers, _ in receiver.got)
    (seen,) = await post.webhooks.list()
    assert (seen.id, seen.delivered, seen.last_error) == (made.id, len(receiver.got), "")


async def test_what_is_not_taken_is_sent_again_under_the_same_id(post: Post, receiver: Receiver) -> None:
    await post.webhooks.create(receiver.url)
    await post.plane.submit()
    receiver.answers = [500, 302]
    await post.turn()
    (seen,) = await post.webhooks.list()
    assert (seen.delivered, seen.last_error) == (0, "it answered 500")
    await post.turn()
    assert len(receiver.got) == 1, "before its time"
    for wait_s in (5, 10):
        post.plane.clock.pass_s(wait_s)
        await post.turn()
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1
    assert len(receiver.got) == 3, "a redirect is not followed"
    (seen,) = await post.webhooks.list()
    assert (seen.delivered, seen.failed) == (1, 0)


async def test_a_delivery_that_a_killed_service_had_begun_is_made_by_the_next(post: Post, receiver: Receiver) -> None:
    await post.webhooks.create(receiver.url)
    await post.plane.submit()
    now = post.plane.clock.now()
    async with post.plane.database.write() as work:
        (begun,) = await work.webhooks.begin(now, until=now + BEGUN_FOR, limit=10)
        assert await work.webhooks.begin(now, until=now + BEGUN_FOR, limit=10) == ()
        await work.commit()
    await post.turn()
    assert receiver.got == []
    post.plane.clock.pass_s(BEGUN_FOR / timedelta(seconds=1))
    await post.turn()
    assert [body["data"]["state"] for _, body in receiver.got] == ["queued"]
    assert begun.tries == 1


async def test_who_was_removed_is_told_nothing_more(post: Post, receiver: Receiver) -> None:
    made = await post.webhooks.create(receiver.url)
    await post.plane.submit()
    await post.webhooks.remove(made.id)
    await post.plane.submit()
    await post.turn()
    assert (receiver.got, await post.webhooks.list()) == ([], ())
    with pytest.raises(WebhookNotFound):
        await post.webhooks.remove(made.id)


async def test_a_name_that_leads_inside_is_looked_at_where_the_connection_is_made(receiver: Receiver) -> None:
    outward = PublicHttp()
    answer = await outward.post(receiver.url.replace("127.0.0.1", "localhost"), headers={}, body=b"{}")
    assert (answer, receiver.got) == ("localhost is no public address", [])
    assert await outward.post("http://no-such-host.invalid/", headers={}, body=b"{}") is not None
    await outward.close()


async def test_an_address_inside_is_refused_at_once() -> None:
    plane = ControlPlane()
    with pytest.raises(RequestRefused, match="no public address"):
        await Webhooks(database=plane.database, clock=plane.clock, tokens=plane.tokens).create("http://10.0.0.1/")
