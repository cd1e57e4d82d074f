"""URLs, and what of them may be shown."""

import pytest

from scheduler_service.store.connecting import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://user:se@cret@host:6379/0", "redis://***@host:6379/0"),
        ("unix://:secret@/run/store.sock?db=1", "unix://***@/run/store.sock?db=1"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
