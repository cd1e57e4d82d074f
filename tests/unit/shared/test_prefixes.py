"""Fingerprints of prompts' beginnings."""

from shared.prefixes import PREFIX_LENGTHS, longest_known, prefix_hashes

PROMPT = tuple(range(600))


def test_lengths_are_whole_blocks_and_grow() -> None:
    assert PREFIX_LENGTHS[:10] == (16, 32, 48, 64, 80, 96, 112, 128, 160, 192)
    assert list(PREFIX_LENGTHS) == sorted(set(PREFIX_LENGTHS))
    assert all(length % 16 == 0 for length in PREFIX_LENGTHS)


def test_prompts_that_begin_alike_share_hashes_as_far_as_they_do() -> None:
    one, other = prefix_hashes(PROMPT, b""), prefix_hashes(PROMPT[:530] + (7,) * 70, b"")
    shared = sum(length <= 530 for length in PREFIX_LENGTHS)

    assert one[:shared] == other[:shared]
    assert not set(one[shared:]) & set(other[shared:])


def test_a_salt_separates() -> None:
    assert not set(prefix_hashes(PROMPT, b"a")) & set(prefix_hashes(PROMPT, b"b"))


def test_the_whole_prompt_is_no_beginning_of_itself() -> None:
    assert len(prefix_hashes(PROMPT[:16], b"")) == 0
    assert len(prefix_hashes(PROMPT[:17], b"")) == 1
    assert prefix_hashes((), b"") == ()


def test_the_longest_known_beginning_is_found() -> None:
    hashes = prefix_hashes(PROMPT, b"")
    for num_known in range(len(hashes) + 1):
        known = set(hashes[:num_known])
        expected = PREFIX_LENGTHS[num_known - 1] if num_known else 0
        assert longest_known(hashes, known.__contains__) == expected
