"""Ed25519 signatures of bundles: who made one. The signed message is the seal, which covers the whole file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudakit.errors import ArgumentError, CudakitError, shortened
from cudakit.jit.bundle.file import BundleFile, Signature, replace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_CONTEXT = b"cudakit bundle\0"


def sign(path: Path, key: Path) -> Signature:
    """Sign a bundle in place, and return the signature.

    Parameters
    ----------
    path : pathlib.Path
        The bundle. All of its entries are verified before.
    key : pathlib.Path
        Ed25519 private key, in PEM.

    Raises
    ------
    ArgumentError
        If the bundle is damaged, or the key is no such key.
    """
    private = _private_key(key)
    file = BundleFile(path)
    file.verify()
    signature = Signature(private.public_key().public_bytes_raw(), private.sign(_CONTEXT + file.seal))
    replace(path, file.with_signature(signature))
    return signature


def require_signature(file: BundleFile, key: str | Path | bytes) -> None:
    """Raise unless a bundle is signed with a key.

    Parameters
    ----------
    file : BundleFile
        The bundle.
    key : path or bytes
        Ed25519 public key: PEM, 32 bytes or 64 hexadecimal digits, or the path of a file with one of these.

    Raises
    ------
    ArgumentError
        If it is not signed, signed with another key, or the signature is of another content.
    """
    public = _public_key(key)
    if file.signature is None:
        raise ArgumentError(
            f"the bundle {file.path} is not signed, and a key is required: cudakit bundle sign signs it"
        )
    from cryptography.exceptions import InvalidSignature

    own = public.public_bytes_raw()
    try:
        public.verify(file.signature.signature, _CONTEXT + file.seal)
    except InvalidSignature:
        by = file.signature.public_key
        why = f"signed with the key {by.hex()}" if by != own else "signed, but with another content"
        raise ArgumentError(f"the bundle {file.path} is {why}; expected a signature of the key {own.hex()}") from None


def _private_key(path: Path) -> Ed25519PrivateKey:
    serialization, ed25519 = _cryptography()
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(f"{path} is no private key in PEM without a password: {error}") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ArgumentError(f"{path} is no Ed25519 key; openssl genpkey -algorithm ed25519 -out private.pem makes one")
    return key


def _public_key(key: str | Path | bytes) -> Ed25519PublicKey:
    serialization, ed25519 = _cryptography()
    try:
        data = key if isinstance(key, bytes) else Path(key).read_bytes()
        if data.lstrip().startswith(b"-----"):
            public = serialization.load_pem_public_key(data)
        else:
            digits = data.strip()
            is_hexadecimal = re.fullmatch(rb"[0-9a-fA-F]{64}", digits) is not None
            public = ed25519.Ed25519PublicKey.from_public_bytes(
                bytes.fromhex(digits.decode()) if is_hexadecimal else data
            )
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(f"key {shortened(key)} is no public key: {error}") from error
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise ArgumentError(f"key {shortened(key)} is no Ed25519 public key")
    return public


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise CudakitError("signatures of bundles need cryptography: pip install 'cudakit[sign]'") from error
    return serialization, ed25519
