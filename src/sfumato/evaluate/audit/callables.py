"""Find a mechanism that a user brings, by the name of its module and function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from sfumato.errors import InputError
from sfumato.evaluate.audit.subject import Subject, subject_of
from sfumato.privacy.loss import Loss
from sfumato.strict_json import read_json


def find_callable(name: str) -> Callable[[object], object]:
    """The callable ``module:function``; modules are also looked for in the working directory.

    Raises:
        InputError: there is none of that name.
    """
    module, _, path = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError):
        raise InputError(f"no callable {name!r} to audit; say module:function", culprit=name) from None
    except Exception as error:
        raise InputError(f"the module {module!r} failed with {type(error).__name__}", culprit=name) from error
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise InputError(f"{name!r} cannot be called", culprit=name)
    return found


def subject_from_text(name: str, first: str, second: str, claim: Loss) -> Subject:
    """A user's mechanism on two neighbouring inputs written as JSON.

    Raises:
        InputError: no such callable, or an input that is not JSON.
    """
    try:
        neighbours = read_json(first), read_json(second)
    except InputError:
        raise InputError(
            "write both inputs as JSON, such as 0 and 1, or [1, 2] and [1]", culprit=(first, second)
        ) from None
    return subject_of(find_callable(name), neighbours, name=name, claim=claim)
