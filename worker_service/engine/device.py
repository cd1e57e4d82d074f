"""Whether a device still computes after a step that failed on it."""

import torch

from shared.errors import DeviceLost


def raise_if_lost(device: str, error: Exception) -> None:
    """After an illegal access, say, a CUDA context answers every later call with the same error: no row of any
    request could be computed by this process again. Raises DeviceLost."""
    if not device.startswith("cuda"):
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as still:
        raise DeviceLost(f"{device} is lost: {still}") from error
