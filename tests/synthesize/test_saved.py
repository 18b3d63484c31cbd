from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon
from sfumato.synthesize import NoisyTotal, histogram
from sfumato.synthesize.methods.mst import mst
from sfumato.synthesize.synthetic import load, save
from sfumato.vault.interface import decode, encode
from sfumato.vault.simulated import SimulatedVault

# names out of alphabetical order, sizes that differ: a model that forgets the order of its domain is caught
DOMAIN = Domain(
    (
        Integer(name="z", minimum=0, maximum=1, unknown=Unknown.CLAMP),
        Integer(name="a", minimum=0, maximum=6, unknown=Unknown.CLAMP),
        Integer(name="m", minimum=0, maximum=2, unknown=Unknown.CLAMP),
    )
)


def released(method: str):
    codes = np.random.default_rng(0).integers(0, DOMAIN.shape, (500, 3))
    vault = SimulatedVault(ArrayTable(DOMAIN, codes), seed=1)
    if method == "mst":
        return mst(vault, loss=Epsilon(5), total=NoisyTotal())
    return histogram(vault, loss=Epsilon(5), total=NoisyTotal())


@pytest.mark.parametrize("method", ["histogram", "mst"])
def test_a_loaded_release_is_the_release(method: str, tmp_path: Path) -> None:
    release = released(method)
    save(release, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.statement() == release.statement()
    assert again.model.domain == DOMAIN
    assert again.rows.to_arrow().equals(release.rows.to_arrow())
    assert np.__version__.encode() in (tmp_path / "model").read_bytes()
    assert len(again.sample(7)) == 7


def test_files_that_hold_no_release_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("age,sex\n1,2\n")
    save(released("histogram"), tmp_path / "model")
    (tmp_path / "half").write_bytes((tmp_path / "model").read_bytes()[:200])
    whole = (tmp_path / "model").read_bytes()
    for place in range(0, len(whole), 37):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        (tmp_path / f"flipped {place}").write_bytes(flipped)
    for name in ("text", "half", "absent", *(path.name for path in tmp_path.glob("flipped *"))):
        why = "there is no such file" if name == "absent" else "it is damaged, or is no saved model"
        with pytest.raises(InputError, match=f"cannot read a saved release from .*: {why}"):
            load(tmp_path / name)
    with pytest.raises(InputError, match="exists"):
        save(released("histogram"), tmp_path / "model")


def forged(path: Path, payload: dict) -> Path:
    stored = encode(payload)
    path.write_bytes(hashlib.sha256(stored).digest() + stored)
    return path


ODD = (None, 5, -1, "x", [], ["x"], {}, {"x": 1})
ODD_ARRAYS = (np.array([1.5]), np.zeros((2, 2)), np.array([-7, 10**9]))


@pytest.mark.parametrize("method", ["histogram", "mst"])
def test_forged_files_are_refused_or_can_be_sampled(method: str, tmp_path: Path) -> None:
    save(released(method), tmp_path / "model")
    payload = decode((tmp_path / "model").read_bytes()[32:])
    outer = payload["release"]
    refused, parts = 0, (payload, outer, outer["statement"])
    for part in parts:
        for key, kept in list(part.items()):
            for odd in (*ODD, *(ODD_ARRAYS if part is payload else ())):
                part[key] = odd
                refused += cannot_be_read(forged(tmp_path / "forged", payload))
            del part[key]
            refused += cannot_be_read(forged(tmp_path / "forged", payload))
            part[key] = kept
    assert refused > 6 * sum(map(len, parts))
    assert not cannot_be_read(forged(tmp_path / "forged", payload))


def cannot_be_read(path: Path) -> bool:
    """Return whether a file is refused; an accepted one can be sampled."""
    try:
        load(path).sample(3)
    except InputError as error:
        return "cannot read a saved release" in str(error)
    return False
