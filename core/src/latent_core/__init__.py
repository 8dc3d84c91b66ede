"""What the gateway, the workers, the client and the command line share."""

import os

__version__ = "0.2.0"
"""The release: packages, distribution and images take it from here."""

# onnxruntime keeps a number of this machine in the home folder and reports to its maker, unless this stands in the
# environment before it is loaded: its own switch comes too late for the first report. None of us loads it before this.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # noqa: TID251 - set for a library, not read
