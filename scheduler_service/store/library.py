"""The store's Functions library: its Lua source, named by its own content.

Function names are global in a server, so they carry the hash too: replicas of two versions call
each their own. Knows nothing of connections.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources

FILES = ("common.lua", "requests.lua", "driving.lua", "membership.lua")


@dataclass(frozen=True, slots=True)
class FunctionLibrary:
    name: str
    source: str

    @classmethod
    def read(cls) -> "FunctionLibrary":
        folder = resources.files(__package__) / "functions"
        body = "\n".join((folder / file).read_text(encoding="utf-8") for file in FILES)
        digest = hashlib.sha256(body.encode()).hexdigest()[:8]
        name = f"tokentide_{digest}"
        return cls(name, f"#!lua name={name}\n{body.replace('@HASH@', digest)}")

    def function(self, name: str) -> str:
        """The name in the server of the function that our files call `name`."""
        return f"{self.name}_{name}"
