"""Set before torch is loaded: threads that wait must sleep, not spin.

On two cores shared with anything else, spinning makes a step twenty times slower.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
