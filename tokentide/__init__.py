"""Tokentide for its users: the client, the command line, the measuring tools."""

from tokentide.client import Chunk, Client, Finish, RequestState, Usage
from tokentide.errors import TokentideError
from tokentide.sync_client import SyncClient

# What users import is named here, and nowhere else is re-exported.
__all__ = ["Chunk", "Client", "Finish", "RequestState", "SyncClient", "TokentideError", "Usage"]
