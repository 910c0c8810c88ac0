"""A folder, an object store in memory and a real S3 server on loopback: one suite, and whole checkpoints in each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.unit.checkpoint.saves import JOB, assert_same_state, engines, load, published, save, write
from workers.checkpoint.catalogue import collect, inspect, newest_complete, steps
from workers.checkpoint.claims import claim
from workers.checkpoint.errors import CheckpointDamaged, CheckpointSuperseded
from workers.checkpoint.object_store import ObjectStore
from workers.checkpoint.retention import Retention, pin, pinned, prune
from workers.checkpoint.store import LocalStore, Store, open_store, read_whole
from workers.checkpoint.writer import withdraw
from workers.user_code import SpecError

BUCKET = "checkpoints"
# The least that S3 takes for a part that is not the last.
PART_BYTES = 5 << 20


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_environment(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Credentials and the server's address come from the environment alone."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    with suppress(boto3.client("s3").exceptions.BucketAlreadyOwnedByYou):
        boto3.client("s3").create_bucket(Bucket=BUCKET)
    return s3_server


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return LocalStore(tmp_path)
    if request.param == "s3":
        request.getfixturevalue("s3_environment")
        return open_store(f"s3://{BUCKET}/{uuid4().hex}")
    return open_store(f"memory://{uuid4().hex}")


def test_what_was_written_is_read_anywhere(store: Store) -> None:
    with store.create("a/b/file") as sink:
        sink.write(memoryview(b"0123"))
        sink.write(memoryview(b"456789"))
    assert store.size("a/b/file") == 10
    with store.open("a/b/file") as source:
        assert source.size_bytes == 10
        buffer = memoryview(bytearray(4))
        assert (source.read_into(3, buffer), bytes(buffer)) == (4, b"3456")
        assert (source.read_into(8, buffer), bytes(buffer[:2])) == (2, b"89")
        assert source.read_into(10, buffer) == 0


def test_ranges_that_were_announced_arrive_in_their_places(store: Store) -> None:
    data = bytes(range(256)) * 40
    store.put("file", data)
    ranges = [(start, start + 100) for start in range(0, 10_000, 300)]
    with store.open("file") as source:
        source.expect(ranges)
        for start, stop in ranges:
            buffer = memoryview(bytearray(stop - start))
            assert source.read_into(start, buffer) == 100
            assert bytes(buffer) == data[start:stop]


def test_a_put_replaces_and_a_fresh_one_does_not(store: Store) -> None:
    store.put("a/x", b"one", fresh=True)
    with pytest.raises(FileExistsError):
        store.put("a/x", b"two", fresh=True)
    assert read_whole(store, "a/x") == b"one"
    store.put("a/x", b"three")
    assert read_whole(store, "a/x") == b"three"


def test_names_are_those_directly_inside(store: Store) -> None:
    for path in ("job/step-1/a", "job/step-1/b", "job/step-10/a", "job/mark"):
        store.put(path, b"x")
    assert store.names("job") == ("mark", "step-1", "step-10")
    assert store.names("job/step-1") == ("a", "b")
    assert store.names("nowhere") == ()


def test_deleting_takes_the_folder_and_nothing_beside_it(store: Store) -> None:
    for path in ("job/step-1/a", "job/step-1/b", "job/step-10/a"):
        store.put(path, b"x")
    store.delete("job/step-1")
    store.delete("job/step-1")
    assert store.names("job") == ("step-10",)
    store.delete("job/step-10/a")
    assert store.names("job/step-10") == ()


def test_what_is_missing_is_said_in_the_systems_word(store: Store) -> None:
    with pytest.raises(FileNotFoundError):
        store.size("nothing")
    with pytest.raises(FileNotFoundError), store.open("nothing"):
        pass


def test_a_file_whose_writing_failed_is_not_there(store: Store) -> None:
    with pytest.raises(RuntimeError, match="given up"):
        give_up_after(store, "a/file", memoryview(b"half"), times=1)
    assert store.names("a") == ()


def give_up_after(store: Store, path: str, data: memoryview, *, times: int) -> None:
    with store.create(path) as sink:
        for _ in range(times):
            sink.write(data)
        raise RuntimeError("given up")


def test_a_checkpoint_comes_back_into_other_groups_and_damage_falls_back(store: Store) -> None:
    save(store, engines(2, seed=1), step=10)
    manifest = save(store, engines(3, seed=2), step=20)
    group = engines(2)
    load(store, group, inspect(store, JOB, 20, verify_bytes=True))
    assert_same_state(group, engines(2, seed=2))
    damaged = sorted(manifest.files)[1]
    data = bytearray(read_whole(store, f"{JOB}/step-00000020/{damaged}"))
    data[len(data) // 2] ^= 1
    store.put(f"{JOB}/step-00000020/{damaged}", bytes(data))
    with pytest.raises(CheckpointDamaged, match=f"step 20: {damaged} was changed"):
        inspect(store, JOB, 20, verify_bytes=True)
    store.delete(f"{JOB}/step-00000020/{damaged}")
    found = newest_complete(store, JOB)
    assert found.manifest is not None
    assert found.manifest.step == 10
    assert "is missing" in str(found.passed_over[0])


def test_claims_pins_and_retention_hold_everywhere(store: Store) -> None:
    claim(store, job=JOB, attempt=1)
    for step in (10, 20, 30):
        save(store, engines(1, seed=1), step=step)
    pin(store, job=JOB, step=10)
    assert pinned(store, JOB) == {10}
    assert prune(store, job=JOB, attempt=1, published=30, rule=Retention(keep_last=1)) == (20,)
    reports = write(store, engines(1, seed=1), step=40)
    claim(store, job=JOB, attempt=2)
    with pytest.raises(CheckpointSuperseded):
        published(store, reports, step=40)
    withdraw(store, job=JOB, step=40, reports=reports)
    collect(store, job=JOB, attempt=2)
    assert steps(store, JOB) == (10, 30)


def test_a_large_file_goes_up_in_parts_and_one_given_up_leaves_no_upload(s3_environment: str) -> None:
    whole = open_store(f"s3://{BUCKET}/{uuid4().hex}")
    assert isinstance(whole, ObjectStore)
    store = ObjectStore(whole._filesystem, whole._root, part_bytes=PART_BYTES)
    part = memoryview(bytes(3 << 20))
    with store.create("large") as sink:
        for _ in range(5):
            sink.write(part)
    assert store.size("large") == 15 << 20
    client = boto3.client("s3")
    assert client.head_object(Bucket=BUCKET, Key=f"{whole._root.partition('/')[2]}/large")["ETag"].endswith('-3"')
    with pytest.raises(RuntimeError, match="given up"):
        give_up_after(store, "lost", part, times=5)
    assert client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []
    assert store.names("") == ("large",)


class Shaky:
    """A file system whose first calls fail as a network does."""

    def __init__(self, filesystem, *, failures: int, error: Exception, after: bool = False) -> None:
        self.filesystem, self.failures, self.error, self.after = filesystem, failures, error, after
        self.calls = 0

    def __getattr__(self, name: str):
        plain = getattr(self.filesystem, name)

        def call(*args, **options):
            self.calls += 1
            failing = self.calls <= self.failures
            if failing and not self.after:
                raise self.error
            answer = plain(*args, **options)
            if failing:
                raise self.error
            return answer

        return call


def shaky(failures: int, error: Exception, *, after: bool = False) -> tuple[ObjectStore, Shaky]:
    steady = open_store(f"memory://{uuid4().hex}")
    assert isinstance(steady, ObjectStore)
    steady.put("file", b"content")
    filesystem = Shaky(steady._filesystem, failures=failures, error=error, after=after)
    return ObjectStore(filesystem, steady._root, waits_s=(0.0, 0.0)), filesystem


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), ValueError("a driver's own")])
def test_a_call_that_may_be_made_again_is(error: Exception) -> None:
    store, filesystem = shaky(2, error)
    assert store.size("file") == 7
    assert filesystem.calls == 3


def test_trouble_that_lasts_is_an_oserror_with_the_drivers_words() -> None:
    store, _ = shaky(9, ValueError("no route"))
    with pytest.raises(OSError, match="file: ValueError: no route"):
        store.size("file")


def test_a_refusal_is_not_asked_again() -> None:
    store, filesystem = shaky(9, PermissionError("denied"))
    with pytest.raises(PermissionError):
        store.size("file")
    assert filesystem.calls == 1


def test_a_fresh_put_whose_answer_was_lost_is_not_mistaken_for_anothers() -> None:
    store, _ = shaky(1, ConnectionResetError("reset"), after=True)
    store.put("manifest", b"ours", fresh=True)
    assert read_whole(store, "manifest") == b"ours"


def test_a_store_opened_later_goes_to_the_server_that_the_environment_names_then(
    s3_environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            store = open_store(f"s3://{BUCKET}/{uuid4().hex}")
            store.put("file", b"here")
            assert read_whole(store, "file") == b"here"
        finally:
            server.stop()


def test_credentials_in_a_uri_are_refused_and_not_repeated() -> None:
    with pytest.raises(SpecError, match="holds credentials") as caught:
        open_store("s3://key:hunter2@bucket/folder")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(SpecError, match="holds credentials"):
        open_store("s3://bucket/folder?secret=1")


def test_an_unknown_scheme_names_those_that_there_are() -> None:
    with pytest.raises(SpecError, match=r"ftp is no store; .*s3://, gs://"):
        open_store("ftp://host/folder")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(SpecError, match=r"install elastane\[gcs\] on the workers"):
        open_store("gs://bucket/folder")
