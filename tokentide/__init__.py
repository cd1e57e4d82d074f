"""Tokentide for its users: the client, the command line, the measuring tools."""

from shared.types import FinishReason
from tokentide.client import Chunk, Client, Finish, Model, RequestState, Usage
from tokentide.errors import TokentideError
from tokentide.resume import RetrySettings
from tokentide.sync_client import SyncClient

# What users import is named here, and nowhere else is re-exported.
__all__ = [
    "Chunk",
    "Client",
    "Finish",
    "FinishReason",
    "Model",
    "RequestState",
    "RetrySettings",
    "SyncClient",
    "TokentideError",
    "Usage",
]
