"""What both services do as processes."""

import os
import subprocess
import sys

import pytest

from shared.serving_process import DIE_WITH_PARENT


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a child of its parent's death"
)
@pytest.mark.parametrize(("launcher", "lives"), [("own", True), ("1", False), ("999999999", False)])
def test_a_child_whose_launcher_has_died_ends_at_once(launcher: str, lives: bool) -> None:
    """Also where process 1 is the launcher, as in a container: its pid is compared, not 1."""
    code = "from shared.serving_process import die_with_parent; die_with_parent(); print('lives', end='')"
    pid = str(os.getpid()) if launcher == "own" else launcher
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, DIE_WITH_PARENT: pid},
        capture_output=True,
        text=True,
        check=True,
    )

    assert child.stdout == ("lives" if lives else "")
