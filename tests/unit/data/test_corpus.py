"""A data spec gives the same samples on every worker, or says what to mend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from service.domain.spec import PythonData, TextData, TokensData
from workers.data.corpus import open_corpus, stdlib_files
from workers.data.errors import DataError
from workers.data.windows import TokenWindows


def user_dataset(count: int) -> list[tuple[int, float]]:
    return [(index, index / 2) for index in range(count)]


def user_number() -> int:
    return 5


def tokens_file(path: Path, count: int, dtype: str = "uint16") -> str:
    np.arange(count, dtype=dtype).tofile(path)
    return str(path)


def test_windows_predict_every_token_once(tmp_path: Path) -> None:
    windows = TokenWindows(np.arange(11), seq_len=3, source="here")
    assert [windows[index].tolist() for index in range(len(windows))] == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert windows[0].dtype == torch.int64
    with pytest.raises(IndexError):
        windows[3]


def test_a_file_that_just_holds_one_sample_has_one_and_one_token_less_is_refused(tmp_path: Path) -> None:
    assert len(TokenWindows(np.arange(9), seq_len=8, source="here")) == 1
    with pytest.raises(DataError, match="8 tokens are less than one sample of seq_len \\+ 1 = 9"):
        TokenWindows(np.arange(8), seq_len=8, source="here")


def test_a_token_that_the_model_does_not_know_is_named_with_its_place() -> None:
    windows = TokenWindows(np.array([1, 2, 3, 4, 900, 5, 6]), seq_len=3, source="file.bin", vocab=256)
    assert windows[0].tolist() == [1, 2, 3, 4]
    with pytest.raises(DataError, match=r"'file.bin': token 900 at 4 is not in the model's vocabulary 0\.\.255"):
        windows[1]


def test_the_standard_library_is_text_of_python_files_alone(tmp_path: Path) -> None:
    files = stdlib_files()
    assert len(files) > 100
    assert {path.suffix for path in files} == {".py"}
    assert not any("site-packages" in path.parts for path in files)
    corpus = open_corpus("stdlib", seq_len=64, cache_folder=tmp_path)
    assert bytes(corpus[0].to(torch.uint8).tolist()) == files[0].read_bytes()[:65]
    assert len(corpus) == (sum(path.stat().st_size for path in files) - 1) // 64


def test_a_corpus_is_cached_once_and_read_again(tmp_path: Path) -> None:
    first = open_corpus("stdlib", seq_len=64, cache_folder=tmp_path / "new" / "folder")
    (cached,) = (tmp_path / "new" / "folder").iterdir()
    written = cached.stat().st_mtime_ns
    again = open_corpus("stdlib", seq_len=64, cache_folder=tmp_path / "new" / "folder")
    assert cached.stat().st_mtime_ns == written
    assert torch.equal(first[100], again[100])


def test_text_is_the_matched_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    (texts / "deep").mkdir(parents=True)
    for name, text in {"b.txt": "bbbb", "a.txt": "aaaa", "deep/c.txt": "cccc", "d.md": "dddd"}.items():
        (texts / name).write_text(text)
    corpus = open_corpus(TextData(text=f"{texts}/**/*.txt"), seq_len=11, cache_folder=tmp_path / "cache")
    assert bytes(corpus[0].to(torch.uint8).tolist()) == b"aaaabbbbcccc"


def test_a_changed_text_is_read_anew(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    for content in ("first version", "second version"):
        text.write_text(content)
        corpus = open_corpus(TextData(text=str(text)), seq_len=4, cache_folder=tmp_path / "cache")
        assert bytes(corpus[0].to(torch.uint8).tolist()).decode() == content[:5]


def test_a_text_cut_while_it_was_cached_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("text")
    whole = Path.read_bytes

    def cut(path: Path) -> bytes:
        if path.name == "b.txt":
            raise OSError(5, "Input/output error")
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", cut)
    with pytest.raises(OSError, match="Input/output error"):
        open_corpus(TextData(text=f"{tmp_path}/*.txt"), seq_len=2, cache_folder=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int32", "int64"])
def test_token_files_of_every_type_are_read(tmp_path: Path, dtype: str) -> None:
    spec = TokensData(tokens=tokens_file(tmp_path / "tokens.bin", 100, dtype), dtype=dtype)
    assert open_corpus(spec, seq_len=9, cache_folder=tmp_path, vocab=100)[10].tolist() == list(range(90, 100))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (TextData(text="/nowhere/*.txt"), "data.text"),
        (TokensData(tokens="/nowhere/tokens.bin"), "data.tokens"),
        (PythonData(python=f"{__name__}:user_number"), "data.python"),
        (PythonData(python=f"{__name__}:user_dataset", args={"count": 0}), "data.python"),
    ],
)
def test_data_that_are_not_there_are_refused_by_field(tmp_path: Path, spec: object, field: str) -> None:
    with pytest.raises(DataError, match=field) as caught:
        open_corpus(spec, seq_len=4, cache_folder=tmp_path)
    assert caught.value.field == field


def test_a_file_of_another_type_than_said_is_refused(tmp_path: Path) -> None:
    path = tokens_file(tmp_path / "tokens.bin", 101, "uint8")
    with pytest.raises(DataError, match="101 bytes are no multiple of 2"):
        open_corpus(TokensData(tokens=path, dtype="uint16"), seq_len=4, cache_folder=tmp_path)


def test_an_empty_file_is_too_small_not_a_crash(tmp_path: Path) -> None:
    path = tokens_file(tmp_path / "tokens.bin", 0)
    with pytest.raises(DataError, match="0 tokens are less than one sample"):
        open_corpus(TokensData(tokens=path), seq_len=4, cache_folder=tmp_path)


def test_a_users_dataset_is_taken_as_it_is(tmp_path: Path) -> None:
    spec = PythonData(python=f"{__name__}:user_dataset", args={"count": 3})
    assert open_corpus(spec, seq_len=4, cache_folder=tmp_path)[2] == (2, 1.0)
