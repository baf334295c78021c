"""The command dpsgd-audit, also ``python -m dpsgd_audit``."""

from __future__ import annotations

import sys

from dpsgd_audit import strangers

BAD_ENVIRONMENT = 2


def main() -> int:
    """Run the command line, unless somebody else's package has one of our names."""
    if wrong := strangers.found():
        print(f"dpsgd-audit: {wrong}", file=sys.stderr)
        return BAD_ENVIRONMENT
    from audit.cli import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
