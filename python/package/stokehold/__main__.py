"""``python -m stokehold``: the command line."""

import os
import sys

from stokehold._command import program
from stokehold.errors import UsageError

try:
    path = program()
except UsageError as error:
    sys.exit(f"error: {error}")
# In the place of this process: signals and the exit code need no one to pass them on.
os.execv(path, [path, *sys.argv[1:]])
