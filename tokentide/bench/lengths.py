"""Length distributions as users write them; the simulated worker draws from them too."""

from shared.lengths import FORMS as FORMS
from shared.lengths import Lengths as Lengths
