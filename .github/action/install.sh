#!/usr/bin/env bash
# ACTION: the auditor's checkout. INSTALL: what pip installs beside it, split at blanks.
set -euo pipefail
read -r -a beside <<<"${INSTALL:-}"
python -m pip install --quiet "$ACTION" ${beside[@]+"${beside[@]}"}
