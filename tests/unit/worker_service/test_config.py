"""What the worker's settings take, and what they refuse before anything is loaded."""

import pytest

from shared.errors import SettingError
from worker_service.config import WorkerSettings


def read(*args: str) -> WorkerSettings:
    return WorkerSettings.read(["--model", "/m", *args], environment={})


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1"])
def test_a_device_is_taken_as_it_stands(device: str) -> None:
    assert read("--device", device).device == device


@pytest.mark.parametrize("device", ["foo", "cuda:x", "cpu:0", ""])
def test_what_is_no_device_is_refused_with_the_words_that_are(device: str) -> None:
    with pytest.raises(SettingError, match="write auto, cpu, cuda or cuda:N") as caught:
        read("--device", device)

    assert "\n" not in str(caught.value)
