from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from memoryd.adapters.forks.sizing import CHARACTERS_PER_TOKEN, LEFT_OUT, size

TOKENS = 1000
LIMIT = TOKENS * CHARACTERS_PER_TOKEN

turns = st.integers(1, LIMIT * 2).map(lambda length: f"turn of {length} ".ljust(length, "x"))
conversations = st.lists(turns, min_size=1, max_size=60).map(tuple)


def test_a_short_conversation_goes_whole() -> None:
    assert size(("one", "two"), TOKENS, halved=False).texts == ("one", "two")


def test_blank_texts_are_left_out() -> None:
    assert size(("one", " \n", "", "two"), TOKENS, halved=False).texts == ("one", "two")
    assert size(("", " "), TOKENS, halved=False).texts == ()
    assert size((), TOKENS, halved=True).texts == ()


def test_a_long_conversation_loses_its_oldest_texts_and_says_so() -> None:
    texts = tuple(f"{number}".ljust(1000, ".") for number in range(10))
    sized = size(texts, TOKENS, halved=False).texts
    assert sized[0] == LEFT_OUT
    assert sized[1:] == texts[-len(sized) + 1 :]


def test_a_last_turn_that_is_too_long_keeps_its_front_and_most_of_its_end() -> None:
    sized = size(("asked " + "x" * LIMIT + " came out",), TOKENS, halved=False)
    assert sized.characters <= LIMIT
    (text,) = sized.texts
    assert text.startswith("asked ")
    assert text.endswith(" came out")
    assert "[… cut here …]" in text


@given(conversation=conversations)
def test_what_is_sent_fits_and_holds_the_last_turn(conversation: tuple[str, ...]) -> None:
    sized = size(conversation, TOKENS, halved=False)
    assert sized.characters <= LIMIT
    assert sized.texts[-1][-20:] == conversation[-1][-20:]


@given(conversation=st.lists(turns.filter(lambda text: len(text) > 400), min_size=1).map(tuple))
def test_halved_is_at_most_half_of_what_was_sent_before(conversation: tuple[str, ...]) -> None:
    before = size(conversation, TOKENS, halved=False).characters
    assert size(conversation, TOKENS, halved=True).characters <= before // 2


@given(conversation=conversations)
def test_a_longer_conversation_starts_alike_but_for_few_coarse_steps(
    conversation: tuple[str, ...],
) -> None:
    """Of saves one after another, each starts with the one before it, or the start moved.

    With every move, some 40 % of the limit is dropped, or a turn that is nearly that long itself.
    """
    saves = [
        size(conversation[: end + 1], TOKENS, halved=False).texts
        for end in range(len(conversation))
    ]
    moved = sum(later[: len(earlier)] != earlier for earlier, later in pairwise(saves))
    large = sum(len(text) > LIMIT * 0.4 for text in conversation)
    total = sum(map(len, conversation))
    assert moved <= total / (LIMIT * 0.4) + 2 * large


def test_what_holds_texts_shows_their_size() -> None:
    assert repr(size(("secret",), TOKENS, halved=False)) == "Sized(1 texts, 6 characters)"
