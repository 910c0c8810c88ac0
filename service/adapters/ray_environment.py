"""What the embedded Ray and everything that attaches to it have in their environment."""

from __future__ import annotations

from pathlib import Path

# Everything below the embedded Ray carries MARK=folder: that is how all of it is found again.
MARK = "ELASTANE_EMBEDDED_RAY"


def ray_environment(folder: Path) -> dict[str, str]:
    """Loopback only, with a token: whoever reaches Ray's ports may run code."""
    return {
        # The one way to have Ray take 127.0.0.1 for what it is, and listen there alone.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Workers run at the priority of everybody else, not at nice 15.
        "RAY_worker_niceness": "0",
        # No idle Python processes in advance.
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_worker_prestart": "0",
        # What Ray has found on the way must not be found again.
        "RAY_ADDRESS": "",
    }
