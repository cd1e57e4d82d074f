"""Values to bytes and back."""

from scheduler_service.store import codec


def test_token_ids_are_little_endian_u32() -> None:
    ids = (0, 1, 258, 2**32 - 1)

    packed = codec.pack_ids(ids)

    assert packed == b"\0\0\0\0\1\0\0\0\2\1\0\0\xff\xff\xff\xff"
    assert codec.unpack_ids(packed) == ids


def test_bell_ids_may_hold_anything() -> None:
    message = b"\2\0\0\0a\n\0\0\0\0\3\0\0\0\xc3\xa4b"

    assert codec.bell_ids(message) == ("a\n", "", "äb")
    assert codec.bell_ids(b"") == ()
