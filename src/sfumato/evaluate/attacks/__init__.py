"""Attacks on released rows and on released answers."""

from sfumato.evaluate.attacks.answer_attacks import (
    averaging,
    differencing,
    homer_distance,
    linear_reconstruction,
    rebuild,
)
from sfumato.evaluate.attacks.row_attacks import downcode
from sfumato.evaluate.attacks.suite import attack, attack_rows

__all__ = [
    "attack",
    "attack_rows",
    "averaging",
    "differencing",
    "downcode",
    "homer_distance",
    "linear_reconstruction",
    "rebuild",
]
