"""Reports as text, JSON, HTML and charts, drawn from the declared columns of any result."""

import logging

# Where the home folder is read-only, matplotlib writes about its cache folder to stderr.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
