"""A step that fails on a device that is lost ends the worker; on one that computes on, only the step."""

import pytest
import torch

from shared.errors import DeviceLost
from worker_service.engine.device import raise_if_lost

ERROR = RuntimeError("CUDA error: an illegal memory access was encountered")


def test_a_device_that_fails_again_is_lost(monkeypatch):
    def fail(device):
        raise ERROR

    monkeypatch.setattr(torch.cuda, "synchronize", fail)

    with pytest.raises(DeviceLost, match="cuda:0 is lost"):
        raise_if_lost("cuda:0", ERROR)


def test_one_that_computes_on_is_not(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)

    raise_if_lost("cuda:0", ERROR)
    raise_if_lost("cpu", ERROR)
