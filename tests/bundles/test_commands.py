"""Bundles on the command line: signed, shown, compared, verified, made smaller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cudakit as ck
from cudakit import cli
from cudakit.jit.bundle.file import CODE, BundleFile, Entry
from cudakit.jit.bundle.used import Compile
from cudakit.jit.cache import bundling
from cudakit.jit.signature.signature import declarations_key

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")


def kernel(name: str, arch: str, code: bytes = b"code", source: str = "5a") -> Entry:
    header = {"label": name, "source": source, "target": "cubin", "arch": arch, "lowered": {name: name}}
    more = {"promises": [], "headers": [[["<source>/a.h", "00"]], []]}
    return Entry(CODE, f"{name} {arch}", {**header, **more}, code)


def signature(source: str) -> Entry:
    return bundling.signature(declarations_key(source), b"[]")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    entries = [kernel("k<float>", "sm_80"), kernel("k<float>", "sm_90"), kernel("m", "sm_90", source="5b")]
    bundling.write_bundle(tmp_path / "kernels.ckb", (*entries, signature("5a"), signature("5b")), {"made by": "a test"})
    return tmp_path / "kernels.ckb"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """Files of a private key and its public one."""
    return make_keys(tmp_path, "own")


def make_keys(folder: Path, name: str) -> tuple[Path, Path]:
    key = ed25519.Ed25519PrivateKey.generate()
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / f"{name}.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pub").write_bytes(public)
    return folder / f"{name}.pem", folder / f"{name}.pub"


def run(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    assert cli.main(["bundle", *map(str, words)]) == status
    printed = capsys.readouterr()
    return printed.err if status else printed.out


def test_a_signed_bundle_is_used_with_its_key_alone(
    path: Path, keys: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    private, public = keys
    with pytest.raises(ck.ArgumentError, match="is not signed"):
        ck.use_bundle(path, key=public)
    assert "Signed" in run(capsys, "sign", path, "--key", private)
    raw = serialization.load_pem_public_key(public.read_bytes()).public_bytes_raw()
    for key in (public, raw, raw.hex().encode(), public.read_bytes()):
        with ck.use_bundle(path, key=key) as bundle:
            assert "5 entries" in repr(bundle)
    other = make_keys(path.parent, "other")[1]
    with pytest.raises(ck.ArgumentError, match=f"signed with the key {raw.hex()}; expected"):
        ck.use_bundle(path, key=other)
    assert run(capsys, "verify", path, "--key", public).endswith(f"5 entries, signed by {raw.hex()}.\n")
    assert "was not checked" in run(capsys, "verify", path)
    assert "expected a signature" in run(capsys, "verify", path, "--key", other, status=4)


def test_a_signature_is_not_one_of_another_bundle(path: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    from cudakit.jit.bundle.signature import sign

    signed = sign(path, keys[0])
    bundling.write_bundle(tmp_path / "other.ckb", [kernel("k<float>", "sm_80", b"evil")], {})
    forged = tmp_path / "forged.ckb"
    forged.write_bytes(BundleFile(tmp_path / "other.ckb").with_signature(signed))
    with pytest.raises(ck.ArgumentError, match="signed, but with another content"):
        ck.use_bundle(forged, key=keys[1])


@pytest.mark.parametrize("content", [b"", b"no key", b"x" * 31, b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END"])
def test_what_is_no_key_is_refused(content: bytes, path: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    for key in (content, tmp_path / "key", tmp_path / "absent"):
        with pytest.raises(ck.ArgumentError, match="no public key"):
            ck.use_bundle(path, key=key)


def test_keys_of_other_kinds_are_refused(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.x25519").X25519PrivateKey.generate()
    pem, public = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    private = path.with_name("x25519.pem")
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    with pytest.raises(ck.ArgumentError, match="is no Ed25519 public key"):
        ck.use_bundle(path, key=key.public_key().public_bytes(pem, public))
    before = path.read_bytes()
    assert f"{private} is no Ed25519 key; openssl genpkey" in run(capsys, "sign", path, "--key", private, status=4)
    assert path.read_bytes() == before


def test_signatures_name_their_extra(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ck.CudakitError, match=r"pip install 'cudakit\[sign\]'"):
        ck.use_bundle(path, key=b"")


def test_show(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "show", path)
    assert "signed by    nobody" in text
    assert "made by      a test" in text
    assert [line.split()[2:] for line in text.splitlines()[-3:]] == [
        ["cubin", "sm_80", "k<float>", "<source>/a.h"],
        ["cubin", "sm_90", "k<float>", "<source>/a.h"],
        ["cubin", "sm_90", "m", "<source>/a.h"],
    ]
    record = json.loads(run(capsys, "show", path, "--json"))
    assert (record["signed by"], len(record["kernels"]), len(record["others"])) == (None, 3, 2)


def test_diff(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "diff", path, path) == "no difference\n"
    entries = [kernel("k<float>", "sm_80", b"other code"), kernel("m", "sm_90", source="5b"), kernel("n", "sm_90")]
    bundling.write_bundle(tmp_path / "o", (*entries, signature("5a"), signature("5b")), {"made by": "another"})
    assert cli.main(["bundle", "diff", str(path), str(tmp_path / "o")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "made by: a test → another",
        "~ k<float> cubin sm_80: other code, 4 → 10 bytes",
        "- k<float> cubin sm_90",
        "+ n cubin sm_90",
    ]


def test_prune(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small"
    assert (
        run(capsys, "prune", path, "--arch", "sm_90", "-o", small) == f"Wrote 2 kernels of 3 to {small}, not signed.\n"
    )
    assert {entry.key for entry in BundleFile(small)} >= {"k<float> sm_90", "m sm_90"}
    run(capsys, "prune", small, "k<*")
    assert {entry.key for entry in BundleFile(small)} == {"k<float> sm_90", declarations_key("5a")}
    assert "has no kernel" in run(capsys, "prune", path, "--arch", "sm_70", status=4)


def test_damage_is_reported(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    for words in (("verify", path), ("show", path), ("diff", path, path), ("prune", path)):
        assert "damaged" in run(capsys, *words, status=4)
    compile: Compile = "always"  # type: ignore[assignment]
    with pytest.raises(ck.ArgumentError, match="'never' or 'missing', got 'always'"):
        ck.use_bundle(path, compile=compile)
