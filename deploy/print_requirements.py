"""Prints what Tokentide needs with the named extras, a requirement a line, as pyproject.toml says.

So that an image can install it, pinned by requirements.txt, before the source is copied: a change of
source then costs no new download.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
wanted = [*project["dependencies"], *(line for name in sys.argv[1:] for line in extras[name])]
print("\n".join(dict.fromkeys(wanted)))
