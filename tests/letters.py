"""Random letters for made-up tokens."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

ALNUM = string.ascii_letters + string.digits
WORD = ALNUM + "_-"
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"


def some(chance: random.Random, letters: str, length: int) -> str:
    """Random letters with a small one, a capital and a digit among them where there are such."""
    found = [chance.choice(letters) for _ in range(length)]
    for at, needed in zip(chance.sample(range(length), 3), ("k", "Q", "7"), strict=True):
        if needed in letters:
            found[at] = needed
    return "".join(found)
