"""Whatever happened to the files since, it is seen, named, and the newest whole checkpoint before it is used."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import xxhash

from tests.unit.checkpoint.saves import JOB, assert_same_state, engines, load, published, save, write
from workers.checkpoint import errors, places
from workers.checkpoint.catalogue import Found, inspect, newest_complete
from workers.checkpoint.errors import CheckpointDamaged, CheckpointError, CheckpointFormatUnknown, CheckpointIncomplete
from workers.checkpoint.manifest import decode, encode
from workers.checkpoint.store import LocalStore
from workers.checkpoint.verify import damages


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def folder(tmp_path: Path, step: int) -> Path:
    return tmp_path / JOB / f"step-{step:08d}"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0b100
    path.write_bytes(data)


def rank_file(tmp_path: Path, step: int, rank: int) -> Path:
    (path,) = folder(tmp_path, step).glob(f"rank-{rank:05d}-*")
    return path


def sealed(document: dict) -> bytes:
    """A manifest's bytes with the checksum that belongs to them, as somebody else may have written it."""

    def canonical(content: dict) -> bytes:
        return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()

    content = {key: value for key, value in document.items() if key != "checksum"}
    return canonical({**content, "checksum": xxhash.xxh3_128_hexdigest(canonical(content))})


def test_a_flipped_byte_anywhere_in_any_file_is_refused_by_name(tmp_path: Path, store: LocalStore) -> None:
    manifest = save(store, engines(2, seed=1), step=10)
    for file in manifest.files:
        path = folder(tmp_path, 10) / file
        for place in range(0, path.stat().st_size, 29):
            flip(path, place)
            with pytest.raises(CheckpointDamaged, match=f"step 10: {file} was changed"):
                inspect(store, JOB, 10, verify_bytes=True)
            flip(path, place)
    inspect(store, JOB, 10, verify_bytes=True)


def test_a_flipped_byte_is_met_by_every_group_that_reads_it(tmp_path: Path, store: LocalStore) -> None:
    manifest = save(store, engines(2, seed=1), step=10)
    for file in manifest.files:
        path = folder(tmp_path, 10) / file
        for place in range(0, path.stat().st_size, 199):
            flip(path, place)
            for world_size in (1, 3):
                with pytest.raises(CheckpointDamaged) as caught:
                    load(store, engines(world_size), manifest)
                assert caught.value.file == file
            flip(path, place)


def test_a_flipped_byte_anywhere_in_the_manifest_is_refused(tmp_path: Path, store: LocalStore) -> None:
    save(store, engines(1, seed=1), step=10)
    data = (folder(tmp_path, 10) / places.MANIFEST).read_bytes()
    for place in range(0, len(data), 5):
        changed = bytearray(data)
        changed[place] ^= 0b100
        with pytest.raises(CheckpointDamaged, match=r"manifest\.json cannot be read"):
            decode(bytes(changed), step=10)


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_cut_manifest_is_refused(tmp_path: Path, store: LocalStore, length: int) -> None:
    save(store, engines(1, seed=1), step=10)
    data = (folder(tmp_path, 10) / places.MANIFEST).read_bytes()
    with pytest.raises(CheckpointDamaged, match=r"manifest\.json cannot be read"):
        decode(data[:length], step=10)


def test_a_manifest_of_another_step_is_refused(tmp_path: Path, store: LocalStore) -> None:
    save(store, engines(1, seed=1), step=10)
    shutil.copytree(folder(tmp_path, 10), folder(tmp_path, 20))
    with pytest.raises(CheckpointDamaged, match=r"step 20: manifest\.json is of step 10"):
        inspect(store, JOB, 20)


def test_a_newer_format_is_not_silently_passed_over(tmp_path: Path, store: LocalStore) -> None:
    save(store, engines(1, seed=1), step=10)
    document = json.loads(encode(save(store, engines(1, seed=1), step=20)))
    (folder(tmp_path, 20) / places.MANIFEST).write_bytes(sealed({**document, "format": 2}))
    with pytest.raises(CheckpointFormatUnknown, match="format 2, this program reads up to 1"):
        newest_complete(store, JOB)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "other.safetensors", "manifest.json"])
def test_a_manifest_cannot_lead_out_of_its_folder(store: LocalStore, name: str) -> None:
    manifest = save(store, engines(1, seed=1), step=10)
    (file,) = manifest.files
    data = encode(manifest).replace(file.encode(), name.encode())
    with pytest.raises(CheckpointDamaged, match="is no rank's file"):
        decode(sealed(json.loads(data)), step=10)


def test_damage_sends_the_job_back_to_the_newest_whole_one_and_says_why(tmp_path: Path, store: LocalStore) -> None:
    for step in (10, 20, 30, 40, 50):
        save(store, engines(2, seed=step), step=step)
    (folder(tmp_path, 50) / places.MANIFEST).unlink()
    missing = rank_file(tmp_path, 40, 0)
    missing.unlink()
    cut = rank_file(tmp_path, 30, 1)
    cut.write_bytes(cut.read_bytes()[:-1])
    flip(folder(tmp_path, 20) / places.MANIFEST, 40)
    found = newest_complete(store, JOB)
    assert found.manifest is not None
    assert found.manifest.step == 10
    said = [str(error) for error in found.passed_over]
    assert "step 50 is not whole: there is no manifest.json" in said[0]
    assert f"step 40: {missing.name} is missing" in said[1]
    assert f"step 30: {cut.name} has {cut.stat().st_size} bytes, {cut.stat().st_size + 1} were written" in said[2]
    assert "step 20: manifest.json cannot be read" in said[3]


def test_a_changed_byte_is_found_before_or_while_reading_and_the_one_before_is_used(
    tmp_path: Path, store: LocalStore
) -> None:
    for step in (10, 20):
        save(store, engines(2, seed=step), step=step)
    flip(rank_file(tmp_path, 20, 1), 600)
    quick, thorough = newest_complete(store, JOB), newest_complete(store, JOB, verify_bytes=True)
    assert (quick.manifest.step, thorough.manifest.step) == (20, 10)
    group = engines(3)
    with pytest.raises(CheckpointDamaged):
        load(store, group, quick.manifest)
    load(store, group, newest_complete(store, JOB, below=20).manifest)
    assert_same_state(group, engines(3, seed=10))


def test_each_damaged_file_has_its_line(tmp_path: Path, store: LocalStore) -> None:
    manifest = save(store, engines(3, seed=1), step=10)
    assert list(damages(store, manifest)) == []
    flip(rank_file(tmp_path, 10, 0), 100)
    rank_file(tmp_path, 10, 2).unlink()
    found = {damage.file[:10]: damage.reason for damage in damages(store, manifest)}
    assert list(found) == ["rank-00000", "rank-00002"]
    assert found["rank-00002"] == "is missing"


def test_a_file_that_the_disk_refuses_to_say_anything_of_is_damaged(tmp_path: Path, store: LocalStore) -> None:
    for step in (10, 20):
        save(store, engines(1, seed=step), step=step)
    file = rank_file(tmp_path, 20, 0)
    file.unlink()
    file.symlink_to(file.name)
    found = newest_complete(store, JOB)
    assert found.manifest is not None
    assert found.manifest.step == 10
    assert [f"{file.name} cannot be read" in str(error) for error in found.passed_over] == [True]


def test_a_job_whose_only_checkpoint_is_damaged_is_told_so(tmp_path: Path, store: LocalStore) -> None:
    save(store, engines(1, seed=1), step=10)
    rank_file(tmp_path, 10, 0).unlink()
    found = newest_complete(store, JOB)
    assert found.manifest is None
    assert ["is missing" in str(error) for error in found.passed_over] == [True]


def test_with_nothing_saved_nothing_is_found(store: LocalStore) -> None:
    assert newest_complete(store, JOB) == Found(manifest=None, passed_over=())


def test_a_save_without_one_ranks_part_is_not_published(tmp_path: Path, store: LocalStore) -> None:
    reports = write(store, engines(3, seed=1), step=10)
    with pytest.raises(CheckpointIncomplete, match="rank 1 of 3 did not report") as caught:
        published(store, [reports[0], reports[2]], step=10)
    assert any(line.endswith("is in no file") for line in caught.value.missing)
    assert not (folder(tmp_path, 10) / places.MANIFEST).exists()


def test_elements_in_two_files_are_not_published(store: LocalStore) -> None:
    reports = write(store, engines(2, seed=1), step=10)
    other = write(store, engines(1, seed=2), step=10)
    with pytest.raises(CheckpointIncomplete, match="is there twice"):
        published(store, [*reports, *other], step=10)


def test_a_file_that_vanished_before_publishing_is_named(tmp_path: Path, store: LocalStore) -> None:
    reports = write(store, engines(2, seed=1), step=10)
    rank_file(tmp_path, 10, 1).unlink()
    with pytest.raises(CheckpointDamaged, match=r"rank-00001.* is missing"):
        published(store, reports, step=10)


@pytest.mark.parametrize(
    "error",
    [
        errors.CheckpointDamaged(step=1, file="f", reason="r"),
        errors.CheckpointIncomplete(step=1, missing=["a"], hint="h"),
        errors.CheckpointMismatch(step=1, differences=["d"]),
        errors.CheckpointFormatUnknown(step=1, found=2, known=1),
        errors.CheckpointSuperseded(job="j", attempt=1, newer=2),
        errors.CheckpointNotWritten(step=1, reason="r"),
    ],
    ids=lambda error: error.code,
)
def test_every_error_survives_pickling(error: CheckpointError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.facts) == (type(error), str(error), error.facts)


def test_a_long_list_of_differences_is_shortened_in_the_message_and_whole_in_the_error() -> None:
    error = errors.CheckpointMismatch(step=1, differences=[f"t{i}" for i in range(50)])
    assert "and 42 more" in str(error)
    assert len(error.differences) == 50
