"""Drawing a report: text, JSON, HTML. Draws any result from its declared columns."""

import logging

# Where the home is read-only, matplotlib tells of its own cache folder on stderr when imported.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
