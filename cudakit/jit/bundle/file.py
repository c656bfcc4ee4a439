"""The file of a bundle: entries by key, which are found without reading the rest, and verified when they are read.

======================  ===================================================================================
part                    content
======================  ===================================================================================
head                    magic, format, numbers of buckets and entries, size of the file, the manifest's and its
                        SHA-256
table                   for each bucket the number of its last record + 1, and the SHA-256 of its records
seal                    SHA-256 of head and table
signature               public key, Ed25519 signature of the seal, SHA-256 of both; zeros if the bundle is not signed
manifest                JSON: what made the bundle, from what
index                   records of fixed width, sorted: SHA-256 of category and key, offset, size, SHA-256 of the entry
entries                 size of a JSON header, the header, the body
======================  ===================================================================================

A bucket has the records whose digests begin with the same bits. Opening a file checks its size and its seal. Every
other part has its checksum in a part that the seal covers, and is checked when it is read. So a signature of the seal
is one of the whole file. Nothing depends on the time or the machine: equal entries and manifest give equal bytes.

The file is mapped, and another program may write into it. So head and table, and the records of a bucket, are copied
before they are verified, and used from the copy. A file that gets shorter is noticed before its mapping is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from cudakit import system
from cudakit.errors import ArgumentError
from cudakit.records import NamedTuple

FORMAT_VERSION: Final = 1
#: Categories of entries: code, declarations of sources, texts of a source's own headers, results of tuning.
CODE: Final = "code"
SIGNATURE: Final = "signature"
HEADERS: Final = "headers"
TUNED: Final = "tuned"

_MAGIC: Final = b"ckbundle"
_START: Final = struct.Struct("<8sI")  # of every format
_HEAD: Final = struct.Struct("<8sIIQQQ32s")
_BUCKET: Final = struct.Struct("<Q32s")
_RECORD: Final = struct.Struct("<32sQQ32s")
_SIZE: Final = struct.Struct("<I")
_DIGEST_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 32 + 64 + _DIGEST_BYTES
_UNSIGNED: Final = bytes(_SIGNATURE_BYTES)
_MOST_BITS: Final = 16


class Entry(NamedTuple):
    """An entry of a bundle.

    Attributes
    ----------
    category : str
        Category of the content, such as ``"code"``.
    key : str
        Key within the category.
    header : mapping
        Description that JSON can hold.
    body : bytes
        Content.
    """

    category: str
    key: str
    header: Mapping[str, Any]
    body: bytes


class Signature(NamedTuple):
    """A signature of a bundle: an Ed25519 public key, and its signature of the seal."""

    public_key: bytes
    signature: bytes


def write(path: Path, entries: Iterable[Entry], manifest: Mapping[str, Any]) -> int:
    """Write a bundle, whole or not at all. Return the number of its entries; of those with one key the first is kept.

    A process that has the former file open keeps it.
    """
    blobs = dict[bytes, bytes]()
    for entry in entries:
        blobs.setdefault(_digest_of(entry.category, entry.key), _packed(entry))
    data = _laid_out(sorted(blobs.items()), json.dumps(manifest, sort_keys=True, indent=1).encode())
    replace(path, data)
    return len(blobs)


def replace(path: Path, *pieces: bytes) -> None:
    """Publish the file at a path, in place of a former one."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | system.NOT_WAITING)  # a pipe in the file's place does not block


def _laid_out(blobs: list[tuple[bytes, bytes]], manifest: bytes) -> bytes:
    """Return the bytes of a file, unsigned. `blobs` has pairs of digest and packed entry, sorted."""
    bits = min(_MOST_BITS, (len(blobs).bit_length() + 1) // 2)
    offset = _HEAD.size + (_BUCKET.size << bits) + _DIGEST_BYTES + _SIGNATURE_BYTES + len(manifest)
    offset += len(blobs) * _RECORD.size
    index = []
    for digest, blob in blobs:
        index.append(_RECORD.pack(digest, offset, len(blob), hashlib.sha256(blob).digest()))
        offset += len(blob)
    head = _HEAD.pack(
        *(_MAGIC, FORMAT_VERSION, bits, len(blobs), offset, len(manifest)), hashlib.sha256(manifest).digest()
    )
    table, first = [], 0
    for bucket in range(1 << bits):
        last = bisect_left(blobs, bucket + 1, first, key=lambda blob: _bucket_of(blob[0], bits))
        table.append(_BUCKET.pack(last, hashlib.sha256(b"".join(index[first:last])).digest()))
        first = last
    sealed = head + b"".join(table)
    return b"".join(
        [sealed, hashlib.sha256(sealed).digest(), _UNSIGNED, manifest, *index, *(blob for _, blob in blobs)]
    )


def _digest_of(category: str, key: str) -> bytes:
    return hashlib.sha256(f"{category}\0{key}".encode()).digest()


def _bucket_of(digest: bytes, bits: int) -> int:
    return int.from_bytes(digest[:4], "big") >> (32 - bits)


def _packed(entry: Entry) -> bytes:
    header = {**entry.header, "category": entry.category, "key": entry.key}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    return _SIZE.pack(len(text)) + text + entry.body


class BundleFile:
    """An open bundle: a mapping of its file, of which the head is read.

    Parameters
    ----------
    path : path
        Path of the file.

    Raises
    ------
    ArgumentError
        If the file cannot be read, is no bundle, is cut short or damaged, or has a newer format.

    Attributes
    ----------
    seal : bytes
        SHA-256 that covers all other parts of the file but the signature, directly or by their checksums.
    signature : Signature or None
        Signature, which is not verified yet. None if the bundle is not signed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.path.abspath(path)
        self._data = self._mapped()
        self._size = len(self._data)
        magic, version = _START.unpack(self._part(0, _START.size))
        if magic != _MAGIC:
            raise ArgumentError(f"{self.path} is no bundle of kernels; cudakit bundle build makes one")
        if version != FORMAT_VERSION:
            raise ArgumentError(
                f"{self.path} is a bundle of format {version}, and this cudakit reads format {FORMAT_VERSION}: "
                f"{'upgrade cudakit' if version > FORMAT_VERSION else 'build it again'}"
            )
        if self._size < _HEAD.size:
            raise self._damage("it is cut short")
        head = _HEAD.unpack(self._part(0, _HEAD.size))
        _, _, self._bits, self._count, size, manifest_bytes, self._manifest_digest = head
        table_end = _HEAD.size + (_BUCKET.size << min(self._bits, _MOST_BITS))
        self._head: bytes = self._part(0, table_end)
        self.seal: bytes = self._part(table_end, table_end + _DIGEST_BYTES)
        if size != self._size:
            raise self._damage(f"it has {self._size} bytes in place of {size}")
        if hashlib.sha256(self._head).digest() != self.seal or _HEAD.unpack_from(self._head) != head:
            raise self._damage("its head has another checksum")
        self._signed_at = table_end + _DIGEST_BYTES
        self._manifest_at = self._signed_at + _SIGNATURE_BYTES
        self._index_at = self._manifest_at + manifest_bytes
        self.signature: Signature | None = self._signature()
        self._buckets = dict[int, bytes]()

    def _mapped(self) -> mmap.mmap | bytes:
        try:
            with open(self.path, "rb", opener=_opened) as file:
                if os.fstat(file.fileno()).st_size < _START.size:
                    raise ArgumentError(f"{self.path} is no bundle of kernels, or is cut short")
                try:
                    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                except OSError:  # some file systems have no mappings
                    return file.read()
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _part(self, begin: int, end: int) -> bytes:
        """Return a copy of a part of the file."""
        if isinstance(self._data, mmap.mmap):
            try:
                size = self._data.size()
            except OSError as error:  # of a network folder
                raise self._unreadable(error) from error
            if size < self._size:  # reading the mapping would kill the process
                raise self._damage(f"it has {size} bytes in place of {self._size}")
        return self._data[begin:end]

    def _unreadable(self, error: Exception) -> ArgumentError:
        return ArgumentError(f"the bundle {self.path} cannot be read: {error}")

    def _signature(self) -> Signature | None:
        block = self._part(self._signed_at, self._manifest_at)
        if block == _UNSIGNED:
            return None
        if hashlib.sha256(block[:-_DIGEST_BYTES]).digest() != block[-_DIGEST_BYTES:]:
            raise self._damage("its signature has another checksum")
        return Signature(block[:32], block[32:-_DIGEST_BYTES])

    def _damage(self, why: str) -> ArgumentError:
        return ArgumentError(f"the bundle {self.path} is damaged: {why}; install or build it again")

    def __len__(self) -> int:
        return int(self._count)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Provenance: the program that made the bundle, its versions, and its inputs."""
        data = self._part(self._manifest_at, self._index_at)
        if hashlib.sha256(data).digest() != self._manifest_digest:
            raise self._damage("its manifest has another checksum")
        manifest: dict[str, Any] = json.loads(data)
        return manifest

    def read(self, category: str, key: str) -> Entry | None:
        """Return an entry, or None if there is none.

        Raises
        ------
        ArgumentError
            If the entry, or the part of the index that lists it, is damaged.
        """
        digest = _digest_of(category, key)
        records = self._records(_bucket_of(digest, self._bits))
        at = bisect_left(records, digest, key=lambda record: record[0])
        if at == len(records) or records[at][0] != digest:
            return None
        entry = self._entry(records[at])
        if (entry.category, entry.key) != (category, key):
            raise self._damage(f"an entry is {entry.category} {entry.key} in place of {category} {key}")
        return entry

    def __iter__(self) -> Iterator[Entry]:
        """Yield all entries, verified, in the order of the index."""
        for bucket in range(1 << self._bits):
            yield from map(self._entry, self._records(bucket))

    def verify(self) -> None:
        """Read all of the file.

        Raises
        ------
        ArgumentError
            If any part is damaged.
        """
        _ = self.manifest
        for _ in self:
            pass

    def with_signature(self, signature: Signature) -> bytes:
        """Return the bytes of the file with another signature."""
        block = signature.public_key + signature.signature
        block += hashlib.sha256(block).digest()
        return self._part(0, self._signed_at) + block + self._part(self._manifest_at, self._size)

    def _records(self, bucket: int) -> list[tuple[bytes, int, int, bytes]]:
        """Return the records of a bucket, verified."""
        at = _HEAD.size + bucket * _BUCKET.size
        if bucket not in self._buckets:
            last, digest = _BUCKET.unpack_from(self._head, at)
            first = _BUCKET.unpack_from(self._head, at - _BUCKET.size)[0] if bucket else 0
            data = self._part(self._index_at + first * _RECORD.size, self._index_at + last * _RECORD.size)
            if hashlib.sha256(data).digest() != digest:
                raise self._damage("its index has another checksum")
            self._buckets[bucket] = data
        return list(_RECORD.iter_unpack(self._buckets[bucket]))

    def _entry(self, record: tuple[bytes, int, int, bytes]) -> Entry:
        _, offset, size, checksum = record
        blob = self._part(offset, offset + size)
        if hashlib.sha256(blob).digest() != checksum:
            raise self._damage("an entry has another checksum")
        end = _SIZE.size + _SIZE.unpack_from(blob)[0]
        header = json.loads(blob[_SIZE.size : end])
        return Entry(header.pop("category"), header.pop("key"), header, blob[end:])
