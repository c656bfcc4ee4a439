"""The file of a bundle: its entries come back, and nothing of a damaged file is served."""

from __future__ import annotations

import multiprocessing
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import cudakit as ck
from cudakit.jit.bundle import file
from cudakit.jit.bundle.file import BundleFile, Entry, Signature, replace, write
from cudakit.jit.bundle.used import opened

ENTRIES = [Entry("code", f"{n}", {"label": f"k{n}", "more": [n, None]}, bytes([n]) * 50) for n in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.ckb"
    assert write(path, ENTRIES, {"made by": "a test"}) == 5
    return path


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 1000])
def test_entries_come_back(count: int, tmp_path: Path) -> None:
    entries = [Entry("code", f"{n}", {"n": n}, f"{n}".encode() * 3) for n in range(count)]
    write(tmp_path / "k", entries, {"a": 1})
    file = BundleFile(tmp_path / "k")
    assert (len(file), file.manifest, file.signature) == (count, {"a": 1}, None)
    assert [file.read("code", entry.key) for entry in entries] == entries
    assert sorted(file, key=lambda entry: int(entry.key)) == entries
    assert file.read("code", "none") is file.read("signature", "0") is None
    file.verify()


def test_equal_entries_make_equal_bytes_in_any_order(path: Path, tmp_path: Path) -> None:
    shuffled = [entry._replace(header=dict(reversed(entry.header.items()))) for entry in reversed(ENTRIES)]
    write(tmp_path / "other", shuffled, {"made by": "a test"})
    assert (tmp_path / "other").read_bytes() == path.read_bytes()


def test_of_entries_with_one_key_the_first_is_kept(path: Path) -> None:
    assert write(path, [ENTRIES[0], ENTRIES[0]._replace(body=b"other")], {}) == 1
    assert BundleFile(path).read("code", "0") == ENTRIES[0]


def test_an_entry_in_the_place_of_another_is_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All checksums hold, and the content is another kernel's."""
    digest_of = file._digest_of
    monkeypatch.setattr(file, "_digest_of", lambda category, key: digest_of(category, "9" if key == "0" else key))
    write(path, ENTRIES, {})
    monkeypatch.undo()
    bundle = BundleFile(path)
    assert bundle.read("code", "1") == ENTRIES[1]
    with pytest.raises(ck.ArgumentError, match="damaged: an entry is code 0 in place of code 9; install or build"):
        bundle.read("code", "9")


def served(path: Path) -> Iterator[object]:
    """All that a file gives before it is refused."""
    try:
        file = BundleFile(path)
        yield file.signature
        yield file.manifest
    except ck.ArgumentError:
        return
    for number in range(6):
        try:
            yield file.read("code", f"{number}")
        except ck.ArgumentError:
            yield "refused"


def refused(path: Path) -> bool:
    """Whether a part of a file is refused; what is served is right."""
    answers = list(served(path))
    right = [None, {"made by": "a test"}, *ENTRIES]
    assert all(answer == "refused" or answer in right for answer in answers)
    return len(answers) < 3 or "refused" in answers


def test_a_bundle_that_is_cut_short_is_refused(path: Path) -> None:
    data = path.read_bytes()
    for size in [*range(0, len(data), 7), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(ck.ArgumentError, match=r"no bundle|cut short|damaged|cannot be read"):
            BundleFile(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(ck.ArgumentError, match="damaged"):
        BundleFile(path)


@pytest.mark.parametrize("tries", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_of_a_bundle_with_one_bit_changed_nothing_wrong_is_served(tries: int, path: Path) -> None:
    data, numbers = path.read_bytes(), random.Random(7)
    assert not refused(path)
    with path.open("r+b", buffering=0) as file:
        for turn in range(tries):
            # In order first, so that each part has its turn, then anywhere.
            bit = turn * 7919 % (8 * len(data)) if turn % 2 else numbers.randrange(8 * len(data))
            byte = data[bit // 8]
            os.pwrite(file.fileno(), bytes([byte ^ 1 << bit % 8]), bit // 8)
            assert refused(path), bit
            os.pwrite(file.fileno(), bytes([byte]), bit // 8)
    assert not refused(path)


def test_a_signed_bundle_with_another_signature_is_damaged(path: Path) -> None:
    replace(path, BundleFile(path).with_signature(Signature(bytes(32), bytes(64))))
    assert BundleFile(path).signature == Signature(bytes(32), bytes(64))
    data = bytearray(path.read_bytes())
    at = data.index(BundleFile(path).seal) + 32
    for byte in (at, at + 31, at + 32, at + 95, at + 96, at + 127):
        data[byte] ^= 4
        path.write_bytes(data)
        with pytest.raises(ck.ArgumentError, match="signature has another checksum"):
            BundleFile(path)
        data[byte] ^= 4


@pytest.mark.parametrize(("version", "advice"), [(2, "upgrade cudakit"), (2**31, "upgrade cudakit"), (0, "build it")])
def test_another_format_says_what_to_do(version: int, advice: str, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:8] + struct.pack("<I", version) + data[12:100])
    with pytest.raises(ck.ArgumentError, match=rf"format {version}.*reads format 1.*{advice}"):
        BundleFile(path)


@pytest.mark.parametrize("content", [b"", b"x", b"\x7fELF" + bytes(500), bytes(4096)])
def test_other_files_are_no_bundles(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(content)
    with pytest.raises(ck.ArgumentError, match="no bundle"):
        BundleFile(tmp_path / "k")
    for other in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ck.ArgumentError, match="cannot be read"):
            BundleFile(other)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "k")
    with pytest.raises(ck.ArgumentError):
        BundleFile(tmp_path / "k")


def test_an_open_bundle_stays_when_another_takes_its_place(path: Path) -> None:
    former = opened(str(path))
    write(path, ENTRIES[:1], {})
    assert len(former) == 5
    assert list(former) == list(former)
    assert len(opened(str(path))) == 1


def test_a_folder_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*names: object) -> None:
        raise OSError(28, "No space left on device")

    data = path.read_bytes()
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write(path, ENTRIES[:1], {})
    assert path.read_bytes() == data
    assert os.listdir(path.parent) == [path.name]
    path.chmod(0o400)
    path.parent.chmod(0o500)
    assert BundleFile(path).read("code", "3") == ENTRIES[3]
    path.parent.chmod(0o700)


def replaced(path: Path, rounds: int) -> None:
    for turn in range(rounds):
        write(path, ENTRIES[: turn % 5 + 1], {"made by": "a test"})


def read_again(path: Path, rounds: int) -> None:
    for _ in range(rounds):
        file = BundleFile(path)
        assert list(file)
        assert all(entry in ENTRIES for entry in file)


@pytest.mark.slow
def test_two_processes_open_it_while_a_third_replaces_it(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writer = context.Process(target=replaced, args=(path, 400))
    readers = [context.Process(target=read_again, args=(path, 200)) for _ in range(2)]
    for process in (writer, *readers):
        process.start()
    for process in (writer, *readers):
        process.join()
    assert [process.exitcode for process in (writer, *readers)] == [0, 0, 0]
