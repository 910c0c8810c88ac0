"""The client: what it repeats, what it never repeats, how it reads a stream."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import httpx
import pytest

from api.client import ElastaneClient, Notice, Refused, RetryPolicy, Unreachable, parse_events

AT_ONCE = RetryPolicy(attempts=3, first_wait_s=0.0, longest_wait_s=0.0)
Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer) -> ElastaneClient:
    made = ElastaneClient("http://127.0.0.1:1", retry=AT_ONCE)
    made._http = httpx.Client(base_url=made.url, transport=httpx.MockTransport(answer))
    return made


class Flaky:
    """Fails as told, in order, then answers 200."""

    def __init__(self, *failures: Exception | int) -> None:
        self.failures = list(failures)
        self.seen: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if not self.failures:
            return httpx.Response(200, json={"id": "x"})
        failure = self.failures.pop(0)
        if isinstance(failure, Exception):
            raise failure
        return httpx.Response(failure, json={"title": "later", "status": failure}, headers={"retry-after": "0"})


LOST = httpx.ReadError("connection reset")
NEVER_LEFT = httpx.ConnectError("refused")


def test_a_lost_answer_to_a_read_is_asked_for_again() -> None:
    flaky = Flaky(LOST, 503)
    assert client(flaky).job("x") == {"id": "x"}
    assert len(flaky.seen) == 3


def test_a_lost_answer_to_a_submission_is_repeated_under_the_same_key() -> None:
    flaky = Flaky(LOST)
    client(flaky).submit({"model": "gpt-tiny"})
    keys = {request.headers["idempotency-key"] for request in flaky.seen}
    assert (len(flaky.seen), len(keys)) == (2, 1)


def test_two_submissions_have_two_keys() -> None:
    flaky = Flaky()
    sender = client(flaky)
    sender.submit({"model": "gpt-tiny"})
    sender.submit({"model": "gpt-tiny"})
    assert len({request.headers["idempotency-key"] for request in flaky.seen}) == 2


def test_a_lost_answer_to_an_action_is_not_repeated() -> None:
    flaky = Flaky(LOST)
    with pytest.raises(Unreachable):
        client(flaky).scale("x", 3)
    assert len(flaky.seen) == 1


def test_an_action_that_never_left_is_sent_again() -> None:
    flaky = Flaky(NEVER_LEFT)
    assert client(flaky).cancel("x") == {"id": "x"}
    assert len(flaky.seen) == 2


def test_an_action_that_came_too_often_was_not_done_and_is_sent_again() -> None:
    flaky = Flaky(429)
    assert client(flaky).scale("x", 3) == {"id": "x"}
    assert len(flaky.seen) == 2


def test_an_action_that_the_service_could_not_do_is_not_repeated() -> None:
    flaky = Flaky(503)
    with pytest.raises(Refused):
        client(flaky).scale("x", 3)
    assert len(flaky.seen) == 1


def test_a_service_that_stays_away_is_named_with_its_address() -> None:
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1"):
        client(Flaky(*[NEVER_LEFT] * 9)).jobs()


def test_a_refusal_carries_the_whole_problem() -> None:
    with pytest.raises(Refused) as caught:
        client(Flaky(409)).pause("x")
    assert caught.value.problem["title"] == "later"


def test_an_answer_that_is_no_problem_document_still_has_title_and_status() -> None:
    with pytest.raises(Refused) as caught:
        client(lambda request: httpx.Response(404, text="<html>")).job("x")
    assert caught.value.problem == {"title": "Not Found", "status": 404, "detail": "<html>"}


def test_what_answers_at_a_wrong_address_is_said_to_be_no_elastane() -> None:
    with pytest.raises(Unreachable, match="not Elastane"):
        client(lambda request: httpx.Response(200, text="<html>hello</html>")).job("x")


def test_an_id_with_a_slash_stays_one_part_of_the_path() -> None:
    flaky = Flaky()
    client(flaky).job("../keys")
    assert flaky.seen[0].url.raw_path == b"/v1/jobs/..%2Fkeys"


def test_both_errors_survive_pickling() -> None:
    refused = pickle.loads(pickle.dumps(Refused({"title": "no", "status": 409})))
    unreachable = pickle.loads(pickle.dumps(Unreachable("http://x", "reset")))
    assert (refused.status, unreachable.url) == (409, "http://x")


def test_events_are_read_with_id_name_and_data() -> None:
    text = ["id: 7", "event: state", 'data: {"job_id": "a"}', "", ": ping", "", 'data: {"b":', "data: 1}", ""]
    assert list(parse_events(iter(text))) == [
        Notice(id="7", event="state", data={"job_id": "a"}),
        Notice(id=None, event="message", data={"b": 1}),
    ]


def test_an_event_that_was_cut_off_is_not_delivered() -> None:
    assert list(parse_events(iter(["id: 7", 'data: {"a": 1}']))) == []


def test_a_stream_goes_on_after_the_last_id_it_saw() -> None:
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("last-event-id"))
        number = len(asked)
        return httpx.Response(200, text=f'id: {number}\nevent: state\ndata: {{"n": {number}}}\n\n')

    notices = client(answer).stream()
    assert [next(notices).data["n"] for _ in range(3)] == [1, 2, 3]
    assert asked == [None, "1", "2"]
